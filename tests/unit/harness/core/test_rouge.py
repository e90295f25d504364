from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.rouge import lcs_length, rouge_l
from workloads import scoring

words = st.lists(
    st.sampled_from(["the", "Running", "runs", "cities", "city's", "42", "…", "naïve", "\n"]),
    max_size=30,
).map(" ".join)


@given(words, words)
def test_equals_the_score_against_the_label(reference: str, text: str) -> None:
    """Same stems, same F1 as `rouge_l_to_label`, which comes from the rouge-score library."""
    if reference != text:
        assert rouge_l(reference, text) == pytest.approx(scoring.rouge_l(reference, text))


def test_identical_texts_score_one_even_without_a_word() -> None:
    assert rouge_l("", "") == 1.0
    assert rouge_l("…", "…") == 1.0
    assert rouge_l("", "word") == 0.0


@given(st.text("abc", max_size=90), st.text("abc", max_size=90))
def test_common_subsequence_equals_the_quadratic_table(left: str, right: str) -> None:
    row = [0] * (len(right) + 1)
    for one in left:
        last = row[:]
        for j, other in enumerate(right):
            row[j + 1] = last[j] + 1 if one == other else max(last[j + 1], row[j])
    assert lcs_length(left, right) == row[-1]
