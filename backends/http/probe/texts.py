"""Whether the model's tokenizer is the one that the server has, as far as the server shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backends.http.stream import StreamError, checked_ids, chunk_text, shorten
from harness.core.errors import UserError

SENTENCE = "The quick brown fox jumps over the lazy dog, and 3 of them sleep until the morning."
"""What a server that tokenizes on request is asked for."""
SAME = 0.5
"""Share of its tokens that two writings of one tokenizer have in common at least."""


def check_texts(where: str, answers: Iterable[Sequence[Mapping[str, Any]]], tokenizer: Any) -> None:
    """Compare the text of each answer with its token ids, decoded by us. Raises `UserError` where
    they clearly differ.

    Only letters and signs of ASCII are looked at, and either side may lack some: a server holds
    back what may be half a character, leaves special tokens and tags of thoughts out, and puts
    blanks otherwise.
    """
    for events in answers:
        choices = [event["choices"][0] for event in events if event["choices"]]
        try:
            ids = [token for c in choices for token in checked_ids(c.get("token_ids") or ())]
        except StreamError as error:
            raise UserError(f"{where}: a test request: {error}") from None
        theirs = "".join(map(chunk_text, choices))
        if not ids or not (plain := _plain(theirs)):
            continue
        ours = str(tokenizer.decode(ids))
        if not (same := _plain(ours)) or not (_holds(same, plain) or _holds(plain, same)):
            raise _other(where, f"reads '{shorten(ours)}'", f"wrote '{shorten(theirs)}'")


def check_ids(where: str, theirs: Sequence[int] | None, tokenizer: Any) -> None:
    """Compare the server's token ids of `SENTENCE` with ours, where it told them. A first token
    more, or a blank that is put otherwise, is no other tokenizer. Raises `UserError`."""
    ours = list(tokenizer.encode(SENTENCE, add_special_tokens=False))
    if theirs and (Counter(ours) & Counter(theirs)).total() < SAME * len(ours):
        raise _other(where, f"makes {shorten(ours)} of a sentence", f"makes {shorten(theirs)}")


def _other(where: str, ours: str, theirs: str) -> UserError:
    return UserError(
        f"{where}: the model's tokenizer is not the server's: it {ours} where the server {theirs}; "
        "'model' has to be the model that is served"
    )


def _plain(text: str) -> str:
    return "".join(c for c in text if "!" <= c <= "~")


def _holds(whole: str, part: str) -> bool:
    """Whether `part` is `whole` with some characters left out."""
    rest = iter(whole)
    return all(c in rest for c in part)
