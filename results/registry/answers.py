"""Metrics that set a trial's answers and its speed against others, or against the labels."""

from __future__ import annotations

from results.compare import agreement, quality
from results.metrics import distribution
from results.registry.metric import Metric, TrialInputs


def _earliest(t: TrialInputs) -> tuple[int, str, float | None] | tuple[None, None, None]:
    found = agreement.earliest_divergence(t.pairs, t.requests, t.reference)
    return found or (None, None, None)


def _score(name: str, text: str, label: str) -> Metric:
    return Metric(
        name=name,
        section="quality",
        text=text,
        formula=lambda t: quality.mean_score(t.requests, name),
        needs="scores",
        better="larger",
        label=label,
    )


THOUGHT = (
    " What stands before the last `</think>` does not count, and an answer that was cut off before "
    "it is empty."
)
SCORES = (
    _score(
        "rouge_l_to_label",
        "Mean F1 against the data set's summary: rouge-score's `rougeL`, stemmed, as in MLPerf "
        "Inference." + THOUGHT,
        "ROUGE-L",
    ),
    _score(
        "pass_at_1",
        "Share of programs that pass the row's tests, which run in another process than it and see "
        "plain values only (HumanEval's). A program has Python's standard library alone: one that "
        "needs anything else, such as numpy, fails. An answer that begins with the function's "
        "body is cut at the first top-level statement, as the official one is; else the first "
        "fenced block with the function counts, with the imports, functions, classes and "
        "assignments that it needs." + THOUGHT,
        "pass@1",
    ),
    _score(
        "exact_match",
        "Share of answers whose first `#### (-?[0-9.,]+)` is the label's, commas left out, letter "
        "for letter (`42.0` and `42.` are not `42`): GSM8K's official score, `extract_answer` of "
        "OpenAI's grade-school-math. 0 without that mark." + THOUGHT,
        "exact match",
    ),
    _score(
        "exact_match_flexible",
        "Share of answers that `exact_match` counts or that come to a number equal to the label's: "
        "the one after the first `#### `, else after the last `####` with signs but no word "
        'between, else in the last `\\boxed{}`, else after the last "answer is" or "answer:", else '
        "the last one; of an equation there what stands behind its `=`. What follows an invented "
        "next question, behind an answer, does not count (ours)." + THOUGHT,
        "flexible match",
    ),
    _score(
        "accuracy",
        "Share of labels that are the row's, by their names or numbers.",
        "accuracy",
    ),
    _score(
        "equals_answer",
        "Own prompts, scorer `exact`: share of answers equal to the row's `answer`, white space at "
        "both ends left out.",
        "equal",
    ),
    _score(
        "contains_answer",
        "Own prompts, scorer `contains`: share of answers that hold the row's `answer`; case and "
        "runs of white space make no difference.",
        "contains",
    ),
    _score(
        "matches_pattern",
        "Own prompts, scorer `regex`: share of answers in which the row's `answer`, a Python "
        "regular expression, is found (`re.search`). Answers on which that takes over 1 s have "
        "none (`unscored`).",
        "matches",
    ),
)
AGREEMENT = (
    Metric(
        name="consistency_ratio",
        section="answers",
        text="Share of `consistency_requests` pairs with equal token ids, lengths included; a "
        "prefix is not equal.",
        formula=lambda t: agreement.consistency_ratio(t.pairs),
        needs="reference",
        better="larger",
        void_with="reference answers",
        label="Same answers",
        short="same",
    ),
    Metric(
        name="consistency_requests",
        section="answers",
        text="Requests that both completed and of which all token ids are known.",
        formula=lambda t: len(t.pairs),
        needs="reference",
    ),
    Metric(
        name="first_divergence",
        section="answers",
        text="The smallest index (from 0) at which an answer of the trial leaves the reference's.",
        formula=lambda t: t.once(_earliest)[0],
        needs="reference",
        void_with="reference answers",
    ),
    Metric(
        name="first_divergence_request",
        section="answers",
        text="The request of `first_divergence`.",
        formula=lambda t: t.once(_earliest)[1],
        needs="reference",
        void_with="reference answers",
    ),
    Metric(
        name="first_divergence_margin",
        section="answers",
        text="The reference's top-2 logit margin at `first_divergence`, where it stored one.",
        formula=lambda t: t.once(_earliest)[2],
        needs="reference",
        void_with="reference answers",
    ),
    Metric(
        name="first_divergence",
        section="answers",
        text="The index of the first differing token.",
        formula=lambda t: agreement.first_divergence(t.pairs),
        each="diverging request",
        needs="reference",
        void_with="reference answers",
    ),
    Metric(
        name="rouge_l_to_full",
        section="answers",
        text="Mean ROUGE-L F1 of the answers against the reference's; identical answers score 1.",
        formula=lambda t: distribution.mean(
            quality.rouge_l_to_full(t.requests, t.reference, t.pairs)
        ),
        needs="reference",
        better="larger",
        void_with="reference answers",
    ),
    Metric(
        name="length_ratio",
        section="answers",
        text="Tokens of all answers / tokens of the reference's answers to the same requests.",
        formula=lambda t: t.pairs.length_ratio,
        needs="reference",
        void_with="reference answers",
    ),
    Metric(
        name="noise_floor",
        section="answers",
        text="`consistency_ratio` of the reference against itself, over all pairs of its repeats "
        "whose answers may be believed; undefined with fewer than two. A backend that is not below "
        "it is as consistent as the reference is.",
        formula=None,
        better="larger",
        pooled="pairs",
    ),
)
