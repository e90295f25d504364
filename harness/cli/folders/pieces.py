"""What token ids stand for, for pages: read from the model's tokenizer where that is on this
machine. Nothing is downloaded: a page can be made where no model is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from backends.checkpoints.models import BUNDLED, HUB_ID
from harness.core.nouns import Model

FILE = "tokenizer.json"
_SIGNS = {"Ġ": "␣", "▁": "␣", "Ċ": "␊", "ĉ": "␉", " ": "␣", "\n": "␊", "\t": "␉"}
"""Of byte-level and SentencePiece vocabularies, and what shows them."""


def pieces(model: Model) -> Callable[[int], str | None] | None:
    """The text of each token id of a model, white space shown as signs; None where its tokenizer
    is not here. Ids that it does not have are None."""
    path = None if model.shape else _file(model)
    if path is None or not path.is_file():
        return None
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # the library raises that itself, for whatever it cannot read
        return None
    return lambda token: _shown(tokenizer.id_to_token(token)) if token >= 0 else None


def _file(model: Model) -> Path | None:
    if model.name in BUNDLED:
        return BUNDLED[model.name] / FILE
    if HUB_ID.fullmatch(model.name) and not Path(model.name).exists():
        with contextlib.suppress(ImportError):
            from huggingface_hub import try_to_load_from_cache

            found = try_to_load_from_cache(model.name, FILE, revision=model.revision)
            return Path(found) if isinstance(found, str) else None
        return None
    with contextlib.suppress(RuntimeError):
        return Path(model.name).expanduser() / FILE
    return None


def _shown(piece: str | None) -> str | None:
    return None if piece is None else "".join(_SIGNS.get(sign, sign) for sign in piece)
