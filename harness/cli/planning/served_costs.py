"""What a classifier's batches cost where trials run them: layers, ramps, and what is around them.

Queues, ramps read and judged, batches put together and taken apart, pipes, answers and the load
loop are no part of a network, and cost a small one as much as its layers do. So backends are run as
trials run them, on inputs that all go to the last layer, and a layer's time is taken out of the
very batch that it ran in: what is left of the batch is outside. A machine's pace wanders by more
than what is to be told apart, so that all is measured in turns, each with the others right behind
it, and medians are taken over the turns. One process a core runs the whole model, all of them at
the same time, since cores share caches and memory; the pipeline has the machine for itself, with as
many batches under way as keep both of its stages busy.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from harness.cli.planning.serving_process import ServedBatch, ServingProcess, served
from harness.core.processes.cores import usable_cores

if TYPE_CHECKING:
    from pathlib import Path

    from backends.classifiers.models.base import RampedClassifier
    from harness.core.backend import Backend
    from harness.core.nouns import Model

IN_FLIGHT = 4
"""Batches of the pipeline."""
NOBODY = {"measure": "entropy", "threshold": 0.0}
"""Leaves: no entropy is below 0."""
LEAST_MS = 1e-6

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class _Turn:
    """Of one size of batch, in milliseconds."""

    plain: ServedBatch
    segmented: ServedBatch
    staged: ServedBatch | None


class ServedCosts:
    """Milliseconds at each size of batch, measured a turn at a time. It has processes, which it
    ends as a context.

    Args:
        sizes: ascending; the times are those of the last one.
        ramps: layers behind which a ramp stands, one or more.
        threads: of each process.
    """

    def __init__(
        self,
        model: Model,
        directory: Path,
        prompts: Prompts,
        sizes: Sequence[int],
        ramps: Sequence[int],
        threads: int,
    ) -> None:
        from backends import open_backend

        self._prompts, self._ramps, self._middle = prompts, ramps, ramps[len(ramps) // 2]
        self._turns: dict[int, list[_Turn]] = {size: [] for size in sizes}
        asked: dict[str, Any] = {"threads": threads, "batch": sizes[-1]}
        every = {**asked, **NOBODY, "layers": list(ramps)}
        kinds: dict[str, dict[str, Any]] = {
            "classifier": asked,
            "classifier-early-exit": every,
        }
        copies = max(1, usable_cores() // threads)
        with contextlib.ExitStack() as opened:
            self._workers = [ServingProcess(model, directory, kinds) for _ in range(copies)]
            for worker in self._workers:
                opened.callback(worker.close)
            self._pipelines = {}
            for size in sorted({sizes[0], sizes[-1]}):
                stages = {"stages": 2, "layers": [self._middle], "batch": size}
                given = {**asked, **NOBODY, **stages}
                self._pipelines[size] = open_backend("tetris-classifier", directory, model, given)
                opened.callback(self._pipelines[size].close)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def turn(self) -> None:
        """Measure everything once more."""
        for size, turns in self._turns.items():
            turns.append(_turn(self._workers, self._pipelines.get(size), self._prompts, size))

    def state_bytes(self, network: RampedClassifier) -> list[int]:
        """Of the largest batch behind each layer but the last."""
        from backends.classifiers.measured import state_bytes

        return state_bytes(network, self._prompts[: max(self._turns)])

    def told(self) -> dict[str, Any]:
        """The keys of a profile (`backends.tetris.profile.StageProfile`) after a turn or more:
        `layer_ms` (the last with the classifier at the end), `ramp_ms` with all that goes with
        letting inputs leave behind it, `time_share` and `ramp_share` by numbers of inputs, and so
        `batch_ms`, `enter_ms` (both with what is before the first layer) and, at the least and the
        most, `stage_ms`."""
        every = self._turns.items()
        return _told({size: _Costs(some, self._ramps, self._middle) for size, some in every})


def _turn(
    workers: Sequence[ServingProcess], pipeline: Backend | None, prompts: Prompts, size: int
) -> _Turn:
    both = []
    for name in ("classifier", "classifier-early-exit"):
        for worker in workers:
            worker.ask(name, prompts, size)
        both.append(_mean([worker.answer() for worker in workers]))
    plain, segmented = both
    staged = None if pipeline is None else served(pipeline, prompts, size, IN_FLIGHT)
    return _Turn(plain, segmented, staged)


def _mean(some: Sequence[ServedBatch]) -> ServedBatch:
    """Of processes that ran at the same time."""
    parts = {part: statistics.mean(one.parts_ms[part] for one in some) for part in some[0].parts_ms}
    return ServedBatch(statistics.mean(one.batch_ms for one in some), parts)


class _Costs:
    """Medians over the turns of one size."""

    def __init__(self, turns: Sequence[_Turn], ramps: Sequence[int], middle: int) -> None:
        from backends.classifiers.part_times import ENTER, FINAL

        def layers(one: ServedBatch) -> list[float]:
            found = [
                one.parts_ms[part] for part in sorted(p for p in one.parts_ms if type(p) is int)
            ]
            found[-1] += one.parts_ms[FINAL]
            return found

        def outside(one: ServedBatch) -> float:
            return max(0.0, one.batch_ms - sum(layers(one)))

        def ramp(one: _Turn) -> float:
            return max(0.0, outside(one.segmented) - outside(one.plain)) / len(ramps)

        def enter(one: _Turn) -> float:
            return one.plain.parts_ms[ENTER]

        def hop(one: _Turn) -> float:
            """What the slower stage takes beyond its layers."""
            assert one.staged is not None
            each = layers(one.plain)
            first = enter(one) + sum(each[:middle]) + ramp(one)
            return max(0.0, one.staged.batch_ms - max(first, sum(each[middle:])))

        def over(what: Callable[[_Turn], float]) -> float:
            return statistics.median(map(what, turns))

        every = zip(*(layers(one.plain) for one in turns), strict=True)
        self.layers = [statistics.median(some) for some in every]
        self.batch, self.ramp = over(lambda one: outside(one.plain)), over(ramp)
        self.enter = over(enter)
        self.stage = None if turns[0].staged is None else over(hop)


def _told(found: Mapping[int, _Costs]) -> dict[str, Any]:
    last = found[max(found)]
    return {
        "layer_ms": [max(LEAST_MS, ms) for ms in last.layers],
        "ramp_ms": last.ramp,
        "time_share": _shares({size: sum(one.layers) for size, one in found.items()}),
        "ramp_share": _shares({size: one.ramp for size, one in found.items()}),
        "batch_ms": {str(size): one.batch for size, one in found.items()},
        "enter_ms": {str(size): one.enter for size, one in found.items()},
        "stage_ms": {str(n): one.stage for n, one in found.items() if one.stage is not None},
    }


def _shares(times: Mapping[int, float]) -> dict[str, float]:
    """Of the time of the most inputs. Other work makes a batch longer and never shorter: few inputs
    take no longer than many."""
    sizes = sorted(times)
    least = np.minimum.accumulate([max(times[size], LEAST_MS) for size in reversed(sizes)])[::-1]
    return {str(size): float(ms / least[-1]) for size, ms in zip(sizes, least, strict=True)}
