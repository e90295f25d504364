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

_TOKEN = re.compile(r"[a-z0-9]+")


@functools.lru_cache(maxsize=16_384)
def tokens(text: str) -> tuple[str, ...]:
    """rouge-score's tokens with stemming: lower-case runs of ASCII letters and digits, reduced to
    their Porter stem when longer than three. The same as `rouge_l_to_label` uses."""
    words = _TOKEN.findall(text.lower())
    return tuple(_stem(word) if len(word) > 3 else word for word in words)


@functools.lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    return str(_library().tokenize(word)[0])


@functools.cache
def _library() -> Any:
    from rouge_score.tokenizers import DefaultTokenizer

    return DefaultTokenizer(use_stemmer=True)


def lcs_length(left: Sequence[str], right: Sequence[str]) -> int:
    """Length of the longest common subsequence. Answers that differ mostly begin alike, and a
    common beginning is always part of one."""
    shared = _common_prefix(left, right)
    left, right = left[shared:], right[shared:]
    places: dict[str, int] = {}
    for index, token in enumerate(left):
        places[token] = places.get(token, 0) | 1 << index
    full = (1 << len(left)) - 1
    state = full
    for token in right:
        matched = state & places.get(token, 0)
        if matched:
            state = ((state + matched) | (state - matched)) & full
    return shared + len(left) - state.bit_count()


def _common_prefix(left: Sequence[str], right: Sequence[str]) -> int:
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


@functools.lru_cache(maxsize=65_536)
def rouge_l(reference: str, text: str) -> float:
    """ROUGE-L F1, between 0 and 1. Identical texts score 1, empty ones included (the library
    gives 0 when there is no token to compare)."""
    if reference == text:
        return 1.0
    expected, found = tokens(reference), tokens(text)
    common = lcs_length(expected, found)
    if not common:
        return 0.0
    precision, recall = common / len(found), common / len(expected)
    return 2 * precision * recall / (precision + recall)
