"""`decodebench run` whose processes are killed in the middle of a draft; see test_killed_drafts.py.

Arguments: a method of `speculative` in whose load its engine is killed, one in whose load the sweep
is, the repeat in which both happen, a file, and those of `decodebench`. All is as always but for
one step of each load: once its drafts are made, and before the model has seen them, their number is
written to the file, and the kill comes.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from backends.engine.drafters.chains import Chains
from backends.engine.streams import Stream
from harness.cli import run, session
from harness.cli.main import main
from harness.core.nouns import Request, Trial

STEP = 5
"""Steps of the load that are let pass; those of its warm-up are not counted."""


class Doom:
    """What becomes of a method's drafts in one repeat: at its end a process is killed."""

    def __init__(self, repeat: int, victim: int, told: Path) -> None:
        self._repeat, self._victim, self._told = repeat, victim, told
        self._steps = 0
        self._is_near = False
        self._requests, self._extend = session.EngineSession.requests, Chains.extend

    def requests(self, opened: session.EngineSession, trial: Trial) -> tuple[list[Request], ...]:
        """As always; which repeat begins is noted."""
        self._is_near = trial.repeat == self._repeat
        return self._requests(opened, trial)

    def extend(
        self, chains: Chains, streams: Sequence[Stream], max_drafts: int, done: list[int]
    ) -> None:
        """As always, and no further."""
        self._extend(chains, streams, max_drafts, done)
        self._steps += self._is_near and not any(s.id.startswith("warm-up") for s in streams)
        if self._steps > STEP and (drafts := sum(stream.drafts for stream in streams)):
            with self._told.open("a") as told:
                told.write(f"{drafts}\n")
            os.kill(self._victim, signal.SIGKILL)
            time.sleep(60)


def open_session(
    engine_dies_in: str, sweep_dies_in: str, repeat: int, told: Path, trial: Trial
) -> session.EngineSession:
    """Runs in the child process."""
    victims = {engine_dies_in: os.getpid(), sweep_dies_in: os.getppid()}
    if (victim := victims.get(trial.options.get("method", ""))) is not None:
        doom = Doom(repeat, victim, told)
        for owner, name, does in (
            (session.EngineSession, "requests", lambda *given: doom.requests(*given)),
            (Chains, "extend", lambda *given: doom.extend(*given)),
        ):
            mock.patch.object(owner, name, does).start()
    return session.open_session(trial)


if __name__ == "__main__":
    from tests.support.children import killed_draft  # by the name that a child can import

    engine_dies_in, sweep_dies_in, repeat, told, *sys.argv[1:] = sys.argv[1:]
    opens = functools.partial(
        killed_draft.open_session, engine_dies_in, sweep_dies_in, int(repeat), Path(told).absolute()
    )
    with mock.patch.object(run, "open_session", opens):
        main()
