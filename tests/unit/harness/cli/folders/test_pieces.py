"""The text of token ids, from tokenizers that are here."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.folders.pieces import pieces
from harness.core.nouns import Model


def test_the_bundled_model_s_tokens_have_their_text() -> None:
    piece = pieces(Model("demo"))
    assert piece is not None
    shown = [piece(token) for token in range(400)]
    assert "a" in shown
    assert any(text and text.startswith("␣") and len(text) > 2 for text in shown)
    assert (piece(10**6), piece(-1)) == (None, None)


@pytest.mark.parametrize(
    "model", [Model("nobody/nothing"), Model("/nowhere"), Model("0.1b", shape=True)]
)
def test_what_is_not_here_is_not_looked_for(model: Model) -> None:
    assert pieces(model) is None


def test_a_broken_tokenizer_costs_the_words_only(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    assert pieces(Model(str(tmp_path))) is None
