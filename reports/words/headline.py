"""The page's first sentences: which backend wins, with which answers, and may it be believed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reports.cells import Cell
from reports.numbers import counted, ratio
from reports.variants import Variant
from reports.words.verdict import answer_words, consistency, speed

COST_ALONE = "Decisions were replayed: this compares what they cost, and says nothing of answers."


def headline(cells: Sequence[Cell], variants: Sequence[Variant], why_no_speedup: str) -> str:
    """The page's first sentence: the winner, or why there is none. Runs whose decisions were
    replayed are ranked among themselves, and never beside real ones."""
    real = [v for v in variants if not v.is_replay]
    if not real:
        return f"{_ranking(cells, variants, why_no_speedup)} {COST_ALONE}"
    if len(real) == len(variants):
        return _ranking(cells, variants, why_no_speedup)
    names = ", ".join(v.label for v in variants if v.is_replay)
    apart = f"Not ranked, for their decisions were replayed: {names}."
    if not any(v.is_reference for v in real):
        return f"The reference was not run with its own decisions, so nothing is ranked. {apart}"
    own = [cell for cell in cells if not cell.variant.is_replay]
    return f"{_ranking(own, real, why_no_speedup)} {apart}"


def _ranking(cells: Sequence[Cell], variants: Sequence[Variant], why_no_speedup: str) -> str:
    if not any(cell.is_measured for cell in cells):
        return "Every trial failed, so there is nothing to compare. The errors are listed below."
    if why_no_speedup:
        return f"Speed-ups cannot be computed: {why_no_speedup}."
    rivals = [v for v in variants if not v.is_reference]
    if not rivals:
        return "Only the reference was run, so there is nothing to compare it with."
    groups = {v.index: [c for c in cells if c.variant.index == v.index] for v in rivals}
    lost = [v.label for v in rivals if (s := speed(groups[v.index])) and not s.valid]
    doubt = f" No speed-up of {', '.join(lost)} is valid." if lost else ""
    sound = {index: scopes for index, group in groups.items() if (scopes := _sound(group))}
    common = set.intersection(*sound.values()) if sound else set()
    if sound and not common:
        return _unranked([v.label for v in rivals if v.index in sound]) + doubt
    groups = {
        index: [c for c in group if (c.workload, c.load) in common or index not in sound]
        for index, group in groups.items()
    }
    faster = [(s, v) for v in rivals if (s := speed(groups[v.index])) is not None and s.is_faster]
    name = next((v.label for v in variants if v.is_reference), "the reference")
    over = _over(common, {(c.workload, c.load) for c in cells})
    if not faster:
        return f"No backend was clearly faster than {name}{over}.{doubt}"
    found, winner = max(faster, key=lambda pair: pair[0].value)
    text = (
        f"{winner.label} ({winner.provenance}) was the fastest{over}: {ratio(found.value)}× the "
        f"decode speed of {name} {found.interval}{_answers(groups[winner.index])}."
    )
    same = [(s, v) for s, v in faster if _keeps_answers(groups[v.index])]
    if same and not _keeps_answers(groups[winner.index]):
        best, keeper = max(same, key=lambda pair: pair[0].value)
        text += (
            f" The fastest whose answers differ no more than the reference's own: {keeper.label} "
            f"({keeper.provenance}), {ratio(best.value)}× {best.interval}."
        )
    return text + doubt


def _unranked(names: Sequence[str]) -> str:
    return (
        f"No workload and load has a valid speed-up of each of {', '.join(names)}, so none of them "
        "is called the fastest."
    )


def _sound(cells: Sequence[Cell]) -> set[tuple[str, str]]:
    """Workloads and loads in which a variant's speed-up is valid."""
    return {(c.workload, c.load) for c in cells if c.value("speedup") and c.holds("speedup")}


def _over(common: Collection[object], every: Collection[object]) -> str:
    """What the ranking is over, where that is less than everything: backends are compared only
    where each of them has a sound number."""
    if not common or len(common) == len(every):
        return ""
    pairs = f"{len(common)} of {len(every)} pairs of workload and load"
    return f" where every ranked backend has a valid speed-up ({pairs})"


def trust_line(cells: Sequence[Cell]) -> str:
    """May the numbers be believed: one sentence over all trials."""
    total, valid = sum(cell.trials for cell in cells), sum(cell.valid_trials for cell in cells)
    failed = sum(cell.failed for cell in cells)
    if valid == total:
        return f"All {counted(total, 'trial')} are valid."
    part = sum(cell.partly_valid for cell in cells)
    doubtful = total - valid - failed - part
    lost = [f"{failed} failed"] * bool(failed)
    lost += [f"{doubtful} must not be believed (struck through below)"] * bool(doubtful)
    lost += [f"{part} valid except for comparisons (struck through below)"] * bool(part)
    return f"{valid} of {counted(total, 'trial')} are valid; {', '.join(lost)}."


def _answers(cells: Sequence[Cell]) -> str:
    if any(cell.variant.is_replay for cell in cells):
        return ""
    words = answer_words(cells)
    return f", with {words}" if words else ", with answers that could not be compared"


def _keeps_answers(cells: Sequence[Cell]) -> bool:
    found = consistency(cells)
    return found is not None and (found[0] == 1 or (found[1] is not None and found[0] >= found[1]))
