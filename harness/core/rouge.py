"""ROUGE-L of many pairs of texts, equal to the rouge-score library's and much faster.

The library fills a quadratic table in Python. Here the longest common subsequence comes from the
bit-parallel recurrence of Hyyrö (2004, "Bit-parallel LCS-length computation revisited"): one
integer of as many bits as the first text has tokens, one addition per token of the second.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

_WORD = re.compile(r"[a-z0-9]+")


def words(text: str) -> list[str]:
    """rouge-score's words: lower-case runs of ASCII letters and digits."""
    return _WORD.findall(text.lower())


def stems(words: Sequence[str]) -> list[str]:
    """Words longer than three reduced to their Porter stem, as in `rouge_l_to_label`."""
    return [_stem(word) if len(word) > 3 else word for word in words]


@functools.lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    return str(_library().tokenize(word)[0])


@functools.cache
def _library() -> Any:
    from rouge_score.tokenizers import DefaultTokenizer

    return DefaultTokenizer(use_stemmer=True)


def lcs_length(left: Sequence[str], right: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    places: dict[str, int] = {}
    for index, token in enumerate(left):
        places[token] = places.get(token, 0) | 1 << index
    full = (1 << len(left)) - 1
    state = full
    for token in right:
        matched = state & places.get(token, 0)
        if matched:
            state = ((state + matched) | (state - matched)) & full
    return len(left) - state.bit_count()


@functools.lru_cache(maxsize=65_536)
def rouge_l(reference: str, text: str) -> float:
    """ROUGE-L F1, between 0 and 1. Identical texts score 1, empty ones included (the library
    gives 0 when there is no token to compare)."""
    if reference == text:
        return 1.0
    expected, found = words(reference), words(text)
    # A common beginning is part of some longest subsequence, and answers mostly begin alike.
    alike = _common_beginning(expected, found)
    common = alike + lcs_length(stems(expected[alike:]), stems(found[alike:]))
    if not common:
        return 0.0
    precision, recall = common / len(found), common / len(expected)
    return 2 * precision * recall / (precision + recall)


def _common_beginning(left: Sequence[str], right: Sequence[str]) -> int:
    equal, differ = 0, min(len(left), len(right)) + 1
    while differ - equal > 1:
        middle = (equal + differ) // 2
        if left[equal:middle] == right[equal:middle]:
            equal = middle
        else:
            differ = middle
    return equal
