"""Numbers and curves of a profile as its file tells them, checked one by one.

Each raises `UserError`, which begins with `where`, for what is not there, not a number or out of
range.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from harness.core.errors import UserError, nearest

MOST_BATCH = 2**31
MOST = 1e12
ByInputs = Mapping[str, tuple[tuple[int, float], ...]]
"""By kind of device, ascending (inputs, value)."""


def told_kinds(told: Any, where: str, needed: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """A mapping of device kinds: of all that are needed and no other, or of any."""
    if not isinstance(told, Mapping) or not all(isinstance(kind, str) for kind in told):
        raise UserError(f"{where}: expected a mapping of device kinds")
    if needed is None:
        return told
    for kind in told:
        if kind not in needed:
            raise UserError(f"{where}: unknown device kind '{kind}'; {nearest(kind, needed)}")
    for kind in needed:
        if kind not in told:
            raise UserError(f"{where}: device kind '{kind}' is missing")
    return told


def told_number(told: Any, where: str) -> float:
    """A number of 0 to `MOST`."""
    number = isinstance(told, int | float) and not isinstance(told, bool)
    if not number or not 0 <= told <= MOST:
        raise UserError(f"{where}: expected a number of 0 to {MOST:g}, found {told!r}")
    return float(told)


def told_count(told: Any, where: str, least: int, most: int) -> int:
    """A whole number of `least` to `most`."""
    if not isinstance(told, int) or isinstance(told, bool) or not least <= told <= most:
        raise UserError(f"{where}: expected a whole number of {least} to {most}, found {told!r}")
    return told


def told_shares(told: Any, where: str, kinds: Mapping[str, Any], batch: int) -> ByInputs:
    """Ascending (inputs, share) of each kind; JSON's keys are texts. None gives none."""
    if told is None:
        return {}
    found = {}
    for kind, shares in told_kinds(told, where, kinds).items():
        place = f"{where} of '{kind}'"
        ascending = _by_inputs(shares, place, "shares of time")
        if ascending[-1] != (batch, 1.0):
            last = f"{ascending[-1][1]:g} at {ascending[-1][0]}"
            raise UserError(
                f"{place}: expected to end with 1 at the batch of {batch}, found {last}"
            )
        for (fewer, less), (more, share) in pairwise(ascending):
            if not 0 < less <= share:
                fall = f"{less:g} at {fewer} and {share:g} at {more}"
                raise UserError(f"{place}: more inputs never take less time, found {fall}")
        found[kind] = ascending
    return found


def told_times(told: Any, where: str, kinds: Mapping[str, Any], batch: int) -> ByInputs:
    """Ascending (inputs, milliseconds) of each kind, up to the batch. None gives none."""
    if told is None:
        return {}
    found = {}
    for kind, times in told_kinds(told, where, kinds).items():
        found[kind] = _by_inputs(times, f"{where} of '{kind}'", "milliseconds")
        if (last := found[kind][-1][0]) != batch:
            ends = f"expected to end at the batch of {batch}, found {last}"
            raise UserError(f"{where} of '{kind}': {ends}")
    return found


def _by_inputs(told: Any, place: str, what: str) -> tuple[tuple[int, float], ...]:
    """Ascending pairs of a mapping whose keys are numbers of inputs, as JSON's texts."""
    if not isinstance(told, Mapping) or not all(map(_inputs, told)):
        raise UserError(f"{place}: expected a mapping of numbers of inputs to {what}")
    ascending = tuple(sorted((int(n), told_number(v, f"{place} at {n}")) for n, v in told.items()))
    counts = [n for n, _ in ascending]
    if not counts or counts[0] < 1 or len(set(counts)) < len(counts):
        raise UserError(f"{place}: expected different numbers of inputs of 1 or more")
    return ascending


def _inputs(key: Any) -> bool:
    """Whether a key is a number of inputs; a longer one than any batch need not be read."""
    return str(key).isdecimal() and len(str(key)) <= len(str(MOST_BATCH))
