"""The speed-up of a variant over several cells, and where one number is not true of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from reports.cells import Cell
from reports.numbers import interval, ratio, significant
from results.compare.intervals.several import CellEffects, over_cells, pooled_ratio
from results.compare.intervals.student import t_quantile

_LEVEL = 0.95
_FEW = {1: "one repeat cannot tell", 2: "two repeats cannot tell"}


class Speed(NamedTuple):
    """The geometric mean of cells' speed-ups, with its interval."""

    value: float
    low: float
    high: float
    valid: bool
    """False when no cell was valid, so that the number is over cells that are not."""
    bounded: bool
    """False when a cell has too few pairs for an interval: then the ends say nothing."""
    claimed: tuple[float, float] | None = None
    """The interval that it is called faster or slower by, where that is another one."""
    repeats: int | None = None
    """The most that a cell has; None where nobody says."""

    @property
    def is_faster(self) -> bool:
        """Whether the interval, as it is shown, lies above 1, and the cells are valid; of fewer
        than three repeats, the wider one that these leave."""
        return self._excludes_1() and round((self.claimed or self[1:3])[0], 2) > 1

    @property
    def is_slower(self) -> bool:
        """Likewise below 1."""
        return self._excludes_1() and round((self.claimed or self[1:3])[1], 2) < 1

    def _excludes_1(self) -> bool:
        apart = round(self.low, 2) > 1 or round(self.high, 2) < 1
        return self.valid and self.bounded and apart

    @property
    def why_open(self) -> str:
        """Why it is called neither, where the interval that is shown would have it so; else
        empty."""
        if not self._excludes_1() or self.is_faster or self.is_slower:
            return ""
        few = _FEW.get(self.repeats or 0)
        return f"{few}; repeat it to tell" if few else ""

    @property
    def interval(self) -> str:
        """The interval as shown; empty without one."""
        return interval(self.low, self.high) if self.bounded else ""

    @property
    def times(self) -> str:
        """``1.10× [1.05, 1.15]``, without ends where there are none."""
        return f"{ratio(self.value)}× {self.interval}".rstrip()


class LoadSpan(NamedTuple):
    """The loads under which a variant's speed-up is the least and the greatest."""

    low_load: str
    low: Speed
    high_load: str
    high: Speed

    @property
    def ends(self) -> str:
        """``0.98 to 2.72×``."""
        return f"{ratio(self.low.value)} to {ratio(self.high.value)}×"

    @property
    def brief(self) -> str:
        """Each with its interval and load."""
        return f"{self.low.times} under {self.low_load} to {self.high.times} under {self.high_load}"

    def words(self, other: str) -> str:
        """Each with its interval and load, beside the `other`."""
        said = ""
        for own, load, of in (
            (self.low, self.low_load, f" {other}'s decode speed"),
            (self.high, self.high_load, ""),
        ):
            ends = f" {own.interval}" if own.bounded else ""
            said += f"{' to ' * bool(said)}{ratio(own.value)}×{of}{ends} under {load}"
        return said


class PassingOne(NamedTuple):
    """Where a speed-up passes 1 as the model grows."""

    size_bytes: float
    falls: bool | None
    """Whether it is below 1 for larger models; None where intervals do not tell, or are missing."""

    @property
    def above(self) -> str:
        """For which models: ``above about 0.25 GB``."""
        return f"above about {significant(self.size_bytes / 1e9, 2)} GB"

    @property
    def words(self) -> str:
        """What becomes of it."""
        if self.falls is None:
            return "whether it passes 1 cannot be told"
        return f"{'falls below' if self.falls else 'exceeds'} 1 {self.above}"


def speed(cells: Sequence[Cell], metric: str = "speedup", *, searched: int = 1) -> Speed | None:
    """The speed-up over a variant's cells where it is valid (over all when it is in none), None
    when undefined. `metric`: over the reference, or "speedup_native". `searched`: among how many a
    faster one is looked for, which share the 5% (Bonferroni).

    The interval of one cell is its own, that of several adds up what they share, repeats of one
    turn and requests of one workload, and lets the rest cancel (see
    `results.compare.intervals.several`).
    """
    taken, valid = _taken(cells, metric)
    if not taken:
        return None
    value = math.exp(sum(math.log(cell.value(metric) or 1.0) for cell in taken) / len(taken))
    ends = _ends(taken, metric)
    low, high = ends or (value, value)
    repeats = [cell.value(f"{metric}_repeats") for cell in taken]
    most = max((int(n) for n in repeats if n is not None), default=None)
    claimed = None
    if ends is not None:
        effects = [cell.effects[metric] for cell in taken if metric in cell.effects]
        # with cells without, nothing is known of what they share
        claimed = _claimed(effects if len(effects) == len(taken) else [], most, searched)
    return Speed(value, low, high, valid, ends is not None, claimed, most)


def speed_of(effects: Sequence[CellEffects]) -> Speed | None:
    """The geometric mean of ratios whose logarithms the effects are, as `speed` has it of cells;
    None without any."""
    found = pooled_ratio(effects)
    if found is None:
        return None
    most = max(len(one.shares) for one in effects)
    return Speed(*found, valid=True, bounded=True, claimed=_claimed(effects, most), repeats=most)


def over_loads(cells: Sequence[Cell], metric: str = "speedup") -> LoadSpan | None:
    """The loads with the least and the greatest speed-up, of the cells that `speed` pools, where
    the mean over loads is no summary of them: not all their intervals overlap, or one is slower
    and another faster and that is more than noise, as far as their intervals tell."""
    taken, _ = _taken(cells, metric)
    found = {
        load: own
        for load in dict.fromkeys(cell.load for cell in taken)
        if (own := speed([cell for cell in taken if cell.load == load], metric)) is not None
    }
    if len(found) < 2:
        return None
    low, high = (end(found, key=lambda load: found[load].value) for end in (min, max))
    crossed = round(found[low].value, 2) < 1 < round(found[high].value, 2)
    bounded = [own for own in found.values() if own.bounded]
    if len(bounded) == len(found) and all(own.low <= 1 <= own.high for own in bounded):
        crossed = False
    apart = bounded and max(own.low for own in bounded) > min(own.high for own in bounded)
    return LoadSpan(low, found[low], high, found[high]) if crossed or apart else None


def passing_one(means: Sequence[tuple[int, Speed]]) -> PassingOne | None:
    """Where a speed-up passes 1 for the last time: between two sizes at which it is shown to be
    faster and slower, with none between them at which either is shown. Without such two, where it
    may pass; None where it does not, or is shown to be on the same side before and behind. `means`:
    the smallest size first."""
    sides = [own.value > 1 for _, own in means]
    crossed = [at for at in range(1, len(means)) if sides[at] != sides[at - 1]]
    shown = [at for at, (_, own) in enumerate(means) if own.is_faster or own.is_slower]
    passed = [(a, b) for a, b in pairwise(shown) if sides[a] != sides[b]]
    if passed:
        before, behind = passed[-1]
        at = max(at for at in crossed if before < at <= behind)
        return PassingOne(_crossing(means[at - 1], means[at]), sides[before])
    loose = [at for at in crossed if not shown or at <= shown[0] or at > shown[-1]]
    return PassingOne(_crossing(*means[loose[-1] - 1 : loose[-1] + 1]), None) if loose else None


def _crossing(first: tuple[int, Speed], second: tuple[int, Speed]) -> float:
    """The size at which a straight line over the logarithms of both is 1."""
    (low, before), (high, behind) = first, second
    share = math.log(before.value) / math.log(before.value / behind.value)
    return low * math.pow(high / low, share)


def speed_words(
    found: Speed | None, loads: LoadSpan | None, other: str, why_no_speedup: str
) -> str:
    """Of `speed` and `over_loads`: how fast beside the `other`, as a clause."""
    if found is None:
        return f"no speed-up can be computed: {why_no_speedup}" if why_no_speedup else ""
    if not found.valid:
        return "no valid cell has a speed-up"
    if loads is not None:
        return "; ".join(filter(None, (loads.words(other), found.why_open)))
    if found.is_faster:
        return f"{ratio(found.value)}× {other}'s decode speed {found.interval}"
    if found.is_slower:
        return f"slower than {other}: {ratio(found.value)}× its decode speed {found.interval}"
    if found.why_open:
        return f"{found.times}: {found.why_open}"
    if not found.bounded:
        return "too few pairs of requests to say whether it is faster or slower"
    return f"no clear difference in speed: {ratio(found.value)}× {found.interval}"


def _taken(cells: Sequence[Cell], metric: str) -> tuple[list[Cell], bool]:
    """Those that have a valid speed-up, else all that have one; and whether they are the former."""
    used = [cell for cell in cells if cell.value(metric)]
    valid = [cell for cell in used if cell.holds(metric)]
    return valid or used, bool(valid)


def _ends(cells: Sequence[Cell], metric: str) -> tuple[float, float] | None:
    """None where a cell has too few pairs."""
    if any(cell.low(metric) is None for cell in cells):
        return None
    if len(cells) == 1:
        return cells[0].low(metric) or 0.0, cells[0].high(metric) or math.inf
    found = pooled_ratio([cell.effects[metric] for cell in cells])
    return None if found is None else found[1:]


def _claimed(
    effects: Sequence[CellEffects], repeats: int | None, searched: int = 1
) -> tuple[float, float] | None:
    """The interval that a claim needs; None where it is the one that is shown. One repeat does not
    tell what a machine does from one to the next. Of two, one difference does: they may be alike by
    luck, so that the degrees of freedom are its own, 1, and not those of all requests."""
    if repeats == 1:
        return 0.0, math.inf
    if repeats != 2 and searched == 1:
        return None
    found = over_cells(effects)
    if found is None:
        return None
    df = 1.0 if repeats == 2 else found.df
    half = t_quantile((1 - _LEVEL) / 2 / searched, df) * math.sqrt(found.variance)
    return math.exp(found.mean - half), math.exp(min(found.mean + half, 700.0))
