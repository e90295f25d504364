"""The demo's draft model with other numbers for its tokens, as a model of another tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from backends.checkpoints import models

EMBEDDING = "model.embed_tokens.weight"
MORE = 64
"""Rows of the vocabulary that no token has."""


def permuted_draft(folder: Path) -> Path:
    """Fill `folder` with it. All but the special tokens change their numbers at random; what it
    predicts, as text, stays."""
    shutil.copytree(models.BUNDLED["demo-draft"], folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {token["id"] for token in tokenizer["added_tokens"]}
    before: dict[str, int] = tokenizer["model"]["vocab"]
    free = sorted(set(before.values()) - special)
    drawn = torch.randperm(len(free), generator=torch.Generator().manual_seed(0)).tolist()
    moved = {number: free[place] for number, place in zip(free, drawn, strict=True)}
    tokenizer["model"]["vocab"] = {text: moved.get(n, n) for text, n in before.items()}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] += MORE
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    plain = tensors[EMBEDDING]
    rows = torch.zeros(config["vocab_size"], plain.shape[1], dtype=plain.dtype)
    rows[: len(plain)] = plain
    rows[list(moved.values())] = plain[list(moved)]
    save_file({**tensors, EMBEDDING: rows}, folder / "model.safetensors", {"format": "pt"})
    return folder
