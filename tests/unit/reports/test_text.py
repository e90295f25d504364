"""Untrusted text: what cannot be seen is shown, and nothing can leave its element."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.text import clipped, common_prefix, distinct, script_json, shortened, visible


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\x00b", "a\u2400b"),
        ("\x1b[31mred", "\u241b[31mred"),
        ("\x7f", "\u2421"),
        ("\u202eevil", "⟨U+202E⟩evil"),
        ("\u2066x\u2069", "⟨U+2066⟩x⟨U+2069⟩"),
        ("a\u200bb", "a⟨U+200B⟩b"),
        ("\ud800", "⟨U+D800⟩"),
        ("line\n\ttab", "line\n\ttab"),
        ("\U0001f469\u200d\U0001f4bb", "\U0001f469\u200d\U0001f4bb"),
        ("a\r\nb", "a\u240d\nb"),
    ],
)
def test_visible_shows_what_would_be_obeyed(raw: str, shown: str) -> None:
    assert visible(raw) == shown


def test_visible_cuts_piled_up_marks_but_keeps_ordinary_ones() -> None:
    pile = "Z" + "\u0351" * 50
    assert visible(pile) == "Z" + "\u0351" * 4
    assert visible("e\u0301a\u0302") == "e\u0301a\u0302"


@given(st.text())
def test_visible_text_holds_nothing_invisible_and_can_be_written(raw: str) -> None:
    shown = visible(raw)
    shown.encode()
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_script_json_keeps_the_data_and_cannot_end_the_element(text: str) -> None:
    written = script_json({"text": text, "trap": "</script><!--]]>"})
    assert json.loads(written) == {"text": text, "trap": "</script><!--]]>"}
    assert not set(written) & set("<>&\u2028\u2029")


@given(st.text(), st.text(), st.text())
def test_common_prefix_is_common_and_splits_no_letter(start: str, one: str, other: str) -> None:
    first, second = start + one, start + other
    length = common_prefix(first, second)
    assert first[:length] == second[:length]
    for text in (first, second):
        assert length in (0, len(text)) or not unicodedata.combining(text[length])


def test_common_prefix_is_the_longest_one() -> None:
    assert common_prefix("the old bridge", "the new bridge") == 4
    assert common_prefix("same", "same and more") == 4
    assert common_prefix("cafe\u0301", "cafe\u0300") == 3
    assert common_prefix("cafes", "cafe\u0301") == common_prefix("cafe\u0301", "cafes") == 3


def test_clipped_says_how_much_is_missing() -> None:
    assert clipped("x" * 10, 10) == "x" * 10
    assert clipped("x" * 1500, 10) == "x" * 10 + "… [1,490 more characters]"


def test_shortened_keeps_both_ends_within_the_limit() -> None:
    assert shortened("vllm-early-exit threshold=0.9", 20) == "vllm-early-ex…ld=0.9"
    assert len(shortened("x" * 99, 20)) == 20


def test_texts_that_are_shortened_stay_distinct() -> None:
    paths = [f"trace /data/{'x' * 60}/week{n}/arrivals.csv" for n in (1, 2)]
    found = distinct([*paths, paths[0], "closed c=1"])
    assert len(set(found.values())) == len(found) == 3
    assert found["closed c=1"] == "closed c=1"
    assert max(map(len, found.values())) <= 64
