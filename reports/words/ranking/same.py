"""Whether answers are those of the reference, or of plain decoding on the same engine."""

from __future__ import annotations

from collections.abc import Sequence

from reports.cells import Cell
from reports.numbers import percent, significant
from results.compare.lossless.verdicts import BackendText

SAME_ANSWERS = "the same answers"
TO_REFERENCE = "consistency_ratio"


def consistency(
    cells: Sequence[Cell], metric: str = TO_REFERENCE
) -> tuple[float, float | None] | None:
    """Mean share of same answers and mean noise floor over the `compared` cells; no floor where one
    of them has none. None when undefined."""
    told = compared(cells, metric)
    if not told:
        return None
    floors = [f for cell in told if (f := cell.value("noise_floor")) is not None]
    share = sum(cell.value(metric) or 0.0 for cell in told) / len(told)
    is_known = metric == TO_REFERENCE and len(floors) == len(told)
    return share, sum(floors) / len(floors) if is_known else None


def compared(cells: Sequence[Cell], metric: str = TO_REFERENCE) -> list[Cell]:
    """Those whose share of same answers is known and valid; where none is valid, those known."""
    cells = [cell for cell in cells if cell.holds(metric)] or cells
    return [cell for cell in cells if cell.value(metric) is not None]


def keeps_answers(cells: Sequence[Cell], metric: str = TO_REFERENCE) -> bool:
    """Whether the answers are the other's up to what it differs from itself: by the verdict on the
    backend's text, which tests that prompt by prompt, and not where that cannot tell. Without a
    verdict, by the shares alone."""
    found = consistency(cells, metric)
    if found is None or found[0] == 1:
        return found is not None
    if (text := _judged(cells, metric)) is not None:
        return text.verdict == "within noise"
    share, floor = found
    return floor is not None and share >= floor


def answer_words(
    cells: Sequence[Cell], metric: str = TO_REFERENCE, other: str = "the reference"
) -> str:
    """Whether the answers are the other's, as a noun phrase; empty when unknown."""
    found = consistency(cells, metric)
    if found is None:
        return ""
    share, _ = found
    if share == 1:
        return SAME_ANSWERS
    if not keeps_answers(cells, metric):
        mean = " on average" if len(compared(cells, metric)) > 1 else ""
        return f"different answers to {percent(1 - share)}% of the requests{mean}"
    text = _judged(cells, metric)
    if text is None:
        return f"answers that differ no more than {other}'s own from repeat to repeat"
    if text.p_value is not None:
        p_value = significant(text.p_value, 2)
        return f"other draws, of a distribution that is not told from {other}'s (p = {p_value})"
    return f"other answers, {text.why.replace('the reference', other)}"


def _judged(cells: Sequence[Cell], metric: str) -> BackendText | None:
    """The verdict on the text of these cells of one backend, where its answers differ."""
    text = cells[0].texts.get(metric)
    return None if text is None or text.verdict == "lossless" else text
