"""Which system keeps up with more, as far as the rates that were tried say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.cells import Overview
from reports.numbers import significant
from reports.sections import Section
from reports.sections.searched import SweptCurve
from reports.words.ranking.rates import by_decisions

SEARCHED_ONLY = "This run searched for the highest sustained rates and swept no loads."
SWEPT_ONLY = "This run took each system from idle to saturation."
BROKEN_OFF = (
    "A search or a sweep was broken off before it came to an end for any system; the same command "
    "goes on."
)


def probes_only(seen: Overview, made: Sequence[Section]) -> tuple[str, str]:
    """In the place of a verdict and of what it rests on, where nothing is compared in pairs: what
    the sections of the searches and sweeps come to."""
    told = [said for section in made for said in (section.words or [section.finding])]
    if not told:
        return BROKEN_OFF, ""
    kinds = [text for text, of in ((SEARCHED_ONLY, seen.searched), (SWEPT_ONLY, seen.swept)) if of]
    return " ".join(told), " ".join(kinds)


def kept_up_with(curves: Sequence[SweptCurve], *, named: bool = False) -> Iterator[str]:
    """One sentence about the systems of one workload, which is `named` first where there are
    several; none for a system alone. Replays are held against each other. One is said to keep up
    with more only where it kept up with a rate at which the other was saturated already."""
    if len(kinds := by_decisions(curves)) > 1:
        for some in kinds:
            yield from kept_up_with(some, named=named)
        return
    if len(curves) < 2:
        return
    where = f"{curves[0].place}: " if named else ""
    doubtful = [one.cell.variant.label for one in curves if one.not_valid]
    doubt = (
        f" Not to be relied on: trials of {', '.join(doubtful)} are not valid." if doubtful else ""
    )
    best = max(curves, key=lambda one: one.found.low or 0.0)
    low = best.found.low
    below = [
        one
        for one in curves
        if one is not best
        and low is not None
        and one.found.high is not None
        and one.found.high <= low
    ]
    if not below:
        yield f"{where}No system kept up with a rate at which another was saturated.{doubt}"
        return
    told = ", ".join(f"{one.cell.variant.label} ({_high(one)})" for one in below)
    name, rate = best.cell.variant.label, significant(low or 0.0)
    yield f"{where}{name} kept up with {rate}/s, no less than what saturated {told}.{doubt}"


def _high(one: SweptCurve) -> str:
    return f"at {significant(one.found.high or 0.0)}/s"
