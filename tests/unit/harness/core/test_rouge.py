from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from harness.core.rouge import lcs_length, porter, rouge_l
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


def test_stems_are_those_of_the_library() -> None:
    """All suffixes that a rule knows behind beginnings of every shape, and the irregular forms."""
    library = DefaultTokenizer(use_stemmer=True)
    ends = {suffix for suffix, _ in (*porter.STEP_2, *porter.STEP_3)} | {*porter.STEP_4}
    more = "s y e ll logi logy alli ed ing ied ies eed sses ss ation ational ying"
    ends |= {"", *more.split()}
    ends |= {end + last for end in ends for last in ("s", "ed", "ing", "ly", "e", "y")}
    begins = "a b cr sy toy yy yyy hop fizz fall tann fil wil box play able pet plaster g1 2 co1"
    begins += " relat conflat troubl siz motor hope archaeo geo skate controll rot abcdefgh ooze st"
    made = {begin + end for begin, end in itertools.product(begins.split(), ends)}
    made |= {*porter.IRREGULAR, *re.findall("[a-z]{4,}", (porter.__doc__ or "").lower())}
    asked = sorted(word for word in made if len(word) > 3)
    assert len(asked) > 9_000
    assert {w: porter.stem(w) for w in asked} == {w: library.tokenize(w)[0] for w in asked}


@given(st.text("aeioytsnlzc1", min_size=4, max_size=10))
def test_so_are_those_of_chance_words(word: str) -> None:
    assert porter.stem(word) == DefaultTokenizer(use_stemmer=True).tokenize(word)[0]
