"""Patterns of a user's rows, of which one may never end."""

from __future__ import annotations

import pytest

from workloads import scoring
from workloads.own import patterns
from workloads.own.patterns import search_all

ENDLESS = ("^(.+)+QQ$", "a" * 64)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "LIMIT_S", 0.1)


def test_an_answer_on_which_a_pattern_does_not_end_has_no_score_and_the_others_have() -> None:
    pairs = [("b", "abc"), ENDLESS, ("^b", "abc"), ENDLESS, ("\udcff", "x\udcff")]
    assert search_all(pairs) == [True, None, False, None, True]
    assert search_all([]) == []


def test_a_file_of_patterns_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MOST_OVERRUNS", 2)
    pairs = [("b", "abc"), ENDLESS, ENDLESS, ("b", "abc")]
    assert search_all(pairs) == [True, None, None, None]


def test_such_an_answer_is_scored_as_nothing() -> None:
    rows = [{"prompt": "p", "scorer": "regex", "answer": p} for p in (ENDLESS[0], "a")]
    assert scoring.score_all("jsonl", rows, [ENDLESS[1]] * 2) == [{}, {"matches_pattern": 1.0}]
