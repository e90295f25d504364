"""Draft and verify in words: where drafts pay, and where they cost more than they bring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reports.cells import Cell, Overview
from reports.numbers import ratio, significant
from reports.words.speed import Speed, speed
from reports.words.techniques import predicts_early
from results.compare.pairing import NATIVE

VLLM = "vllm"
_ALIKE = ("requests", "seed", "dtype")
"""What cells of one workload and load can still differ in."""
_ALIKE_OPTIONS = ("threads", "kernels")
"""Without which the same engine is not the same."""
_MOST = 4
"""Variants, or workloads of one, that a sentence names."""


class Drafting(NamedTuple):
    """A cell of a variant that drafts, beside plain decoding on the same engine."""

    cell: Cell
    plain: Cell | None
    """None where it was not run, or not so that the two can be compared."""
    metric: str = ""
    """The speed-up that is paired with it; empty where none is."""

    @property
    def measured(self) -> float | None:
        """The paired speed-up over plain decoding."""
        return self.cell.value(self.metric) if self.plain and self.metric else None

    @property
    def holds(self) -> bool:
        """Whether the paired speed-up may be believed."""
        return self.cell.holds(self.metric) if self.metric else self.cell.stands_alone

    @property
    def steps_hold(self) -> bool:
        """Whether the times of both sides' steps may be believed."""
        return self.cell.stands_alone and (self.plain is None or self.plain.stands_alone)

    @property
    def step_ratio(self) -> float | None:
        """A step's time (drafts, verification and the engine around them) over plain decoding's."""
        own = self.cell.value("step_s")
        other = self.plain.value("step_s") if self.plain else None
        return own / other if own is not None and other else None

    @property
    def verification_ratio(self) -> float | None:
        """The same without the drafts; None where their time is not told apart."""
        whole, drafts = self.step_ratio, self.cell.value("draft_share")
        return None if whole is None or drafts is None else whole * (1 - drafts)

    @property
    def predicted(self) -> float | None:
        """The speed-up over plain decoding that tokens and times of steps come to: plain decoding
        takes a step for each token."""
        tokens, whole = self.cell.value("tokens_per_step"), self.step_ratio
        return tokens / whole if tokens is not None and whole else None


def drafting(seen: Overview) -> list[Drafting]:
    """The measured cells of all variants that could draft, in the page's order: to have drafted
    nothing costs, too."""
    told = ("acceptance_rate", "draft_share")
    drafts = {c.variant.index for c in seen.cells if any(c.value(n) is not None for n in told)}
    cells = [c for c in seen.cells if c.variant.index in drafts and c.is_measured]
    return [_beside_plain(seen, cell) for cell in cells]


def _beside_plain(seen: Overview, cell: Cell) -> Drafting:
    name = engine(cell)
    found = [
        other
        for other in seen.cells
        if other.variant.backend == name
        and (other.workload, other.load) == (cell.workload, cell.load)
        and other.variant.is_replay == cell.variant.is_replay
        and all(other.metrics[key] == cell.metrics[key] for key in _ALIKE)
        and all(other.effective.get(key) == cell.effective.get(key) for key in _ALIKE_OPTIONS)
    ]
    # pairs are made with the first variant that was listed
    found = [other for other in found if other.variant.index == found[0].variant.index]
    if len(found) != 1 or not found[0].is_measured:
        return Drafting(cell, None)
    metric = "speedup_native" if name == NATIVE else "speedup" * found[0].variant.is_reference
    if metric and cell.value(metric) is None:
        # another machine's, or of other requests: what cannot be paired predicts nothing either
        return Drafting(cell, None)
    return Drafting(cell, found[0], metric)


def engine(cell: Cell) -> str:
    """The backend that decodes plainly on the cell's engine; empty where that is not known."""
    # only our own engine names its kernels, and only it predicts early
    if cell.effective.get("kernels") is not None or predicts_early(cell):
        return NATIVE
    return VLLM if cell.variant.backend.partition("-")[0] == VLLM else ""


def sentences(found: Sequence[Drafting]) -> list[str]:
    """For each load (and model) and engine, who gains from drafts and who loses; nothing of cells
    that are not valid or whose interval touches 1."""
    return [
        text
        for condition in dict.fromkeys(one.cell.condition for one in found)
        for name in dict.fromkeys(engine(one.cell) for one in found)
        for text in _both(
            condition,
            [o for o in found if o.cell.condition == condition and engine(o.cell) == name],
        )
    ]


def _both(condition: str, own: Sequence[Drafting]) -> Iterator[str]:
    clear = [(one, s) for one in own if one.measured and (s := speed([one.cell], one.metric))]
    gains = [one for one, s in clear if s.is_faster]
    losses = [one for one, s in clear if s.is_slower]
    over = next((f"decode speed over {o.plain.variant.label}'s" for o in own if o.plain), "")
    every = len({one.cell.workload for one in own})
    if gains:
        told = _listed(gains, every, best_first=True)
        yield f"Under {condition} these drafts bring more than they cost ({over}): {told}."
    if losses:
        told = _listed(losses, every, best_first=False)
        yield f"Under {condition} these drafts cost more than they bring ({over}): {told}."


def _listed(own: Sequence[Drafting], every: int, *, best_first: bool) -> str:
    """Each variant with its speed-up over the cells that it has here, of so many workloads."""
    rows: list[tuple[float, str]] = []
    for index in dict.fromkeys(one.cell.variant.index for one in own):
        same = [one for one in own if one.cell.variant.index == index]
        pooled = speed([one.cell for one in same], same[0].metric)
        if pooled is not None:
            text = f"{_gain(same, pooled)} on {_workloads(same, every)}"
            rows.append((pooled.value, text + ("" if best_first else _why(same))))
    rows.sort(key=lambda row: row[0], reverse=best_first)
    more = [f"and {len(rows) - _MOST} more in the table"] * (len(rows) > _MOST)
    return "; ".join([*(text for _, text in rows[:_MOST]), *more])


def _gain(same: Sequence[Drafting], pooled: Speed) -> str:
    variant = same[0].cell.variant
    said = f"{variant.label} ({variant.provenance})"
    return f"{ratio(pooled.value)}× {pooled.interval} with {said}"


def _workloads(same: Sequence[Drafting], every: int) -> str:
    # the model is said with the load
    names = [one.cell.workload.removesuffix(f" on {one.cell.model}") for one in same]
    if len(names) > 2 and len(names) == every:
        return f"all {every} workloads"
    if len(names) > _MOST:
        return f"{len(names)} of {every} workloads"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _why(same: Sequence[Drafting]) -> str:
    """What a step brings and takes; empty for several workloads, which differ in both."""
    tokens, whole = same[0].cell.value("tokens_per_step"), same[0].step_ratio
    if len(same) > 1 or tokens is None or whole is None or not same[0].steps_hold:
        return ""
    return (
        f", where a step brings {significant(tokens)} tokens and takes the time of "
        f"{significant(whole)} plain ones"
    )
