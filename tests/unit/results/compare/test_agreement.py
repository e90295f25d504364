from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.nouns import UNKNOWN_TOKEN
from results.compare import agreement, quality
from results.metrics.arrays import RequestArrays, from_record
from tests.support.results.make_trials import generation, record, trial

Answers = dict[str, list[int]]


def arrays(answers: Answers, texts: dict[str, str] | None = None) -> RequestArrays:
    generations = [generation(i, range(len(ids)), ids=ids) for i, ids in answers.items()]
    return from_record(record(trial(), generations, texts=texts or {}))


def test_lengths_count_and_a_prefix_is_not_equal() -> None:
    this = arrays({"a": [1, 2, 3], "b": [1, 2], "c": [1, 9, 3], "d": [], "e": [4, 4]})
    other = arrays({"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2, 3], "d": [], "e": [5, 4]})
    found = agreement.compare(this, other)
    assert found.divergence.tolist() == [-1, 2, 1, -1, 0]
    assert found.length_differs.tolist() == [False, True, False, False, False]
    assert agreement.consistency_ratio(found) == 2 / 5
    assert agreement.first_divergence(found).tolist() == [2, 1, 0]


def test_requests_are_paired_by_id_in_any_order() -> None:
    this = arrays({"a": [1], "b": [2, 2], "c": [3]})
    other = arrays({"c": [3], "x": [9], "b": [2, 7]})
    found = agreement.compare(this, other)
    assert [this.ids[r] for r in found.rows] == ["b", "c"]
    assert [other.ids[r] for r in found.other_rows] == ["b", "c"]
    assert found.divergence.tolist() == [1, -1]


def test_answers_whose_token_ids_are_not_known_are_neither_equal_nor_different() -> None:
    told = arrays({"a": [1, 2], "b": [3], "c": [4]})
    counted = arrays({"a": [UNKNOWN_TOKEN] * 2, "b": [3, UNKNOWN_TOKEN], "c": [4]})
    for this, other in ((told, counted), (counted, told), (counted, counted)):
        found = agreement.compare(this, other)
        assert [this.ids[r] for r in found.rows] == ["c"]
        assert agreement.consistency_ratio(found) == 1


def test_no_pairs_is_undefined() -> None:
    found = agreement.compare(arrays({"a": [1]}), arrays({"b": [1]}))
    assert agreement.consistency_ratio(found) is None
    assert agreement.length_mismatch(found) is None


def test_failed_requests_and_unknown_ids_are_not_compared() -> None:
    ok = [generation("a", [1], ids=[7]), generation("b", [1], ids=[7]), generation("c", [1])]
    bad = [
        generation("a", [1], ids=[7]),
        generation("b", [1], ids=[7], finished="error"),
        generation("c", [1], ids=[]),
    ]
    this, other = (from_record(record(trial(), g)) for g in (ok, bad))
    for one, two in ((this, other), (other, this)):
        found = agreement.compare(one, two)
        assert [one.ids[r] for r in found.rows] == ["a"]


def test_the_margin_is_the_references_at_the_place_of_divergence() -> None:
    told = {"top2_margin@0": 9.0, "top2_margin@1": 0.03}
    reference = from_record(record(trial(), [generation("a", [1, 2], ids=[1, 2], telemetry=told)]))
    found = agreement.compare(arrays({"a": [1, 5]}), reference)
    assert agreement.margin_at_divergence(found, reference, 0) == 0.03
    found = agreement.compare(arrays({"a": [1, 2, 3]}), reference)
    assert agreement.margin_at_divergence(found, reference, 0) is None


def test_the_margin_is_looked_up_in_the_references_own_row() -> None:
    """The two list their requests in another order, and both know margins."""
    ours = [
        generation("a", [1, 2], ids=[1, 5], telemetry={"top2_margin@1": 0.1}),
        generation("b", [1, 2], ids=[3, 4], telemetry={"top2_margin@1": 0.2}),
    ]
    theirs = [
        generation("b", [1, 2], ids=[3, 4], telemetry={"top2_margin@1": 0.3}),
        generation("a", [1, 2], ids=[1, 2], telemetry={"top2_margin@1": 0.4}),
    ]
    this, reference = (from_record(record(trial(), g)) for g in (ours, theirs))
    found = agreement.compare(this, reference)
    (place,) = np.flatnonzero(~found.equal())
    assert agreement.margin_at_divergence(found, reference, int(place)) == 0.4


def test_length_mismatch_says_how_many() -> None:
    found = agreement.compare(arrays({"a": [1], "b": [2]}), arrays({"a": [1, 1], "b": [2]}))
    reason = agreement.length_mismatch(found)
    assert reason is not None
    assert reason.startswith("length-mismatch: 1 of 2 answers differ")
    assert "in all 33% shorter:" in reason
    longer = agreement.compare(arrays({"a": [1, 1], "b": [2]}), arrays({"a": [1], "b": [2]}))
    assert "in all 50% longer:" in (agreement.length_mismatch(longer) or "")
    most = agreement.compare(arrays({"a": [1] * 5}), arrays({"a": [1, 1]}))
    assert "in all 150% longer:" in (agreement.length_mismatch(most) or "")
    both = agreement.compare(arrays({"a": [1, 1], "b": [2]}), arrays({"a": [1], "b": [2, 2]}))
    assert "in all as long:" in (agreement.length_mismatch(both) or "")
    assert [found.length_ratio, longer.length_ratio, both.length_ratio] == [2 / 3, 1.5, 1.0]


ids = st.lists(st.integers(0, 2), max_size=4)
answers = st.dictionaries(st.sampled_from("abcde"), ids, max_size=5)


@given(answers, answers)
def test_comparing_agrees_with_plain_python_and_is_symmetric(one: Answers, two: Answers) -> None:
    there, back = (agreement.compare(arrays(x), arrays(y)) for x, y in ((one, two), (two, one)))
    both = [name for name in one if name in two]
    assert len(there) == len(both)
    expected = []
    for name in both:
        left, right = one[name], two[name]
        places = [i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y]
        shorter = min(len(left), len(right))
        expected.append(-1 if left == right else (places[0] if places else shorter))
    assert there.divergence.tolist() == expected
    assert sorted(back.divergence.tolist()) == sorted(expected)
    assert agreement.consistency_ratio(there) == agreement.consistency_ratio(back)


def test_rouge_to_full_needs_both_texts_and_skips_equal_answers() -> None:
    this = arrays({"a": [1], "b": [2], "c": [3], "d": [4]}, {"a": "x", "b": "the cat", "c": "p"})
    full = arrays({"a": [1], "b": [9], "c": [9], "d": [9]}, {"a": "x", "b": "the dog", "d": "q"})
    values = quality.rouge_l_to_full(this, full, agreement.compare(this, full))
    assert values[:2].tolist() == [1.0, 0.5]
    assert np.isnan(values[2:]).all()


def test_right_is_a_full_score_or_the_references_answer() -> None:
    generations = [generation(i, [1], ids=[n]) for n, i in enumerate("abc")]
    scores = {"a": {"exact_match": 1.0}, "b": {"exact_match": 0.0}, "c": {"exact_match": 0.0}}
    this = from_record(record(trial(), generations, scores=scores))
    found = quality.is_right(this, None)
    assert found is not None
    assert found.tolist() == [True, False, False]
    pairs = agreement.compare(this, arrays({"a": [9], "b": [1], "c": [9]}))
    found = quality.is_right(this, pairs)
    assert found is not None
    assert found.tolist() == [True, True, False]
    assert quality.is_right(arrays({"a": [1]}), None) is None
    half = {"a": {"exact_match": 0.5}, "b": {"pass_at_1": 1.0}, "c": {"pass_at_1": 0.0}}
    found = quality.is_right(from_record(record(trial(), generations, scores=half)), None)
    assert found is not None
    assert found.tolist() == [False, True, False]
    assert quality.mean_score(this, "exact_match") == pytest.approx(1 / 3)
    assert quality.mean_score(this, "pass_at_1") is None


def test_part_of_a_score_or_a_lenient_one_makes_no_answer_right() -> None:
    scores = {
        "a": {"pass_at_1": 0.99},
        "b": {"exact_match": 0.0, "exact_match_flexible": 1.0},
        "c": {"pass_at_1": 1.0},
    }
    generations = [generation(i, [1], ids=[1]) for i in "abc"]
    found = quality.is_right(from_record(record(trial(), generations, scores=scores)), None)
    assert found is not None
    assert found.tolist() == [False, False, True]
