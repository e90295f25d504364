"""Distinct answers: grouped by token ids, compared with the reference's, marked where they part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from harness.core.nouns import (
    UNKNOWN_TOKEN,
    Generation,
    Label,
    Load,
    Model,
    Trial,
    TrialRecord,
    Workload,
)
from reports.sections.answers.requests import SHOWN, Answers, ShownRequest, items
from reports.variants import NamedOptions, Variant, variants
from results.metrics.arrays import from_record

REFERENCE, OTHER = variants(
    [
        NamedOptions("vllm", {}, "official code", True),
        NamedOptions("fast", {}, "re-implementation", False),
    ]
)


def _trial(given: Mapping[str, tuple[list[int], str | None]], finished: Any = "stop") -> Any:
    trial = Trial("x", {}, Model("m"), Workload("w"), Load("closed", concurrency=1), 1, 8)
    generations = [
        Generation(i, 0, 0, 0, [1] * len(ids), [1] * len(ids), ids, finished, "lost <it>")
        for i, (ids, _) in given.items()
    ]
    texts = {i: text for i, (_, text) in given.items() if text is not None}
    record = TrialRecord("k", trial, {}, "ok", generations=generations, texts=texts)
    return from_record(record)


def _labelled(name: str) -> Any:
    trial = Trial("x", {}, Model("m"), Workload("w"), Load("closed", concurrency=1), 1, 8)
    one = Generation("r", 0, 0, 0, [1], [0], [], "stop", label=Label(name, 0.9))
    return from_record(TrialRecord("k", trial, {}, "ok", generations=[one]))


def _items(*trials: tuple[Variant, Any]) -> list[ShownRequest]:
    answers = Answers()
    for variant, requests in trials:
        answers.add(variant, requests)
    shown, _, _ = items(answers, {}, [REFERENCE, OTHER])
    return shown


def test_equal_answers_are_shown_once_with_all_who_gave_them() -> None:
    same = {"r": ([1, 2, 3], "a b c")}
    (item,) = _items((REFERENCE, _trial(same)), (REFERENCE, _trial(same)), (OTHER, _trial(same)))
    assert not item.differs
    (answer,) = item.answers
    assert answer.by == ((0, "all 2 trials"), (1, "1 trial"))
    assert answer.rest is None
    assert "3 tokens, stop" in answer.facts


def test_answers_without_token_ids_are_compared_as_text() -> None:
    """A server that only counts its tokens: equal counts are no equal answers."""
    unknown = [UNKNOWN_TOKEN] * 3
    (item,) = _items(
        (REFERENCE, _trial({"r": ([1, 2, 3], "a b c")})),
        (OTHER, _trial({"r": (unknown, "a b c")})),
        (OTHER, _trial({"r": (unknown, "a b d")})),
    )
    assert item.verdict == "differs: fast"
    _, same, other = item.answers
    assert (same.divergence, same.rest) == ("", None)
    assert other.divergence == "Differs from the reference's answer (character 4); marked below."
    assert other.rest == "d"


def test_labels_are_told_apart_by_name() -> None:
    """They have no tokens: without their names all of them are one answer."""
    (item,) = _items(*((v, _labelled(n)) for v, n in ((REFERENCE, "good"), (OTHER, "bad"))))
    assert item.verdict == "differs: fast"
    assert [(answer.text, answer.facts) for answer in item.answers] == [
        ("good", "label, stop"),
        ("bad", "label, stop"),
    ]
    (item,) = _items((REFERENCE, _labelled("good")), (OTHER, _labelled("good")))
    assert item.verdict == "same answer from all"


def test_a_different_answer_is_marked_at_the_first_differing_token_and_character() -> None:
    (item,) = _items(
        (REFERENCE, _trial({"r": ([5, 6, 7, 8], "the old bridge stands")})),
        (OTHER, _trial({"r": ([5, 6, 9, 8], "the old brook stands")})),
    )
    assert item.differs
    assert item.verdict == "differs from token 2: fast"
    reference, other = item.answers
    assert reference.by[0][0] == 0
    assert "from token 2" in other.divergence
    assert (other.same, other.rest) == ("the old br", "ook stands")
    assert other.split == len("the old br")


def test_an_answer_that_stops_early_differs_at_its_end() -> None:
    (item,) = _items(
        (REFERENCE, _trial({"r": ([5, 6, 7], "one two three")})),
        (OTHER, _trial({"r": ([5, 6], "one two")})),
    )
    assert "from token 2" in item.answers[1].divergence
    assert item.answers[1].rest == ""


def test_other_tokens_with_the_same_text_are_said_to_be_so() -> None:
    (item,) = _items(
        (REFERENCE, _trial({"r": ([5, 6], "ab")})), (OTHER, _trial({"r": ([7], "ab")}))
    )
    assert item.differs
    assert item.answers[1].divergence.endswith("from token 0; the text is the same.")
    assert item.answers[1].rest is None


def test_the_split_counts_as_javascript_does() -> None:
    (item,) = _items(
        (REFERENCE, _trial({"r": ([1, 2], "\U0001f469 a")})),
        (OTHER, _trial({"r": ([1, 3], "\U0001f469 b")})),
    )
    answer = item.answers[1]
    assert answer.same == "\U0001f469 "
    assert answer.split == 3


def test_an_error_and_a_missing_text_are_told() -> None:
    (item,) = _items((REFERENCE, _trial({"r": ([1], None)}, finished="error")))
    assert "error: lost <it>" in item.answers[0].facts
    assert item.answers[0].text == "⟨no text stored⟩"


def test_a_long_equal_beginning_is_shortened_so_that_the_difference_shows() -> None:
    start = "x" * 50_000
    (item,) = _items(
        (REFERENCE, _trial({"r": ([1, 2], start + "a")})),
        (OTHER, _trial({"r": ([1, 3], start + "b" * 50_000)})),
    )
    answer = item.answers[1]
    assert len(answer.text) < 10_000
    assert "[48,000 equal characters]" in answer.same
    assert answer.rest is not None
    assert answer.rest.startswith("bbb")


def test_requests_that_differ_are_preferred_when_there_are_too_many() -> None:
    plain = {f"r{i}": ([i, 1], f"t{i}") for i in range(500)}
    changed = {**plain, **{f"r{i}": ([i, 2], f"u{i}") for i in range(470, 500)}}
    answers = Answers()
    answers.add(REFERENCE, _trial(plain))
    answers.add(OTHER, _trial(changed))
    shown, total, differing = items(answers, {}, [REFERENCE, OTHER])
    assert (total, differing, len(shown)) == (500, 30, SHOWN)
    assert sum(item.differs for item in shown) == SHOWN // 2
    places = [int(item.id[1:]) for item in shown]
    assert places == sorted(places)
    assert places[0] == 0


def test_without_a_reference_answers_are_compared_with_the_first() -> None:
    answers = Answers()
    answers.add(OTHER, _trial({"r": ([1, 2], "ab")}))
    answers.add(OTHER, _trial({"r": ([1, 3], "ac")}))
    (item,), _, differing = items(answers, {}, [OTHER, OTHER])
    assert differing == 1
    assert [answer.by for answer in item.answers] == [((1, "1 of 2 trials"),)] * 2


WHOLE, OTHERWISE = _trial({"r": ([1, 2], "a b")}), _trial({"r": ([1, 3], "a c")})
LOST = _trial({"r": ([], None)}, finished="error")
CUT_OFF = _trial({"r": ([1], "a")}, finished=None)


@pytest.mark.parametrize(
    ("given", "differing", "verdict"),
    [
        # more of the reference's repeats failed than did not
        (
            [(REFERENCE, WHOLE), (REFERENCE, LOST), (REFERENCE, LOST), (OTHER, WHOLE)],
            0,
            "same answer wherever there is one; failed in 2 trials",
        ),
        (
            [(REFERENCE, WHOLE), (OTHER, LOST), (OTHER, CUT_OFF)],
            0,
            "same answer wherever there is one; failed in 1 trial, unfinished in 1 trial",
        ),
        (
            [(REFERENCE, WHOLE), (OTHER, LOST), (OTHER, OTHERWISE)],
            1,
            "differs from token 1: fast; failed in 1 trial",
        ),
        ([(REFERENCE, LOST), (OTHER, LOST)], 0, "failed in 2 trials"),
    ],
)
def test_a_request_that_failed_has_no_other_answer(
    given: list[tuple[Variant, Any]], differing: int, verdict: str
) -> None:
    answers = Answers()
    for variant, requests in given:
        answers.add(variant, requests)
    (item,), _, count = items(answers, {}, [REFERENCE, OTHER])
    assert answers.without == (verdict == "failed in 2 trials")
    assert (count, item.differs, item.verdict) == (differing, bool(differing), verdict)
    lost = [one for one in item.answers if "error: lost <it>" in one.facts]
    assert [(one.divergence, one.rest) for one in lost] == [("", None)]


def test_where_the_reference_failed_the_others_are_held_against_the_first() -> None:
    (item,) = _items((REFERENCE, LOST), (OTHER, WHOLE), (OTHER, OTHERWISE))
    assert item.verdict == "differs from token 1: fast; failed in 1 trial"
    first, other, lost = item.answers
    assert first.by == ((1, "1 of 2 trials"),)
    assert other.divergence.startswith("Differs from the first's answer from token 1")
    assert other.tokens.splitlines()[1].split() == ["first", "1", "|", "2"]
    assert lost.divergence == ""
