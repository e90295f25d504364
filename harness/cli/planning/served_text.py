"""What a text model's passes cost outside of its layers, where trials run them.

Steps planned, tokens booked and told, the load loop, and between stages jobs and answers on their
way: no part of a network, and as long as a small one's layers. So the backends are run as trials
run them, all requests at once and none ever joined by another, and what their passes took by their
own clocks is taken off.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from backends.tetris.serving.queues import MOST_OWED
from harness.core.errors import UserError
from harness.core.names import PASS_US
from harness.core.nouns import Load, Request

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.backend import Backend
    from harness.core.nouns import Generation, Model

TURNS, ENOUGH_S = 15, 5.0
"""At most, and no more of a backend once it has run for so long; one at the least."""
TOKENS = MOST_OWED
"""So few that no stage fills what is owed to it meanwhile."""
PROMPT = 2
"""Tokens: the prompts of all requests are one piece, read before anything is timed."""
EVERYBODY = {"measure": "softmax", "threshold": 0.0}
"""Leaves, so that the first stage never waits for the second."""


def outside_ms(
    model: Model, directory: Path, sizes: Sequence[int], threads: int, cut: int
) -> dict[str, dict[str, float]]:
    """`batch_ms` of a process that has the whole model, and `stage_ms` of one of two stages cut
    behind layer `cut`, by numbers of requests (`backends.tetris.profile.StageProfile`); the latter
    only for a model that stages can take here, else standard error says why."""
    from backends import check_options

    asked = {"threads": threads, "max_num_seqs": sizes[-1], "max_model_len": PROMPT + TOKENS + 1}
    found = {"batch_ms": _timed(model, directory, "autoregressive", asked, sizes)}
    staged = {**asked, **EVERYBODY, "layers": [cut]}
    try:
        check_options("tetris", staged, directory)
    except UserError as error:
        print(f"profile: without stage_ms: {error}", file=sys.stderr)
        return found
    return {**found, "stage_ms": _timed(model, directory, "tetris", staged, sizes)}


def _timed(
    model: Model, directory: Path, name: str, options: dict[str, Any], sizes: Sequence[int]
) -> dict[str, float]:
    from backends import open_backend

    found: dict[int, list[float]] = {size: [] for size in sizes}
    backend = open_backend(name, directory, model, options)
    begin = time.monotonic()
    try:
        for turn in range(-1, TURNS):  # the first one warms up
            if turn > 0 and time.monotonic() - begin > ENOUGH_S:
                break
            for size, own in found.items():
                ms = _outside_ms(backend, size)
                if turn >= 0:
                    own.append(ms)
    finally:
        backend.close()
    return {str(size): statistics.median(own) for size, own in found.items()}


def _outside_ms(backend: Backend, size: int) -> float:
    """Of each pass."""
    from harness.measure.load_loop import run_load

    ids = tuple(range(1, PROMPT + 1))
    wanted = [Request(f"{n}", ids, TOKENS, ignore_eos=True) for n in range(size)]
    backend.reset()
    answers = run_load(backend, wanted, Load("closed", concurrency=size))
    began, ended = (max(one.commit_ns[place] for one in answers) for place in (0, -1))
    passes, busy_us = _passes(answers)
    return max(0.0, (ended - began) / 1e6 - busy_us / 1e3) / passes


def _passes(answers: Sequence[Generation]) -> tuple[float, float]:
    """Of the whole model or of the first stage, and the microseconds that they took."""
    passes, busy_us = (
        sum(one.telemetry.get(name, 0.0) for one in answers)
        for name in ("stage_passes_1", "stage_pass_us_1")
    )
    if passes:
        return passes, busy_us
    # all requests wait for each pass, and this one's are counted from where all have begun
    last = max(answers, key=lambda one: one.commit_ns[0])
    return TOKENS - 1, last.telemetry[PASS_US]
