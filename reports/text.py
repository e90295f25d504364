"""Untrusted text made safe to read: model output may hold anything.

Escaping is Jinja's business (autoescape) and, inside scripts, `script_json`'s. This module makes
what cannot be seen visible, so that two answers that differ also look different.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_LONGEST_MARK_RUN = 4


def visible(text: str) -> str:
    """The text with control, direction-changing and zero-width characters shown, not obeyed.

    C0 controls become their Unicode picture (NUL is ``␀``); the others become ``⟨U+202E⟩``.
    Newline, tab and the joiner inside emoji stay. Of more than four combining marks in a row the
    rest is dropped, so that piled-up marks cannot cover the lines around them.
    """
    return _without_mark_piles(_INVISIBLE.sub(_picture, text))


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"⟨U+{code:04X}⟩"


def _without_mark_piles(text: str) -> str:
    if text.isascii():
        return text
    kept: list[str] = []
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run <= _LONGEST_MARK_RUN:
            kept.append(character)
    return "".join(kept)


def clipped(text: str, limit: int) -> str:
    """The text, or its first `limit` characters and a note of how many are left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [{len(text) - limit:,} more characters]"


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning and end with an ellipsis, `limit` characters in all."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1].rstrip()}…{text[-tail:].lstrip()}"


def common_prefix(first: str, second: str) -> int:
    """Length of the common start of two texts, never inside a letter with its combining marks."""
    length = min(len(first), len(second))
    low, high = 0, length
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    while low > 0 and any(
        unicodedata.combining(text[low : low + 1] or " ") for text in (first, second)
    ):
        low -= 1
    return low


def script_json(data: Any) -> Markup:
    """JSON that is safe inside a script element: no ``<``, ``>``, ``&``, U+2028 or U+2029 in it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def distinct(texts: Iterable[str]) -> dict[str, str]:
    """Each text, safe to show and shortened, so that no two look alike."""
    found: dict[str, str] = {}
    for text in texts:
        if text not in found:
            short = visible(shortened(text, 60))
            found[text] = short if short not in found.values() else f"{short} ({len(found) + 1})"
    return found
