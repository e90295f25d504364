"""Which repeats of a cell are used, for each metric.

A repeat that something passing disturbed (the machine, a late client, the reference of that very
repeat) is left out where others are left. That is decided metric by metric: where the reference
alone was disturbed, a trial's own times stand, and only what compares speed does without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from harness.core.names import repeat_label, stands_in_for
from results.compare.reasons import LEFT_OUT, NOT_CHECKED, REMARKS, slug
from results.compare.validity import Reasons

SOUND_REPEATS = 2
"""With fewer sound repeats than this a cell with unsound ones is unsound: one is no repeat."""


class CellRepeats:
    """The trials of one cell, in step: what `show` says of each, and the verdict on it."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], verdicts: Sequence[Reasons]) -> None:
        self.rows, self.verdicts = rows, verdicts
        self._ended = [n for n, row in enumerate(rows) if row["status"] == "ok"]
        self._failed = [n for n, row in enumerate(rows) if row["status"] != "ok"]

    def used(self, metric: str) -> list[int]:
        """Places of the trials that ended well and whose value the cell uses."""
        sound = [n for n in self._ended if metric not in self.verdicts[n].passing]
        return sound if len(sound) >= SOUND_REPEATS else self._ended

    def is_void(self, metric: str) -> bool:
        """Whether a trial whose value is used, or one that failed, makes the metric void."""
        places = [*self.used(metric), *self._failed]
        return any(metric in self.verdicts[place].void for place in places)

    def left_out(self) -> list[int]:
        """Places of the trials that are not valid and may be done without."""
        lost = [n for n in self._ended if self.verdicts[n].is_passing]
        sound = [n for n in self._ended if self.verdicts[n].valid]
        return lost if len(sound) >= SOUND_REPEATS else []

    @property
    def valid(self) -> bool:
        """Whether every trial is but those that are left out."""
        without = set(self.left_out())
        return all(v.valid or n in without for n, v in enumerate(self.verdicts))

    def reasons(self) -> list[str]:
        """The reasons of the trials that are used, each once, and which are not used and why."""
        without = self.left_out()
        found = [
            reason
            for place, row in enumerate(self.rows)
            for reason in row["invalid_reasons"]
            if place not in without
        ]
        return [*dict.fromkeys(found), *self._told(without)]

    @property
    def noise_checked(self) -> bool:
        """Whether somebody could look at the machine that computed."""
        return not any(
            slug(reason) == NOT_CHECKED for row in self.rows for reason in row["invalid_reasons"]
        )

    def _told(self, without: Collection[int]) -> Iterator[str]:
        if not without:
            return
        used, every = len(self._ended) - len(without), len(self._ended)
        numbers = {row["repeat"] for row in self.rows}
        parts = []
        for place in without:
            row = self.rows[place]
            slugs = dict.fromkeys(slug(reason) for reason in row["invalid_reasons"])
            why = ", ".join(name for name in slugs if name not in REMARKS)
            again = any(stands_in_for(number) == row["repeat"] for number in numbers)
            parts.append(f"{repeat_label(row['repeat'])} ({why}{'; measured again' * again})")
        yield f"{LEFT_OUT}: {used} of {every} repeats used, without repeat {', '.join(parts)}"
