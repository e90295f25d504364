"""Texts to token ids by our own tokenizer: whole ones, and those that go on after others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

Encode = Callable[[str], Sequence[int]]
BREAK = "\n"


def encode(tokenizer: Any, text: str) -> list[int]:
    """The token ids of a text, without special ones around it."""
    return list(tokenizer.encode(text, add_special_tokens=False))


def encoders(tokenizer: Any) -> tuple[Encode, Encode | None]:
    """(what reads a text, what reads one that goes on; None where that is the same).

    A tokenizer that puts a blank of its own before a text (SentencePiece's) would put one before
    each part, where it is a token that nobody sent or makes another one of the first. It is known
    by the two tokens of a line break, and puts nothing before what stands behind one.
    """
    ahead = len(encode(tokenizer, BREAK))
    return partial(encode, tokenizer), partial(_encode_on, tokenizer, ahead) if ahead > 1 else None


def _encode_on(tokenizer: Any, ahead: int, text: str) -> list[int]:
    return encode(tokenizer, BREAK + text)[ahead:]
