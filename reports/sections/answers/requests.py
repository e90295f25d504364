"""Every distinct answer to a request, who gave it, and where it leaves the reference's answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from harness.core.nouns import UNKNOWN_TOKEN
from reports.numbers import counted, significant
from reports.sections.answers.forks import Pieces, side_by_side
from reports.tables import QUALITY
from reports.text import clipped, common_prefix, visible
from reports.variants import Variant
from results.metrics.arrays import RequestArrays

SHOWN = 40
"""Requests per workload that go into the page."""
STATIC = 3
"""Of these, how many are written as HTML, so that they show without JavaScript."""
_PROMPT_LIMIT = 6000
_ANSWER_LIMIT = 4000
_DISTINCT_LIMIT = 8
Margins = Mapping[tuple[str, int], float]
"""(request id, index of a token) -> the reference's top-2 logit margin there."""


@dataclass(slots=True)
class Given:
    """One distinct answer to one request, and how many trials of each variant gave it."""

    tokens: np.ndarray
    has_ids: bool
    """Whether every token's id is known; if not, and for labels, the text tells answers apart."""
    text: str | None
    finished: str | None
    error: str | None
    scores: dict[str, float]
    trials: Counter[int] = field(default_factory=Counter)

    @property
    def is_whole(self) -> bool:
        """Whether the request ended with it, and neither failed nor was cut off."""
        return self.finished in ("stop", "length")

    def equals(self, other: Given) -> bool:
        """Whether both are the same answer."""
        if self.has_ids and other.has_ids:
            return np.array_equal(self.tokens, other.tokens)
        return self.text == other.text

    def first_difference(self, other: Given) -> int | None:
        """Index of the first differing token; None where ids are unknown."""
        if not (self.has_ids and other.has_ids):
            return None
        length = min(len(self.tokens), len(other.tokens))
        unequal = np.flatnonzero(self.tokens[:length] != other.tokens[:length])
        return int(unequal[0]) if len(unequal) else length


class Answers:
    """The distinct answers to the requests of one workload, gathered trial by trial."""

    def __init__(self) -> None:
        self.given: dict[str, dict[bytes, Given]] = {}

    @property
    def without(self) -> int:
        """Requests that nobody answered."""
        return sum(not any(one.is_whole for one in own.values()) for own in self.given.values())

    def add(self, variant: Variant, requests: RequestArrays) -> None:
        """Count the answers of one trial; texts are kept for answers not seen before."""
        labels, errors = requests.labels, requests.errors.to_pylist()
        texts = requests.texts.to_pylist() if labels is None else list(labels)
        start, ids = requests.token_start, requests.token_ids
        for row, request_id in enumerate(requests.ids):
            tokens, finished = ids[start[row] : start[row + 1]], requests.finished[row]
            content = tokens.tobytes() + (finished or "").encode()
            is_label = labels is not None and texts[row] is not None
            has_ids = not (is_label or (tokens == UNKNOWN_TOKEN).any())
            if not has_ids:
                content += (texts[row] or "").encode()
            answers = self.given.setdefault(request_id, {})
            one = answers.get(content)
            if one is None:
                scores = {n: float(v[row]) for n, v in requests.scores.items() if v[row] == v[row]}
                one = Given(tokens.copy(), has_ids, texts[row], finished, errors[row], scores)
                answers[content] = one
            one.trials[variant.index] += 1


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """An answer as shown: `same` is shared with the reference's, `rest` None when all is."""

    by: tuple[tuple[int, str], ...]
    facts: str
    divergence: str
    same: str
    rest: str | None
    tokens: str = ""
    """The ids about the fork, the reference's above this answer's, in columns."""

    @property
    def text(self) -> str:
        """The whole answer as shown."""
        return self.same + (self.rest or "")

    @property
    def split(self) -> int | None:
        """Where `rest` begins, in UTF-16 units as JavaScript counts them."""
        return None if self.rest is None else len(self.same.encode("utf-16-le")) // 2

    def to_json(self) -> dict[str, Any]:
        """What the page's script needs to show it."""
        return {
            "by": self.by,
            "facts": self.facts,
            "divergence": self.divergence,
            "tokens": self.tokens,
            "text": self.text,
            "split": self.split,
        }


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """One request as shown: prompt, the data set's own answer, and every distinct answer."""

    id: str
    verdict: str
    differs: bool
    prompt_title: str
    prompt: str
    gold: str | None
    answers: tuple[ShownAnswer, ...]

    def to_json(self) -> dict[str, Any]:
        """What the page's script needs to show it."""
        fields = ("id", "verdict", "differs", "prompt_title", "prompt", "gold")
        values = {name: getattr(self, name) for name in fields}
        return {**values, "answers": [answer.to_json() for answer in self.answers]}


def items(
    answers: Answers,
    prompts: Mapping[str, Mapping[str, Any]],
    variants: Sequence[Variant],
    margins: Margins = MappingProxyType({}),
    piece: Pieces | None = None,
) -> tuple[list[ShownRequest], int, int]:
    """The requests of one workload to show, how many there are and how many have differing answers.

    `prompts` has the stored prompt rows by request id. At most `SHOWN` items come back, in the
    order of the requests: those with differing answers fill up to half of them, then the first of
    all.
    """
    given = answers.given
    differing = [i for i, found in given.items() if _others(list(found.values()), variants)]
    chosen = set(differing[: SHOWN // 2])
    chosen.update([i for i in given if i not in chosen][: SHOWN - len(chosen)])
    picked = (
        (i, list(own.values()), prompts.get(i, {})) for i, own in given.items() if i in chosen
    )
    shown = [_item(*one, variants, margins, piece) for one in picked]
    return shown, len(given), len(differing)


def _others(answers: Sequence[Given], variants: Sequence[Variant]) -> list[Given]:
    """Those that differ from the base; what is no answer does not."""
    base = _base(answers, variants)
    return [one for one in answers if one.is_whole and not one.equals(base)]


def _base(answers: Sequence[Given], variants: Sequence[Variant]) -> Given:
    """The answer that the others are compared with: the reference's most frequent one, else the
    first. What is no answer is that only where there is nothing else."""
    answers = [one for one in answers if one.is_whole] or answers
    reference = [v.index for v in variants if v.is_reference]
    if not reference:
        return answers[0]
    return max(answers, key=lambda one: one.trials[reference[0]])


def _item(
    request_id: str,
    answers: list[Given],
    prompt: Mapping[str, Any],
    variants: Sequence[Variant],
    margins: Margins,
    piece: Pieces | None,
) -> ShownRequest:
    base = _base(answers, variants)
    others = _others(answers, variants)
    whose = "reference" if any(variants[i].is_reference for i in base.trials) else "first"
    answers.sort(key=lambda one: (one is not base, not one.is_whole, min(one.trials)))
    totals: Counter[int] = sum((one.trials for one in answers), Counter())
    own = {token: margin for (name, token), margin in margins.items() if name == request_id}
    shown = tuple(
        _answer(one, base, whose, totals, own, piece) for one in answers[:_DISTINCT_LIMIT]
    )
    said = _verdict(answers, base, others, variants), _lost(answers)
    tokens = prompt.get("prompt_tokens")
    gold = prompt.get("answer")
    return ShownRequest(
        id=visible(request_id),
        verdict="; ".join(filter(None, said)),
        differs=bool(others),
        prompt_title="Prompt" + (f", {tokens:,} tokens" if tokens else ""),
        prompt=visible(clipped(prompt.get("prompt_text") or "⟨not stored⟩", _PROMPT_LIMIT)),
        gold=None if gold is None else visible(clipped(str(gold), _ANSWER_LIMIT)),
        answers=shown,
    )


def _verdict(
    answers: Sequence[Given], base: Given, others: Sequence[Given], variants: Sequence[Variant]
) -> str:
    """Whether answers are the same; empty where there is none."""
    if not base.is_whole:
        return ""
    if not others and not all(one.is_whole for one in answers):
        return "same answer wherever there is one"
    if not others:
        count = len({index for one in answers for index in one.trials})
        return "same answer from all" if count > 1 else "same answer in every trial"
    names = dict.fromkeys(variants[i].label for one in others for i in sorted(one.trials))
    places = [place for one in others if (place := base.first_difference(one)) is not None]
    where = f" from token {min(places)}" if places else ""
    shown = list(names)[:3] + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return f"differs{where}: {', '.join(shown)}"


def _lost(answers: Sequence[Given]) -> str:
    """``failed in 2 trials, unfinished in 1 trial``: how often there was no answer."""
    counts: Counter[str] = Counter()
    for one in answers:
        if not one.is_whole:
            counts["failed" if one.finished == "error" else "unfinished"] += one.trials.total()
    return ", ".join(f"{word} in {counted(n, 'trial')}" for word, n in counts.items())


def _answer(
    one: Given,
    base: Given,
    whose: str,
    totals: Counter[int],
    margins: Mapping[int, float],
    piece: Pieces | None,
) -> ShownAnswer:
    text, base_text = _text(one), _text(base)
    by = tuple((i, _share(one.trials[i], totals[i])) for i in sorted(one.trials))
    if not one.is_whole or one.equals(base):
        return ShownAnswer(by, _facts(one), "", visible(clipped(text, _ANSWER_LIMIT)), None)
    index = base.first_difference(one)
    place = f"Differs from the {whose}'s answer"
    place += "" if index is None else f" from token {index}"
    tokens = "" if index is None else side_by_side(base.tokens, one.tokens, index, piece, whose)
    if index is not None and index in margins:
        place += f", where the reference's best token was {significant(margins[index])} ahead"
    if text == base_text:
        same = visible(clipped(text, _ANSWER_LIMIT))
        return ShownAnswer(by, _facts(one), place + "; the text is the same.", same, None, tokens)
    split = common_prefix(base_text, text)
    same, rest = _shortened(text[:split]), clipped(text[split:], _ANSWER_LIMIT)
    divergence = f"{place} (character {split}); marked below."
    return ShownAnswer(by, _facts(one), divergence, visible(same), visible(rest), tokens)


def _shortened(same: str) -> str:
    if len(same) <= _ANSWER_LIMIT:
        return same
    return f"{same[:1000]}… [{len(same) - 2000:,} equal characters] …{same[-1000:]}"


def _share(count: int, total: int) -> str:
    if count == total:
        return f"all {total} trials" if total > 1 else "1 trial"
    return f"{count} of {total} trials"


def _text(one: Given) -> str:
    return "⟨no text stored⟩" if one.text is None else one.text


def _facts(one: Given) -> str:
    is_label = not (one.has_ids or len(one.tokens))
    count = "label" if is_label else counted(len(one.tokens), "token")
    facts = [count, one.finished or "unfinished"]
    if one.finished == "error":
        facts[-1] = "error: " + visible(clipped(one.error or "no reason given", 300))
    for name, value in one.scores.items():
        facts.append(f"{QUALITY.get(name, name)} {significant(value)}")
    return ", ".join(facts)
