"""By how much a new run may be worse, for which metric of which cells."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.errors import UserError, nearest
from results.compare.gate.quantities import (
    CONSISTENCY,
    QUALITY,
    GateQuantity,
    quantities,
    quantity,
    scores,
)
from results.compare.gate.reduced import CellName

ALPHA = 0.05
MOST_MARGIN = 10.0
"""A relative margin is less: by eleven times worse nothing is gated."""


@dataclass(frozen=True, slots=True)
class MarginRule:
    """A margin for a metric of the cells that it names; None names all of them."""

    metric: str
    margin: float
    workload: str | None = None
    load: str | None = None
    backend: str | None = None
    model: str | None = None
    direction: Literal["larger", "smaller"] | None = None
    """Which is better, where that is not the registry's word."""

    def holds(self, cell: CellName) -> bool:
        """Whether the rule is about this cell."""
        return all(wanted is None or wanted == found for wanted, found in self.asked(cell).values())

    def asked(self, cell: CellName) -> dict[str, tuple[str | None, str]]:
        """What it asks for of a cell, and what the cell has."""
        return {
            "workload": (self.workload, cell.workload),
            "load": (self.load, cell.load),
            "backend": (self.backend, cell.backend),
            "model": (self.model, cell.model),
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities that it is about."""
        return scores() if self.metric == QUALITY else (self.metric,)


@dataclass(frozen=True, slots=True)
class GateRules:
    """The rules of one comparison. Of two rules for one metric of one cell the later one holds."""

    rules: Sequence[MarginRule]
    alpha: float = ALPHA
    """Greatest chance that a run that is worse nowhere beyond its margins fails, and that one
    passes that is slower somewhere, or whose scores or answers are worse over a backend's cells.
    Where no score or answer differs, the row passes, and is about the prompts asked alone."""
    where: str | None = None
    """The file; None for the defaults, which ask for nothing that a run does not have."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every quantity that some rule is about."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in rule.names))

    def margins(self, cell: CellName) -> dict[str, MarginRule]:
        """The rule that holds for each quantity of a cell."""
        return {name: rule for rule in self.rules if rule.holds(cell) for name in rule.names}

    def check_cells(self, cells: Collection[CellName]) -> None:
        """Raise `UserError` for a rule of a file that is about no cell."""
        for rule in self.rules if self.where else ():
            if not any(rule.holds(cell) for cell in cells):
                raise UserError(f"{self.where}: {_unmatched(rule, cells)}")


DEFAULTS = GateRules(
    (
        MarginRule("tpot_s", 0.05),
        MarginRule("ttft_s", 0.10),
        MarginRule(QUALITY, 0.01),
        MarginRule(CONSISTENCY, 0.01),
    )
)


def direction(found: GateQuantity, rule: MarginRule) -> Literal["larger", "smaller"]:
    """Which is better."""
    better = rule.direction or found.better
    assert better
    return better


def check_rule(rule: MarginRule, where: str) -> None:
    """Raise `UserError`, which begins with `where`, for a metric that nobody has, a margin out of
    range, and a metric whose direction is not said."""
    most = math.inf if is_count(rule.metric) else MOST_MARGIN
    if not (math.isfinite(rule.margin) and 0 <= rule.margin < most):
        raise UserError(f"{where}: margin {rule.margin}: expected 0 to 10 (0.05 is 5%)")
    if rule.metric == QUALITY:
        _check_share(rule, where)
        _check_direction(rule, "larger", where)
        return
    found = quantity(rule.metric, where)
    if not (found.is_ratio or is_count(rule.metric)):
        _check_share(rule, where)
    if found.by_the_clock and rule.margin == 0:
        raise UserError(
            f"{where}: margin 0: '{rule.metric}' is measured by the clock, by which equal versions "
            "never are equal; expected a margin that repeats can hold ('gate calibrate' finds it)"
        )
    _check_direction(rule, found.better, where)
    if not (rule.direction or found.better):
        raise UserError(
            f"{where}: '{rule.metric}' is neither good nor bad; "
            "expected 'direction: smaller' or 'direction: larger', whichever is better"
        )


def _check_direction(rule: MarginRule, better: str, where: str) -> None:
    if better and rule.direction not in (None, better):
        told = f"'{rule.metric}' is better {better}; expected no direction"
        raise UserError(f"{where}: direction: {told}")


def is_count(metric: str) -> bool:
    """Whether a rule's margin is a number of requests of a trial."""
    found = quantities().get(metric)
    return found is not None and found.form == "count"


def _check_share(rule: MarginRule, where: str) -> None:
    if rule.margin >= 1:
        told = f"margin {rule.margin:g}: '{rule.metric}' is a share; expected less than 1"
        raise UserError(f"{where}: {told}")


def bound(found: GateQuantity, margin: float) -> float:
    """The margin on the scale on which it is tested: the log of a ratio, or a difference."""
    return math.log1p(margin) if found.is_ratio else margin


def as_change(found: GateQuantity, worse: float) -> float:
    """The inverse of `bound`, for any amount by which something is worse."""
    return math.expm1(min(worse, 50.0)) if found.is_ratio else worse


def _unmatched(rule: MarginRule, cells: Collection[CellName]) -> str:
    """Which key of the rule no cell has."""
    asked: Mapping[str, set[str]] = {
        key: {rule.asked(cell)[key][1] for cell in cells}
        for key in ("workload", "load", "backend", "model")
    }
    for key, found in asked.items():
        wanted = getattr(rule, key)
        if wanted is not None and wanted not in found:
            return f"no cell has the {key} '{wanted}'; {nearest(wanted, found)}"
    return f"no cell has all that the rule for '{rule.metric}' asks for"
