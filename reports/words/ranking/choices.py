"""Which backend to run under each load, how sure that is, and what would be faster at a price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.core.names import REDRAWN
from reports.cells import Cell
from reports.collect import Samples
from reports.numbers import ratio
from reports.variants import Variant
from reports.words.doubts.filled import told_beside
from reports.words.quality import AnswerQuality
from reports.words.ranking.held_against import Duel, duels, held_against
from reports.words.ranking.races import Race, common_scopes, races
from reports.words.ranking.same import SAME_ANSWERS
from reports.words.speed import Speed, speed

UNJUDGED = "other answers that no score judges"
INCOMPARABLE = "answers that could not be compared"


@dataclass(frozen=True, slots=True)
class Choice:
    """What the numbers of one load say, in the words of a table."""

    race: str
    """What speeds are over."""
    load: str
    load_words: str
    chosen: Variant | None
    """None where plain decoding or the reference is as good as any."""
    name: str
    speed: str
    interval: str
    whole: tuple[str, str]
    """How much sooner whole answers are there, and its interval; empty where nobody can say."""
    first: tuple[str, str]
    """Likewise their first tokens."""
    answers: str
    rival: str
    """The next best one, and whether a difference is shown; and another, where none is."""
    price: str
    """What is faster still, and why it is not the choice."""
    rests_on: str


def choices(
    cells: Sequence[Cell],
    variants: Sequence[Variant],
    quality: Mapping[int, AnswerQuality],
    samples: Samples,
) -> list[Choice]:
    """A choice for each load, and for each engine where engines are not ranked; empty for runs
    without a comparison. Replays have none.

    A backend is chosen when it is shown to be faster than plain decoding (or the reference) and its
    answers are the same or as good, on cells that all ranked ones have sound. It is held against
    each other one of these, request by request.
    """
    real = [v for v in variants if not v.is_replay]
    cells = [cell for cell in cells if not cell.variant.is_replay]
    if not any(v.is_reference for v in real) or all(v.is_reference for v in real):
        return []
    loads = {cell.load: cell for cell in sorted(cells, key=lambda cell: cell.order)}
    found = []
    for race in races(cells, real):
        for load, first in loads.items():
            own = [cell for cell in cells if cell.load == load]
            if choice := _choice(race, own, first, quality, samples):
                found.append(choice)
    return found


def _choice(
    race: Race,
    cells: Sequence[Cell],
    first: Cell,
    quality: Mapping[int, AnswerQuality],
    samples: Samples,
) -> Choice | None:
    groups = {v.index: [c for c in cells if c.variant.index == v.index] for v in race.rivals}
    common = common_scopes(groups, race.speedup)
    entries = [
        _Entry(v, on, found, race.has_good_answers(on, quality.get(v.index)))
        for v in race.rivals
        if (on := [c for c in groups[v.index] if c.place in common])
        and (found := speed(on, race.speedup)) is not None
        and found.valid
    ]
    if not entries:
        return None
    good = sorted((e for e in entries if e.is_good), key=lambda e: -e.speed.value)
    chosen = next((e for e in good if e.speed.is_faster), None)
    every = {cell.workload for cell in cells}
    beyond = [
        e
        for e in entries
        if not e.is_good
        and e.speed.is_faster
        and e.speed.value > (chosen.speed.value if chosen else 1)
    ]
    return Choice(
        race=race.name,
        load=first.load,
        load_words=_load_words(first, cells, samples),
        chosen=chosen.variant if chosen else None,
        name=chosen.variant.label if chosen else race.name,
        speed=f"{ratio(chosen.speed.value)}× {race.name}" if chosen else "",
        interval=chosen.speed.interval if chosen else "",
        whole=_over(chosen, cells, race, samples, "e2e_s"),
        first=_over(chosen, cells, race, samples, "ttft_s"),
        answers=_answers(race, chosen, quality),
        rival=_rival(chosen, good, samples),
        price=_price(race, beyond, quality),
        rests_on=f"{len({workload for workload, *_ in common})} of {len(every)}",
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """A ranked variant under one load."""

    variant: Variant
    cells: Sequence[Cell]
    speed: Speed
    is_good: bool
    """Whether its answers are the same or as good."""


def load_words(cell: Cell) -> str:
    """What a load is like for those who ask."""
    if cell.load_kind != "closed":
        return "arrivals as they come"
    count = int(cell.load_value or 1)
    return "one request at a time" if count == 1 else f"{count} requests at a time"


def _load_words(first: Cell, cells: Sequence[Cell], samples: Samples) -> str:
    """And where it leaves all of them idle, that it does; of random arrivals, whose intervals."""
    told = told_beside([first.load], cells, samples).get(first.load, "")
    is_one = first.load_kind in ("poisson", "gamma") and not first.load.endswith(REDRAWN)
    drawn = "intervals are of this one draw" if is_one else ""
    return "; ".join(filter(None, (load_words(first), told, drawn)))


def _answers(race: Race, chosen: _Entry | None, quality: Mapping[int, AnswerQuality]) -> str:
    if chosen is None:
        return "unchanged"
    known = quality.get(chosen.variant.index)
    if race.keeps(chosen.cells) or known is None:
        found = race.answers(chosen.cells)
        return f"{found} as {race.name}" if found == SAME_ANSWERS else found
    return f"others, {known.words}"


def _rival(chosen: _Entry | None, good: Sequence[_Entry], samples: Samples) -> str:
    if chosen is None:
        if not good:
            return ""
        best = good[0]
        told = f"{ratio(best.speed.value)}× {best.speed.interval}"
        return f"{best.variant.label} {told}: {best.speed.why_open or 'not shown to be faster'}"
    others = [entry for entry in good if entry is not chosen]
    if not others:
        return ""
    found = duels(chosen.cells, [(one.variant, one.cells) for one in others], samples)
    lost = ", ".join(_lost(chosen.cells, others[0].cells, samples))
    but = "which is" if found[0].is_won else "but it is"
    first = _beside(found[0]) + f", {but} faster on {lost}" * bool(lost)
    # a lower mean with a wide interval may be the closer rival
    still = [_beside(duel) for duel in found[1:] if not duel.is_won]
    return "; ".join([first, *still[:1]])


def _beside(duel: Duel) -> str:
    """``1.10× [1.05, 1.15] other``, and that nothing is shown where that is so."""
    told = " ".join(filter(None, (duel.times, duel.other.label)))
    return told if duel.is_won else f"{told}: {duel.why_open}"


def _lost(ours: Sequence[Cell], theirs: Sequence[Cell], samples: Samples) -> list[str]:
    """The workloads on which the other is shown to be faster; none where there is but one."""
    by_workload = {cell.workload: [c for c in ours if c.workload == cell.workload] for cell in ours}
    if len(by_workload) < 2:
        return []
    found = {name: held_against(own, theirs, samples) for name, own in by_workload.items()}
    return [name for name, times in found.items() if times is not None and times.is_slower]


def _over(
    chosen: _Entry | None, cells: Sequence[Cell], race: Race, samples: Samples, metric: str
) -> tuple[str, str]:
    """Over what speeds are over, where the speed-up is valid; none where answers of other lengths
    would compare unequal work."""
    if chosen is None or not all(cell.holds("e2e_s_mean") for cell in chosen.cells):
        return "", ""
    found = held_against(chosen.cells, race.others(chosen.cells, cells), samples, metric)
    return (f"{ratio(found.value)}×", found.interval) if found else ("", "")


def _price(race: Race, beyond: Sequence[_Entry], quality: Mapping[int, AnswerQuality]) -> str:
    if not beyond:
        return ""
    most = max(beyond, key=lambda entry: entry.speed.value)
    known = race.judged(most.cells, quality.get(most.variant.index))
    is_known = any(cell.value("consistency_ratio") is not None for cell in most.cells)
    cost = known.short if known else UNJUDGED if is_known else INCOMPARABLE
    return f"{most.variant.label} {ratio(most.speed.value)}× {most.speed.interval}: {cost}"
