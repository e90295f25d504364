"""The answer in words: which backend is faster, whether its answers are the same, may it be
believed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from reports.cells import Cell
from reports.numbers import counted, percent, ratio
from reports.text import visible
from reports.variants import Variant
from reports.words.quality import NO_SCORES, AnswerQuality
from reports.words.speed import Speed, speed
from results.compare.reasons import REMARKS


class Strip(NamedTuple):
    """A speed-up on a small logarithmic axis, in percent of its width."""

    one: float
    low: float
    width: float
    value: float


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One line of the verdict: three short answers with captions, and a sentence."""

    variant: Variant
    speed: str
    speed_tone: str
    interval: str
    speed_caption: str
    strip: Strip | None
    answers: str
    answers_tone: str
    answers_caption: str
    trust: str
    trust_tone: str
    trust_caption: str
    sentence: str


def consistency(cells: Sequence[Cell]) -> tuple[float, float | None] | None:
    """Mean share of same answers and mean noise floor, over the cells where the share is valid (all
    when it is in none). None when undefined."""
    cells = [cell for cell in cells if cell.holds("consistency_ratio")] or cells
    shares = [s for cell in cells if (s := cell.value("consistency_ratio")) is not None]
    floors = [f for cell in cells if (f := cell.value("noise_floor")) is not None]
    if not shares:
        return None
    return sum(shares) / len(shares), sum(floors) / len(floors) if floors else None


def verdicts(
    cells: Sequence[Cell],
    variants: Sequence[Variant],
    why_no_speedup: str,
    quality: Mapping[int, AnswerQuality] = NO_SCORES,
) -> list[VerdictLine]:
    """One verdict per variant; `why_no_speedup` explains a missing reference. Beside real runs,
    variants whose decisions were replayed have none. `quality`: by variant, where it is known."""
    real = [v for v in variants if not v.is_replay]
    variants = real or variants
    by_variant = {v.index: [c for c in cells if c.variant.index == v.index] for v in variants}
    speeds = {index: speed(group) for index, group in by_variant.items()}
    ends = [s for s in speeds.values() if s is not None]
    span = (
        min([1.0, *(s.low for s in ends)]) / 1.05,
        max([1.0, *(s.high for s in ends)]) * 1.05,
    )
    return [
        replace(
            line,
            sentence=_with_quality(line.sentence, by_variant[line.variant.index], quality),
        )
        for v in variants
        for line in [_verdict(v, by_variant[v.index], speeds[v.index], span, why_no_speedup)]
    ]


def _with_quality(
    sentence: str, cells: Sequence[Cell], quality: Mapping[int, AnswerQuality]
) -> str:
    """And what other answers cost, where there are others."""
    found, share = quality.get(cells[0].variant.index) if cells else None, consistency(cells)
    if found is None or share is None or share[0] == 1:
        return sentence
    return f"{sentence} Its answers are {found.words}.".strip()


def _verdict(
    variant: Variant,
    cells: Sequence[Cell],
    found: Speed | None,
    span: tuple[float, float],
    why_no_speedup: str,
) -> VerdictLine:
    answers, tone, caption = _answers(variant, cells)
    trust, trust_tone, trust_caption = _trust(cells)
    if variant.is_reference:
        shown, ends, speed_caption, strip = (
            "reference",
            "",
            "what the others are compared with",
            None,
        )
    elif found is None:
        shown, ends, strip = "–", "", None
        speed_caption = why_no_speedup or _why_none(cells)
    else:
        shown, ends = f"{ratio(found.value)}×", found.interval
        strip = _strip(found, span)
        speed_caption = _spread(cells, found)
    return VerdictLine(
        variant=variant,
        speed=shown,
        speed_tone="struck" if found is not None and not found.valid else "",
        interval=ends,
        speed_caption=speed_caption,
        strip=strip,
        answers=answers,
        answers_tone=tone,
        answers_caption=caption,
        trust=trust,
        trust_tone=trust_tone,
        trust_caption=trust_caption,
        sentence=_sentence(variant, cells, found, why_no_speedup),
    )


def _strip(found: Speed, span: tuple[float, float]) -> Strip:
    width = math.log(span[1] / span[0])

    def place(value: float) -> float:
        return round(100 * math.log(value / span[0]) / width, 2)

    low, high = place(found.low), place(found.high)
    return Strip(place(1.0), low, round(high - low, 2), place(found.value))


def _spread(cells: Sequence[Cell], found: Speed) -> str:
    used = [c for c in cells if c.value("speedup") and c.holds("speedup") == found.valid]
    if len(used) == 1:
        text = f"{used[0].workload}, {used[0].load}"
    else:
        values = [c.value("speedup") or 1.0 for c in used]
        text = f"{ratio(min(values))} to {ratio(max(values))} over {len(used)} cells"
    return text if found.valid else f"{text}, none valid"


def _why_none(cells: Sequence[Cell]) -> str:
    if not any(cell.is_measured for cell in cells):
        return "no trial finished"
    if not any(cell.stands_alone for cell in cells):
        return "no valid trial"
    return "no pair of requests with the reference"


def _answers(variant: Variant, cells: Sequence[Cell]) -> tuple[str, str, str]:
    found = consistency(cells)
    if variant.is_replay:
        return "–", "muted", variant.provenance
    if found is None:
        return "–", "muted", "nothing to compare with"
    share, floor = found
    if variant.is_reference:
        tone = "good" if share == 1 else "warn"
        text = "repeatable" if share == 1 else "varies"
        return text, tone, f"{percent(share)}% same between its own repeats"
    beside = "" if floor is None else f", the reference with itself {percent(floor)}%"
    if share == 1:
        return "same", "good", f"all token ids equal{beside}"
    if floor is not None and share >= floor:
        return "same up to noise", "good", f"{percent(share)}% same{beside}"
    return "differ", "warn", f"{percent(share)}% same{beside}"


def _trust(cells: Sequence[Cell]) -> tuple[str, str, str]:
    trials, failed = sum(c.trials for c in cells), sum(c.failed for c in cells)
    valid = sum(c.valid_trials for c in cells)
    part = sum(c.partly_valid for c in cells)
    lost = f", {failed} failed" if failed else ""
    without = sum(c.left_out for c in cells)
    lost += f", {without} left out" * bool(without)
    caption = f"{valid} of {counted(trials, 'trial')}{lost}"
    if valid + without == trials:
        if not all(c.noise_checked for c in cells):
            return "not checked", "warn", f"{caption}; noise on the server cannot be seen"
        return "valid", "good", caption
    return ("partly valid", "warn", caption) if valid or part else ("not valid", "bad", caption)


def first_reason(cells: Sequence[Cell]) -> str:
    """The most frequent reason against the cells' validity, empty when there is none.

    What concerns single numbers is a remark on a trial that is valid without it.
    """
    counts: Counter[str] = Counter()
    texts: dict[str, str] = {}
    for cell in (cell for cell in cells if not cell.valid):
        for slug, (count, text) in cell.reasons.items():
            counts[slug] += count
            texts.setdefault(slug, visible(text.partition(":")[2].strip() or text))
    weighty = [slug for slug in counts if slug not in REMARKS] or list(counts)
    return texts[max(weighty, key=lambda slug: counts[slug])] if counts else ""


def _sentence(
    variant: Variant, cells: Sequence[Cell], found: Speed | None, why_no_speedup: str
) -> str:
    reason = first_reason(cells)
    if not any(cell.is_measured for cell in cells):
        return "Every trial failed; see Failed trials for the errors."
    if not any(cell.stands_alone for cell in cells):
        return f"Not valid, because {reason}."
    parts = (
        [] if variant.is_reference else [_speed_words(found, why_no_speedup), answer_words(cells)]
    )
    if reason:
        count = sum(not cell.valid for cell in cells)
        parts.append(
            f"{counted(count, 'cell is', 'cells are')} not valid, most often because {reason}"
        )
    if variant.is_replay:
        parts.append("a cost alone: decisions were replayed")
    text = "; ".join(filter(None, parts))
    return text[:1].upper() + text[1:] + "." if text else ""


def _speed_words(found: Speed | None, why_no_speedup: str) -> str:
    if found is None:
        return f"no speed-up can be computed: {why_no_speedup}" if why_no_speedup else ""
    if not found.valid:
        return "no valid cell has a speed-up"
    if found.is_faster:
        return f"{ratio(found.value)}× the reference's decode speed {found.interval}"
    if found.is_slower:
        return f"slower than the reference: {ratio(found.value)}× its decode speed {found.interval}"
    if not found.bounded:
        return "too few pairs of requests to say whether it is faster or slower"
    return f"no clear difference in speed: {ratio(found.value)}× {found.interval}"


def answer_words(cells: Sequence[Cell]) -> str:
    """Whether the answers are the reference's, as a noun phrase; empty when unknown."""
    found = consistency(cells)
    if found is None:
        return ""
    share, floor = found
    if share == 1:
        return "the same answers"
    if floor is not None and share >= floor:
        return "answers that differ no more than the reference's own from repeat to repeat"
    return f"different answers to {percent(1 - share)}% of the requests"
