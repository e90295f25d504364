"""The answer in words: which backend is faster, whether its answers are the same, may it be
believed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from reports.cells import Cell
from reports.numbers import counted, percent, ratio
from reports.text import visible
from reports.variants import Variant
from reports.words.quality import NO_SCORES, AnswerQuality
from reports.words.ranking import label_rates
from reports.words.ranking.races import Race, common_scopes, races, sound_scopes, why_none
from reports.words.ranking.same import answer_words, compared, consistency, keeps_answers
from reports.words.speed import Speed, over_loads, speed, speed_words
from results.compare.reasons import REMARKS, weight


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
    found = races(cells, variants) if any(v.is_reference for v in variants) else []
    ranked = {rival.index: race for race in found for rival in race.rivals}
    shared = {
        race.name: common_scopes({v.index: by_variant[v.index] for v in race.rivals}, race.speedup)
        for race in found
    }
    sides = []
    for v in variants:
        race = ranked.get(v.index, None if found else UNNAMED)
        common = shared.get(race.name) if race else None
        sides.append(_Side(v, by_variant[v.index], race, common, cells))
    ends = [side.speed for side in sides if side.speed is not None and side.loads is None]
    span = (
        min([1.0, *(s.low for s in ends)]) / 1.05,
        max([1.0, *(s.high for s in ends)]) * 1.05,
    )
    return [
        replace(line, sentence=_with_quality(line.sentence, side, quality))
        for side in sides
        for line in [_verdict(side, span, why_no_speedup)]
    ]


EAGER = "; run eagerly: vLLM compiled (enforce_eager: false) may be faster"
UNNAMED = Race("the reference", ())


class _Side:
    """A variant beside what it is compared with; `race` is None of what others are compared with:
    the reference, and plain decoding on an engine whose ratio to the reference shrinks. `shared`:
    workloads and loads in which all that are ranked with it have sound speed-ups. `every`: the
    cells of all variants."""

    def __init__(
        self,
        variant: Variant,
        cells: Sequence[Cell],
        race: Race | None,
        shared: Collection[tuple[str, str, str]] | None = None,
        every: Sequence[Cell] = (),
    ) -> None:
        self.variant, self.cells, self.race, self.every = variant, cells, race, every
        # what is ranked together pools the same cells, also where each stands by itself
        pooled = [c for c in cells if c.place in (shared or ())]
        self.pooled = pooled if race and sound_scopes(pooled, race.speedup) else cells
        self.speed = None if race is None else speed(self.pooled, race.speedup)
        self.loads = None if race is None else over_loads(self.pooled, race.speedup)
        self.over_reference = None if variant.is_reference else speed(self.pooled)

    @property
    def shrinking(self) -> Speed | None:
        """The speed-up over the reference where it is not the one that is shown, and valid."""
        if self.race is not None and self.race.speedup == "speedup":
            return None
        found = self.over_reference
        return found if found is not None and found.valid else None


def _with_quality(sentence: str, side: _Side, quality: Mapping[int, AnswerQuality]) -> str:
    """And what other answers cost, where there are others."""
    found = (side.race or UNNAMED).judged(side.cells, quality.get(side.variant.index))
    share = consistency(side.cells)
    if found is None or share is None or share[0] == 1:
        return sentence
    return f"{sentence} Its answers are {found.words}.".strip()


def _verdict(side: _Side, span: tuple[float, float], why_no_speedup: str) -> VerdictLine:
    variant, cells, found = side.variant, side.cells, side.speed
    answers, tone, caption = _answers(side)
    trust, trust_tone, trust_caption = _trust(cells)
    ends, strip, speed_tone = "", None, ""
    if side.race is None:
        shown = "reference" if variant.is_reference else "plain decoding"
        others = "the others" if variant.is_reference else "all else on its engine"
        speed_caption = f"what {others} {'are' if variant.is_reference else 'is'} compared with"
        speed_caption += EAGER * any(cell.effective.get("enforce_eager") is True for cell in cells)
    elif found is None:
        shown, ends = label_rates.times(cells) or "–", label_rates.ends(cells)
        speed_tone = label_rates.tone(cells)
        speed_caption = label_rates.caption(cells) or why_no_speedup or _why_none(side)
    elif side.loads is not None:
        shown, speed_caption = side.loads.ends, _spread(side, found)
    else:
        shown, ends = f"{ratio(found.value)}×", found.interval
        strip = _strip(found, span)
        speed_caption = _spread(side, found)
    if found is not None:
        speed_tone = "struck" * (not found.valid)
    return VerdictLine(
        variant=variant,
        speed=shown,
        speed_tone=speed_tone,
        interval=ends,
        speed_caption=speed_caption,
        strip=strip,
        answers=answers,
        answers_tone=tone,
        answers_caption=caption,
        trust=trust,
        trust_tone=trust_tone,
        trust_caption=trust_caption,
        sentence=_sentence(side, why_no_speedup),
    )


def _strip(found: Speed, span: tuple[float, float]) -> Strip:
    width = math.log(span[1] / span[0])

    def place(value: float) -> float:
        return round(100 * math.log(value / span[0]) / width, 2)

    low, high = place(found.low), place(found.high)
    return Strip(place(1.0), low, round(high - low, 2), place(found.value))


def _spread(side: _Side, found: Speed) -> str:
    assert side.race is not None
    metric = side.race.speedup
    used = [c for c in side.pooled if c.value(metric) and c.holds(metric) == found.valid]
    every = sum(c.value(metric) is not None for c in side.cells)
    if len(used) == 1 and every == 1:
        text = f"{used[0].workload}, {used[0].load}"
    else:
        values = [c.value(metric) or 1.0 for c in used]
        ends = " to ".join(dict.fromkeys(map(ratio, (min(values), max(values)))))
        over = f"{every} cells" if len(used) == every else f"{len(used)} of {every} cells"
        text = f"{ends} over {over}"
        if side.loads is not None:
            text = f"least under {side.loads.low_load}, most under {side.loads.high_load}: "
            text += f"no mean over {over}"
        if found.valid and len(used) < every:
            text += ", elsewhere not all compared are sound"
    if metric != "speedup":
        text = f"{side.race.name}; {text}"
    return text if found.valid else f"{text}, none valid"


def _why_none(side: _Side) -> str:
    if not any(cell.is_measured for cell in side.cells):
        return "no trial finished"
    if not any(cell.stands_alone for cell in side.cells):
        return "no valid trial"
    own = (side.race or UNNAMED)._replace(rivals=[side.variant])
    return why_none(own, side.every, own.name)


def _answers(side: _Side) -> tuple[str, str, str]:
    variant, found = side.variant, consistency(side.cells)
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
        what = "labels" if label_rates.counted_in(side.cells) == "labels" else "token ids"
        return "same", "good", f"all {what} equal{beside}"
    if keeps_answers(side.cells):
        return "same up to noise", "good", f"{percent(share)}% same{beside}"
    many = len(compared(side.cells))
    over = f" on average over {many} cells" if many > 1 else ""
    text = f"{percent(share)}% the reference's{over}{beside}"
    if side.race is not None and side.race.speedup != "speedup" and side.race.keeps(side.cells):
        return f"{side.race.name}'s", "good", text
    return "differ", "warn", text


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
            return "not checked", "warn", f"{caption}; not all noise can be seen from here"
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
    weighty.sort(key=weight)  # of reasons that are as frequent the first is told
    return texts[max(weighty, key=lambda slug: counts[slug])] if counts else ""


def _sentence(side: _Side, why_no_speedup: str) -> str:
    cells, race = side.cells, side.race
    reason = first_reason(cells)
    if not any(cell.is_measured for cell in cells):
        return "Every trial failed; see Failed trials for the errors."
    if not any(cell.stands_alone for cell in cells):
        return f"Not valid, because {reason}."
    parts = []
    if race is not None:
        other = "the reference" if race.speedup == "speedup" else race.name
        faster = speed_words(side.speed, side.loads, other, why_no_speedup)
        parts += [faster or label_rates.clause(cells), race.answers(cells)]
    if over := side.shrinking:
        loads, ends = over_loads(side.pooled), f"decode speed {over.interval}"
        times = f"{ratio(over.value)}× the reference's {ends}".rstrip()
        times = times if loads is None else loads.words("the reference")
        parts.append(f"{times}, which changes as models grow")
        if answers := answer_words(cells):
            parts.append(f"beside the reference {answers}")
    if reason:
        parts.append(f"{_not_valid(cells)}, most often because {reason}")
    text = "; ".join(filter(None, parts))
    return text[:1].upper() + text[1:] + "." if text else ""


def _not_valid(cells: Sequence[Cell]) -> str:
    """How many cells are not valid, and in how many that is so of some trials alone."""
    doubted = [cell for cell in cells if not cell.valid]
    part = sum(cell.valid_trials + cell.partly_valid > 0 for cell in doubted)
    lost = len(doubted) - part
    words = [f"{counted(lost, 'cell is', 'cells are')} not valid"] * bool(lost)
    words += [f"{counted(part, 'cell has', 'cells have')} trials that are not valid"] * bool(part)
    return " and ".join(words)
