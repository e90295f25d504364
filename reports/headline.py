"""The page's first sentences: which backend wins, with which answers, and may it be believed."""

from __future__ import annotations

from collections.abc import Sequence

from reports.cells import Cell
from reports.numbers import counted, ratio
from reports.variants import Variant
from reports.verdict import answer_words, consistency, speed


def headline(cells: Sequence[Cell], variants: Sequence[Variant], why_no_speedup: str) -> str:
    """The page's first sentence: the winner, or why there is none."""
    if not any(cell.is_measured for cell in cells):
        return "Every trial failed, so there is nothing to compare. The errors are listed below."
    if why_no_speedup:
        return f"Speed-ups cannot be computed: {why_no_speedup}."
    rivals = [v for v in variants if not v.is_reference]
    if not rivals:
        return "Only the reference was run, so there is nothing to compare it with."
    groups = {v.index: [c for c in cells if c.variant.index == v.index] for v in rivals}
    faster = [(s, v) for v in rivals if (s := speed(groups[v.index])) is not None and s.is_faster]
    name = next((v.label for v in variants if v.is_reference), "the reference")
    if not faster:
        lost = [v.label for v in rivals if (s := speed(groups[v.index])) and not s.valid]
        doubt = f" The trials of {', '.join(lost)} are not valid." if lost else ""
        return f"No backend was clearly faster than {name}.{doubt}"
    found, winner = max(faster, key=lambda pair: pair[0].value)
    text = (
        f"{winner.label} ({winner.provenance}) was the fastest: {ratio(found.value)}× the decode "
        f"speed of {name} {found.interval}, {_answers(groups[winner.index])}."
    )
    same = [(s, v) for s, v in faster if _keeps_answers(groups[v.index])]
    if same and not _keeps_answers(groups[winner.index]):
        best, keeper = max(same, key=lambda pair: pair[0].value)
        text += (
            f" The fastest whose answers differ no more than the reference's own: {keeper.label} "
            f"({keeper.provenance}), {ratio(best.value)}× {best.interval}."
        )
    return text


def trust_line(cells: Sequence[Cell]) -> str:
    """May the numbers be believed: one sentence over all trials."""
    total, valid = sum(cell.trials for cell in cells), sum(cell.valid_trials for cell in cells)
    failed = sum(cell.failed for cell in cells)
    if valid == total:
        return f"All {counted(total, 'trial')} are valid."
    doubtful = total - valid - failed
    lost = [f"{failed} failed"] * bool(failed)
    lost += [f"{doubtful} must not be believed (struck through below)"] * bool(doubtful)
    return f"{valid} of {counted(total, 'trial')} are valid; {', '.join(lost)}."


def _answers(cells: Sequence[Cell]) -> str:
    words = answer_words(cells)
    return f"with {words}" if words else "with answers that could not be compared"


def _keeps_answers(cells: Sequence[Cell]) -> bool:
    found = consistency(cells)
    return found is not None and (found[0] == 1 or (found[1] is not None and found[0] >= found[1]))
