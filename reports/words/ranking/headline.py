"""The page's first sentences: which backend wins, with which answers, and may it be believed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from reports.cells import Cell
from reports.collect import Samples
from reports.numbers import counted, ratio
from reports.variants import Variant
from reports.words.quality import NO_SCORES, AnswerQuality
from reports.words.ranking import label_rates
from reports.words.ranking.choices import load_words
from reports.words.ranking.held_against import duels
from reports.words.ranking.races import Race, common_scopes, races, sound_scopes, why_none
from reports.words.speed import Speed, over_loads, speed

BETWEEN_ENGINES = (
    "Engines are not ranked against each other: over half of a step of some of them lies above "
    "what reading and multiplying take here, and a ratio between two engines changes with that "
    "share."
)
FASTEST, FASTER = "was the fastest", "was faster"
HIGHEST = "had the highest speed-up"
_OF_THOSE = {FASTEST: "", HIGHEST: " of those", FASTER: " among those"}


def headline(
    cells: Sequence[Cell],
    variants: Sequence[Variant],
    why_no_speedup: str,
    quality: Mapping[int, AnswerQuality] = NO_SCORES,
    samples: Samples | None = None,
) -> str:
    """The page's first sentence: the winner, or why there is none, held against the next best. A
    faster one whose answers are worse, or cannot be judged, is named behind it. Runs whose
    decisions were replayed are ranked among themselves, and never beside real ones.

    `quality`: by variant, of those that have task scores. `samples`: the times of requests, without
    which nothing is held against the next best.
    """
    real = [v for v in variants if not v.is_replay]
    if len(real) in (0, len(variants)):
        return _ranking(cells, variants, why_no_speedup, quality, samples)
    names = ", ".join(v.label for v in variants if v.is_replay)
    apart = f"Not ranked, for their decisions were replayed: {names}."
    if not any(v.is_reference for v in real):
        return f"The reference was not run with its own decisions, so nothing is ranked. {apart}"
    own = [cell for cell in cells if not cell.variant.is_replay]
    ran = {cell.variant.is_replay for cell in cells if cell.is_measured}
    if ran == {True}:
        return f"Every trial with its own decisions failed. The errors are listed below. {apart}"
    if ran and all(v.is_reference for v in real):
        why = "Only the reference was run with its own decisions, and replays are compared with"
        return f"{why} replays alone. {apart}"
    return f"{_ranking(own, real, why_no_speedup, quality, samples)} {apart}"


def _ranking(
    cells: Sequence[Cell],
    variants: Sequence[Variant],
    why_no_speedup: str,
    quality: Mapping[int, AnswerQuality],
    samples: Samples | None,
) -> str:
    if not any(cell.is_measured for cell in cells):
        return "Every trial failed, so there is nothing to compare. The errors are listed below."
    if why_no_speedup:
        return f"Speed-ups over the reference cannot be computed: {why_no_speedup}."
    rivals = [v for v in variants if not v.is_reference]
    if not rivals:
        return "Only the reference was run, so there is nothing to compare it with."
    found = races(cells, variants)
    said = [_race(race, cells, quality, samples) for race in found]
    apart = found != [Race(found[0].name, rivals)] if found else True
    return "\n".join([*said, *[BETWEEN_ENGINES] * apart])


def _race(
    race: Race,
    cells: Sequence[Cell],
    quality: Mapping[int, AnswerQuality],
    samples: Samples | None,
) -> str:
    rivals, metric = race.rivals, race.speedup
    groups = {v.index: [c for c in cells if c.variant.index == v.index] for v in rivals}
    lost = [v.label for v in rivals if (s := speed(groups[v.index], metric)) and not s.valid]
    doubt = f" No speed-up of {', '.join(lost)} is valid." if lost else ""
    sound = {i for i, group in groups.items() if sound_scopes(group, metric)}
    common = common_scopes(groups, metric)
    if sound and not common:
        return _unranked([v.label for v in rivals if v.index in sound]) + doubt
    groups = {
        index: [c for c in group if c.place in common or index not in sound]
        for index, group in groups.items()
    }
    found = [(s, v) for v in rivals if (s := speed(groups[v.index], metric)) is not None]
    faster = [(s, v) for s, v in found if s.is_faster]
    over = _over(common, cells, len(sound), len(rivals))
    costs = {v.index: _cost(race, v, c, quality) for v in rivals if (c := groups[v.index])}
    if not found:
        none = f"No speed-up over {race.name} could be computed: {why_none(race, cells)}."
        return label_rates.finding([*chain(*groups.values())], race.name, costs) or none
    if not faster:
        return _nobody(race, found, groups, over, costs) + doubt
    kept = [(s, v) for s, v in faster if not costs[v.index]]
    best, winner = max(kept or faster, key=lambda pair: pair[0].value)
    beyond = [(s, v) for s, v in faster if s.value > best.value]
    may_beat = bool(kept) and any(costs[v.index] and s.high > best.low for s, v in faster)
    # who is not shown to be faster than the other may still be as fast as the winner
    others = [
        (s, v)
        for s, v in found
        if s.valid
        and v is not winner
        and (s.is_faster or best.low < s.high)
        and not (kept and costs[v.index])
    ]
    others.sort(key=lambda pair: -pair[0].value)
    won, ahead = _against(others, (best, winner), groups, samples)
    won = FASTER if sum(s.valid for s, _ in found) == 1 else won
    loads = over_loads(groups[winner.index], metric)
    text = (
        f"{winner.label} ({winner.provenance}) {won}{_among(won, winner) * may_beat}{over}: "
        f"{ratio(best.value)}× the decode speed of {race.name} {best.interval}"
        f"{f' ({loads.brief})' if loads else ''}{ahead}"
    )
    if not winner.is_replay:
        words = race.answers(groups[winner.index]) or "answers that could not be compared"
        text += f", with {words}"
    if not kept:
        known = race.judged(groups[winner.index], quality.get(winner.index))
        return f"{text}.{costs[winner.index] * bool(known or winner.is_replay)}{doubt}"
    if beyond:
        most, other = max(beyond, key=lambda pair: pair[0].value)
        named = f"{other.label} ({other.provenance}) reached {ratio(most.value)}× {most.interval}."
        return f"{text}. {named}{costs[other.index]}{doubt}"
    return f"{text}.{doubt}"


def _among(won: str, winner: Variant) -> str:
    """Of whom the winner is one, where a method that answers worse may be the fastest of all."""
    if winner.is_replay:
        return " of those that keep plain decoding's text by design"
    return f"{_OF_THOSE[won]} whose answers are as good"


def _nobody(
    race: Race,
    found: Sequence[tuple[Speed, Variant]],
    groups: Mapping[int, Sequence[Cell]],
    over: str,
    costs: Mapping[int, str],
) -> str:
    """That nobody is shown to be faster, or that nothing is shown: with the best one's speed-up,
    and who is faster under some load all the same. `costs`: by variant what it does to answers,
    empty where they are as good: one of these is the best where there is any."""
    sound = [(s, v) for s, v in found if s.valid]
    if not sound:
        return f"Who is faster than {race.name} cannot be said."
    best, first = max(sound, key=lambda pair: (not costs[pair[1].index], pair[0].value))
    loads = over_loads(groups[first.index], race.speedup)
    told = f"{best.times}{f' ({loads.brief})' if loads else ''}"
    told += f"{f': {best.why_open}' if best.why_open else ''}.{costs[first.index]}"
    are_slower = all(s.is_slower for s, _ in sound)
    if len(sound) == 1:
        but = ", but slower" * are_slower
        text = f"{first.label} was not clearly faster than {race.name}{over}{but}: {told}"
    else:
        which = "all" if len(sound) == len(race.rivals) else f"all {len(sound)} that are valid"
        but = f", and {which} were slower" * are_slower
        only = " whose answers are as good" * any(s.value > best.value for s, _ in sound)
        text = (
            f"No backend was clearly faster than {race.name}{over}{but}; the best{only} was "
            f"{first.label} ({first.provenance}): {told}"
        )
    for _, variant in sound:
        if variant is first and loads is not None and loads.high.is_faster:
            continue
        if ahead := _under_a_load(groups[variant.index], race.speedup, len(sound)):
            text += f" {variant.label} was faster under {ahead}."
            text += costs[variant.index] * (variant is not first)
    return text


def _under_a_load(cells: Sequence[Cell], metric: str, variants: int) -> str:
    """The load under which a variant is faster, of several the one under which most; empty where
    there is none. `variants`: how many are looked through, which share the 5% with the loads."""
    loads = dict.fromkeys(cell.load for cell in cells)
    by_load = {load: [c for c in cells if c.load == load] for load in loads}
    searched = variants * len(by_load)
    found = [
        (own, load)
        for load, under in by_load.items()
        if (own := speed(under, metric, searched=searched)) and own.is_faster
    ]
    most, load = max(found, key=lambda pair: pair[0].value, default=(None, ""))
    return f"{load}: {most.times}" if most else ""


def _against(
    others: Sequence[tuple[Speed, Variant]],
    best: tuple[Speed, Variant],
    groups: Mapping[int, Sequence[Cell]],
    samples: Samples | None,
) -> tuple[str, str]:
    """What the winner was, and by how much beside the next best, or beside whom nothing is shown;
    `others`: the highest speed-up first."""
    if not others or samples is None:
        return FASTEST, ""
    rivals = [(v, groups[v.index]) for _, v in others]
    found = duels(groups[best[1].index], rivals, samples)
    if all(duel.is_won for duel in found):
        return FASTEST, f" and {found[0].times} that of {found[0].other.label}, the next best"
    still = next(duel for duel in found if not duel.is_won)
    told = ": ".join(filter(None, (still.times, still.why_open)))
    won = HIGHEST if others[0][0].value <= best[0].value else FASTER
    return won, f" (over {still.other.label} {told})"


def _cost(
    race: Race, variant: Variant, cells: Sequence[Cell], quality: Mapping[int, AnswerQuality]
) -> str:
    """What a variant does to the answers, behind a blank; empty where they are as good."""
    known = quality.get(variant.index)
    if race.has_good_answers(cells, known):
        return ""
    if judged := race.judged(cells, known):
        return f" Its answers are {judged.short}."
    if variant.is_replay:
        return " It gives other answers, and a replay does not say how good they are."
    words = race.answers(cells)
    if not words:
        return " Its answers could not be compared."
    return f" It came with {words}, and no task score says what that costs."


def _unranked(names: Sequence[str]) -> str:
    told = f"No workload and load has a valid speed-up of each of {', '.join(names)}"
    return f"{told}, so none of them is called the fastest."


def _over(
    common: Collection[tuple[str, str, str]], cells: Sequence[Cell], sound: int, rivals: int
) -> str:
    """What the ranking is over: backends are compared only where each of them has a sound number.
    Nothing where that is one cell, which stands below. `sound`: of so many rivals, those that have
    a valid speed-up anywhere."""
    every = {cell.place for cell in cells}
    if not common or len(every) < 2:
        return ""
    workloads, loads = ({place[at] for place in every} for at in (0, 1))
    under = {place[1] for place in common}
    first = next(cell for cell in cells if cell.place in common)
    named = f" under {first.load} ({load_words(first)})" if len(under) == 1 else ""
    if len(common) == len(every):
        what = "workloads" if len(loads) == 1 else "pairs of workload and load"
        count = "both" if len(every) == 2 else f"all {len(every)}"
        return f" on average over {count} {what}{named}"
    if len(common) == 1 and len(workloads) > 1:
        named = f" on {first.workload}{named}"
    if sound == 1:
        who = "its speed-up is valid"
    elif sound == rivals:
        who = "every ranked backend has a valid speed-up"
    else:
        count = "both" if sound == 2 else f"all {sound}"
        who = f"{count} backends with a valid speed-up have one"
    pairs = f"{len(common)} of {len(every)} pairs of workload and load"
    return f"{named}{',' * bool(named)} where {who} ({pairs})"


def trust_line(cells: Sequence[Cell]) -> str:
    """May the numbers be believed: one sentence over all trials."""
    total, valid = sum(cell.trials for cell in cells), sum(cell.valid_trials for cell in cells)
    failed = sum(cell.failed for cell in cells)
    unseen = sum(cell.trials for cell in cells if not cell.noise_checked)
    seen = f" Noise was not checked in {unseen} of them." if unseen else ""
    if valid == total:
        return f"All {counted(total, 'trial')} are valid.{seen}"
    part, without = (sum(getattr(c, n) for c in cells) for n in ("partly_valid", "left_out"))
    doubtful = total - valid - failed - part - without
    lost = [f"{failed} failed"] * bool(failed)
    lost += [f"{without} disturbed and not used (other repeats are enough)"] * bool(without)
    lost += [f"{doubtful} must not be believed (struck through below)"] * bool(doubtful)
    lost += [f"{part} valid except for comparisons (struck through below)"] * bool(part)
    return f"{valid} of {counted(total, 'trial')} are valid; {', '.join(lost)}.{seen}"
