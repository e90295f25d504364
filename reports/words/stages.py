"""A pipeline's stages in words: which one bounds it, and what it comes to beside its baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.numbers import counted, percent, ratio
from reports.text import clipped, visible
from reports.words.doubts.filled import unfilled
from results.compare.pairing import NATIVE

BASELINES = ("own-early-exit", NATIVE, "classifier-early-exit", "classifier")
"""On the same engine: the same exits in one process, and the whole model."""
VERIFYING = ("adadecode", NATIVE)
"""Of a pipeline that verifies what leaves early."""
_RATES = {"output_tok_per_s": "Tokens per second", "request_per_s": "Labels per second"}
"""The first that a cell has; arrivals of an open load decide it."""
_GOODPUT = "goodput_req_per_s"
_GPU = "GPU"
"""Ray's name of what it shares out of one."""


class StageWork(NamedTuple):
    """A stage of a cell of a backend that is a pipeline."""

    cell: Cell
    number: int
    """From 1."""
    of: int
    counts: Mapping[str, float]
    first: Mapping[str, float]
    """Those of the first stage, which every token enters."""

    def per(self, name: str, divisor: str) -> float | None:
        """The quotient of two counts; None where nothing is to be divided by."""
        return self.counts[name] / self.counts[divisor] if self.counts[divisor] else None

    ran_on: str = ""
    """Devices and nodes of its workers, where they are no cores of the machine that measured."""

    @property
    def verifies(self) -> bool:
        """Whether all tokens go through all stages, drafts among them."""
        return bool(self.cell.variant.options.get("verify"))

    @property
    def arrive(self) -> float | None:
        """The share of all tokens that come as far."""
        return self.counts["rows"] / self.first["rows"] if self.first["rows"] else None

    @property
    def filled(self) -> float | None:
        """Positions filled in for each token of the first stage."""
        return self.counts["filled"] / self.first["rows"] if self.first["rows"] else None

    @property
    def busy(self) -> float:
        """The share of its workers' time in which they worked."""
        return self.of_time("pass_us") + self.of_time("other_us")

    def of_time(self, name: str) -> float:
        """The share of its workers' time that a count has."""
        return self.counts[name] / self.counts["worker_us"]


def stages(seen: Overview, samples: Samples) -> list[StageWork]:
    """Of each measured cell of a pipeline its stages in order."""
    return [
        StageWork(cell, int(number), len(told), counts, told["1"], _ran_on(cell, number, samples))
        for cell in seen.cells
        if cell.is_measured and "1" in (told := cell.metrics.get("by_stage") or {})
        for number, counts in told.items()
    ]


def _ran_on(cell: Cell, number: str, samples: Samples) -> str:
    """Of a stage; workers whose stages change are of all."""
    repeats = dict[str, None]()
    for workers in samples.workers.get(cell, ()):
        own = [one for one in workers if str(one.get("stage", number)) == number]
        if any("node" in one or "card" in one for one in own):
            counts = Counter(map(_place, own))
            told = (f"{n} × {place}" if n > 1 else place for place, n in counts.items())
            repeats["; ".join(told)] = None
    first, *others = [*repeats, ""]
    return visible(clipped(first + ", elsewhere in other repeats" * any(others), 200))


def _place(worker: Mapping[str, Any]) -> str:
    reserved = worker.get("reserved") or {}
    share = reserved.get(_GPU, 1)
    told = [str(worker.get("device"))]
    told += [f"({share:g} of {'it' if share < 1 else 'them'})" if share != 1 else ""]
    told += [f"GPU {worker['card']}" if "card" in worker and "node" not in worker else ""]
    told += [f"on {worker['node']}" if "node" in worker else ""]
    return " ".join(filter(None, told))


def sentences(seen: Overview, found: Sequence[StageWork], samples: Samples) -> list[str]:
    """For each load (and model) and pipeline what bounds it, and its throughput and goodput over
    those of each of `BASELINES` that ran beside it; nothing of cells that are not valid."""
    idle = {one.cell for one in unfilled(seen.cells, samples)}
    holding = [one for one in found if one.cell.stands_alone]
    places = dict.fromkeys((one.cell.condition, one.cell.variant.index) for one in holding)
    return [
        text
        for condition, variant in places
        for text in _of_one(
            seen,
            [
                one
                for one in holding
                if (one.cell.condition, one.cell.variant.index) == (condition, variant)
            ],
            idle,
        )
    ]


def _of_one(seen: Overview, own: Sequence[StageWork], idle: Collection[Cell]) -> Iterator[str]:
    cell = own[0].cell
    busiest = max(own, key=lambda one: one.busy)
    told = [
        f"Under {cell.condition} the busiest stage of {cell.variant.label} "
        f"({busiest.number} of {busiest.of}, {busiest.cell.workload}) works "
        f"{percent(busiest.busy)}% of the time"
    ]
    if cell.load_kind == "closed":
        metric = next((one for one in _RATES if cell.value(one)), None)
        if metric and (beside := "; ".join(_beside(seen, own, metric))):
            told.append(f"{_RATES[metric]}: {beside}")
    if died := sum(one.counts.get("replaced", 0.0) for one in own):
        told.append(
            f"{counted(int(died), 'process', 'processes')} died or hung there and "
            f"{'was' if died == 1 else 'were'} replaced: what ran again is in its times"
        )
    if all(one.cell in idle for one in own):
        told.append("Requests per second there are the load's: it does not fill this pipeline")
    elif beside := "; ".join(_beside(seen, [one for one in own if one.cell not in idle], _GOODPUT)):
        told.append(f"Requests per second that meet the objective: {beside}")
    yield ". ".join(told) + "."


def _beside(seen: Overview, own: Sequence[StageWork], metric: str) -> Iterator[str]:
    """A rate over a baseline's, the range over the workloads."""
    cells = {one.cell.place: one.cell for one in own if one.cell.holds(metric)}
    for name in VERIFYING if own and own[0].verifies else BASELINES:
        # several variants of a baseline: the fastest is the one to beat
        found: dict[tuple[str, ...], float] = {}
        for other in seen.cells:
            here = cells.get(other.place)
            if (
                here is None
                or other.variant.backend != name
                or other.variant.is_replay != here.variant.is_replay
                or not other.holds(metric)
            ):
                continue
            rate, theirs = here.value(metric), other.value(metric)
            if rate is not None and theirs:
                quotient = rate / theirs
                found[other.place] = min(found.get(other.place, quotient), quotient)
        if found:
            ends = dict.fromkeys(ratio(end) for end in (min(found.values()), max(found.values())))
            told = " to ".join(ends)
            yield f"{told} times {name}'s on {len(found)} of {len(cells)} workloads"
