"""Scores a model's answers: ROUGE-L, exact match on the final number (two readings), pass@1,
accuracy of labels.

ROUGE-L is the F1 of the rouge-score library's `rougeL` with stemming: one longest common
subsequence over the whole text, as MLPerf Inference and the Hugging Face examples report it.
`rougeLsum` would depend on where a model puts its line breaks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from harness.core import rouge
from harness.core.errors import UserError, nearest
from workloads import LABELLED, OWN, UNSCORED, WORKLOADS
from workloads.fields import GSM8K_MARK
from workloads.labelled import label_name
from workloads.own import scorers
from workloads.own.patterns import LIMIT_S
from workloads.sandbox.humaneval import pass_at_1
from workloads.sandbox.runner import DEFAULT_TIMEOUT_S

_NUMBER = re.compile(r"(?<![A-Za-z0-9.])-?(?:\d+(?:\.\d+)?|\.\d+)")
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\}|\\[,!: ])+(?=\d{3}(?!\d))")
_BOXED = re.compile(r"\\boxed\s*\{([^}]{0,200})\}")
_NO_STEP = r"(?!\d+[.)]\**[ \t]+[A-Za-z*])"
"""Before a number: no heading such as "1. Count the eggs"."""
_MARK = re.compile(rf"#### {_NO_STEP}(-?\.?\d[^\n]*)")
_LOOSE_MARK = re.compile(rf"####[\W_]{{0,20}}?{_NO_STEP}(-?\.?\d[^\n]*)")
"""With signs between mark and number (``#### **42**``), but no word as in a heading."""
_ANSWER = re.compile(
    r"(?i)answer[*_]*(?:\s+is\b[:\s]*"
    rf"|\s*:[\W_]{{0,20}}?{_NO_STEP}"
    r"(?=-?\.?\d(?:[^\n=.;]|\.(?=\d)){0,500}+[.*_ \t]*+$))([^\n]+)",
    re.MULTILINE,
)
"""Behind "answer:" reasoning may stand; so there the line is one statement that begins with the
number, and no equation. It is bounded and not tried again shorter, since an answer may be hostile.
"""
_STATEMENT_ENDS = re.compile(r"[.;!?](?:\s|$)|(?<=\d)\s+\((?=[^)]{0,200}=)")
"""Or goes over into a remark such as "(with n = 4)"."""
_RESULT = re.compile(rf"[\s*_]*({_NUMBER.pattern})")
_QUESTION = re.compile(r"^[ \t]*(?:Question|Q|Problem)\s*:", re.MULTILINE)
_THOUGHT, _THOUGHT_ENDS = "<think>", "</think>"


def score_all(
    workload: str,
    rows: Sequence[Mapping[str, str]],
    texts: Sequence[str],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    thinks: Sequence[bool] = (),
    unscored: dict[int, str] | None = None,
) -> list[dict[str, float]]:
    """The task scores of each answer, from the metric's name to a number from 0 to 1. HumanEval's
    programs run side by side.

    Args:
        workload: one of `WORKLOADS`, of `LABELLED`, of `OWN`, whose rows say how they are scored,
            or of `UNSCORED`, whose answers have no scores.
        rows: the rows' fields, in the hub's names.
        texts: the answers, one for each row, decoded without special tokens.
        timeout_s: wall-clock seconds for each HumanEval program.
        thinks: by answer whether its prompt ends within a thought; empty: none does.
        unscored: gets, by the answer's place, why one that should have a score has none.

    Raises:
        UserError: for another workload, or where HumanEval's programs cannot be held.
    """
    why = {} if unscored is None else unscored
    if workload in UNSCORED:
        return [{} for _ in texts]
    if workload in LABELLED:
        pairs = list(zip(rows, texts, strict=True))
        return [{"accuracy": accuracy(workload, row["label"], text)} for row, text in pairs]
    if workload in OWN:
        return _own_scores(rows, texts, why)
    if workload not in WORKLOADS:
        raise UserError(f"scoring: unknown workload '{workload}'; {nearest(workload, WORKLOADS)}")
    told = zip(texts, thinks or [False] * len(texts), strict=True)
    pairs = list(zip(rows, itertools.starmap(answer_part, told), strict=True))
    if workload == "humaneval":
        return pass_at_1(pairs, timeout_s, why)
    if workload == "gsm8k":
        return [
            {
                "exact_match": exact_match(row["answer"], text),
                "exact_match_flexible": exact_match_flexible(row["answer"], text),
            }
            for row, text in pairs
        ]
    label = WORKLOADS[workload].fields[1]
    return [{"rouge_l_to_label": rouge_l(row[label], text)} for row, text in pairs]


def answer_part(text: str, thinks: bool = False) -> str:
    """What a model that thinks aloud says after its last ``</think>``, and nothing where it was cut
    off before that; any other text whole. `thinks`: the prompt ends in ``<think>``."""
    _, closed, said = text.rpartition(_THOUGHT_ENDS)
    begun = _THOUGHT in said or (thinks and not closed)
    return "" if begun else said


def thinks_from_the_start(prompt: str) -> bool:
    """Whether a prompt's text has the answer begin as a thought, as some chat templates do."""
    return prompt.rstrip().endswith(_THOUGHT)


def is_scored(workload: str, row: Mapping[str, str]) -> bool:
    """Whether answers to this row of a workload get a score."""
    if workload in OWN:
        return row.get("scorer", scorers.NONE) != scorers.NONE
    return workload not in UNSCORED


def _own_scores(
    rows: Sequence[Mapping[str, str]], texts: Sequence[str], unscored: dict[int, str]
) -> list[dict[str, float]]:
    scores = scorers.score_all(rows, texts)
    late = f"the row's regular expression took over {LIMIT_S:g} s"
    for place, (row, found) in enumerate(zip(rows, scores, strict=True)):
        if not found and row.get("scorer", scorers.NONE) != scorers.NONE:
            unscored[place] = late
    return scores


def rouge_l(reference: str, text: str) -> float:
    """ROUGE-L F1 from 0 to 1 (Lin 2004); 0 when either side has no word."""
    return rouge.rouge_l(reference, text) if rouge.words(reference) else 0.0


def accuracy(workload: str, reference: str, text: str) -> float:
    """1.0 when a classifier's answer is the row's label, however it is written (`label_name`)."""
    return float(label_name(workload, text) == label_name(workload, reference))


def exact_match(reference: str, text: str) -> float:
    """GSM8K's official score: 1.0 when both name the same text after ``#### ``, commas left out.

    The first mark counts, the number follows it after one space, and 42.0 is not 42; an answer
    without a mark is wrong.
    """
    expected, found = GSM8K_MARK.search(reference), GSM8K_MARK.search(text)
    if expected is None or found is None:
        return 0.0
    return float(expected[1].replace(",", "") == found[1].replace(",", ""))


def exact_match_flexible(reference: str, text: str) -> float:
    """1.0 when the answer's `final_number` equals the reference's, as numbers (42.0 is 42), and
    wherever `exact_match` is."""
    expected, found = final_number(reference), final_number(text)
    equal = expected is not None and expected == found
    return float(equal or exact_match(reference, text))


def final_number(text: str) -> Decimal | None:
    r"""The number that an answer to a word problem comes to; None when it names none.

    In this order: the number after the first ``#### ``; after the last ``####`` with other signs
    than a space between, but no word; the first in the last ``\boxed{}``; the one after the last
    "answer is" or "answer:"; the last number of all. Where an equation stands in such a place, what
    is behind its last ``=``. What follows an invented next question does not count.
    """
    text = _THOUSANDS.sub("", text.replace("\u2212", "-").replace("$", ""))
    text = _own_part(text)
    stated = _stated_number(text)
    numbers = [] if stated is not None else _NUMBER.findall(text)
    return Decimal(numbers[-1]) if numbers else stated


def _own_part(text: str) -> str:
    """The text up to an invented next question: one behind a number. A text that begins with its
    own question goes on up to one behind an answer that is called so."""
    cuts = [0, *(found.start() for found in _QUESTION.finditer(text)), len(text)]
    parts = [text[start:end] for start, end in itertools.pairwise(cuts)]
    if _NUMBER.search(parts[0]):
        return parts[0]
    ends = (count for count, part in enumerate(parts, 1) if _stated_number(part) is not None)
    return "".join(parts[: next(ends, None)])


def _stated_number(text: str) -> Decimal | None:
    """The number of the first place that the text marks as its answer."""
    last = (reversed(form.findall(text)) for form in (_LOOSE_MARK, _BOXED, _ANSWER))
    for place in itertools.chain(_MARK.findall(text), *last):
        if found := _NUMBER.search(place):
            statement = _STATEMENT_ENDS.split(place[found.start() :], maxsplit=1)[0]
            left, sign, right = statement.rpartition("=")
            result = _RESULT.match(right)
            if sign and result:
                return Decimal(result[1])
            return Decimal(_NUMBER.findall(left)[-1] if sign else found[0])
    return None
