"""A process that serves a classifier's batches and says what they took."""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from harness.core.nouns import Load, Request
from harness.core.processes.gone import GONE, told_if_gone

if TYPE_CHECKING:
    from pathlib import Path

    from backends.classifiers.part_times import Part, PartClock
    from harness.core.backend import Backend
    from harness.core.nouns import Model

LAPS = 4
"""Of a run over the batches that are timed; the first batch is not counted."""

KILLED = (
    "a process that serves the model's batches was killed or failed, perhaps for lack of memory: "
    "more --threads make fewer of them"
)
CLOSE_S = 10.0
"""For a process to end what it is at; it goes with this one at the latest."""

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class ServedBatch:
    """From one batch's answers to the next one's, and in it the parts of the network; milliseconds,
    means over a run."""

    batch_ms: float
    parts_ms: Mapping[Part, float]


class ServingProcess:
    """Has one backend of each name, each with its options; their parts are timed."""

    def __init__(
        self, model: Model, directory: Path, options: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._channel, other = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        given = (other, model, directory, dict(options))
        self._process = context.Process(target=_serve, args=given, daemon=True)
        self._process.start()
        other.close()

    def ask(self, name: str, prompts: Prompts, size: int) -> None:
        """Begin to serve batches of `size`. Raises `UserError` where the process is gone."""
        with told_if_gone(KILLED):
            self._channel.send((name, prompts, size))

    def answer(self) -> ServedBatch:
        """What they took. Raises `UserError` where the process is gone."""
        with told_if_gone(KILLED):
            found: ServedBatch = self._channel.recv()
        return found

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        self._process.join(CLOSE_S)


def served(
    backend: Backend,
    prompts: Prompts,
    size: int,
    in_flight: int = 1,
    clock: PartClock | None = None,
) -> ServedBatch:
    """Run batches of `size` inputs, so many of them under way at once."""
    from backends.classifiers.measured import draws
    from harness.measure.load_loop import run_load

    some = [one for batch in draws(prompts, size) for one in batch]
    wanted = [
        Request(f"{lap}-{place}", tuple(ids), 1, answer="label")
        for lap in range(LAPS)
        for place, ids in enumerate(some)
    ]
    answers = run_load(backend, wanted, Load("closed", concurrency=size * in_flight))
    ends = sorted(one.commit_ns[-1] for one in answers)
    last = len(ends) - 1 if in_flight == 1 else len(ends) - 1 - size  # of the last only one stage
    took = (ends[last] - ends[size - 1]) / 1e6 / ((last + 1 - size) / size)
    return ServedBatch(took, {} if clock is None else clock.means_ms())


def _serve(channel: Connection, model: Model, directory: Path, options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a whole terminal: the other side closes then
    from backends import open_backend
    from backends.classifiers.one_device import OneDeviceBackend
    from harness.measure.timed_window import keep_from_collection

    backends: dict[str, tuple[OneDeviceBackend, PartClock]] = {}
    for name, given in options.items():
        backend = open_backend(name, directory, model, given)
        assert isinstance(backend, OneDeviceBackend)
        backends[name] = backend, backend.clocked()
    keep_from_collection()
    with suppress(*GONE):
        while True:
            name, prompts, size = channel.recv()
            backend, clock = backends[name]
            channel.send(served(backend, prompts, size, clock=clock))
    gc.unfreeze()  # what stays frozen at the end is told as leaked
