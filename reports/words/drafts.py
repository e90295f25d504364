"""Draft and verify in words: where drafts pay, and where they cost more than they bring."""

from __future__ import annotations

from typing import Any, NamedTuple

from reports.cells import Cell, Overview
from reports.words.techniques import predicts_early
from results.compare.pairing import ARITHMETIC, NATIVE

VLLM = "vllm"
_ALIKE = ("requests", "seed", "dtype")
"""What cells of one workload and load can still differ in."""


class Drafting(NamedTuple):
    """A cell of a variant that drafts, beside plain decoding on the same engine."""

    cell: Cell
    plain: Cell | None
    """None where it was not run, or not so that the two can be compared."""
    metric: str = ""
    """The speed-up that is paired with it; empty where none is."""
    is_apart: bool = False
    """Plain decoding was run, and of the two one alone replays."""

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
    def drafted(self) -> bool:
        """Whether any draft was made, as far as that is told."""
        return self.cell.value("drafts_per_step") != 0

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
    have = (c for c in seen.cells if any(c.metrics.get(name) is not None for name in told))
    drafts = {c.variant.index for c in have}
    cells = [c for c in seen.cells if c.variant.index in drafts and c.is_measured]
    return [_beside_plain(seen, cell) for cell in cells]


def _beside_plain(seen: Overview, cell: Cell) -> Drafting:
    name = engine(cell)
    plain = [c for c in seen.cells if c.variant.backend == name and c.place == cell.place]
    is_apart = bool(plain) and all(c.variant.is_replay != cell.variant.is_replay for c in plain)
    found = [
        other
        for other in plain
        if other.variant.is_replay == cell.variant.is_replay
        and all(other.metrics[key] == cell.metrics[key] for key in _ALIKE)
        and arithmetic(other) == arithmetic(cell)
    ]
    # pairs are made with the first variant that was listed
    found = [other for other in found if other.variant.index == found[0].variant.index]
    if len(found) != 1 or not found[0].is_measured:
        return Drafting(cell, None, is_apart=is_apart)
    metric = "speedup_native" if name == NATIVE else "speedup" * found[0].variant.is_reference
    if metric and cell.value(metric) is None:
        # another machine's, or of other requests: what cannot be paired predicts nothing either
        return Drafting(cell, None)
    return Drafting(cell, found[0], metric)


def arithmetic(cell: Cell) -> list[Any]:
    """What the same engine is not the same without: its threads and kernels."""
    return [cell.effective.get(key) for key in ARITHMETIC]


def engine(cell: Cell) -> str:
    """The backend that decodes plainly on the cell's engine; empty where that is not known."""
    # only our own engine names its kernels, and only it predicts early
    if cell.effective.get("kernels") is not None or predicts_early(cell):
        return NATIVE
    return VLLM if cell.variant.backend.partition("-")[0] == VLLM else ""
