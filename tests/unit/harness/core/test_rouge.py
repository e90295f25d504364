from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from harness.core.rouge import lcs_length, rouge_l
from workloads import scoring

words = st.lists(
    st.sampled_from(["the", "Running", "runs", "cities", "city's", "42", "…", "naïve", "\n"]),
    max_size=30,
).map(" ".join)


@given(words, words)
def test_equals_the_library_s_score(reference: str, text: str) -> None:
    """Same stems, same F1 as the rouge-score library's; a score against a label has its 0 for no
    word at all, too."""
    library = RougeScorer(["rougeL"], use_stemmer=True).score(reference, text)["rougeL"].fmeasure
    assert scoring.rouge_l(reference, text) == pytest.approx(library)
    if reference != text:
        assert rouge_l(reference, text) == pytest.approx(library)


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
