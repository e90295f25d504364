"""Medusa heads for the demo model that need no training: what they draft is fitted to some answers,
which they do not all remember."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from backends.checkpoints import models
from backends.checkpoints.draft_heads.files import medusa_config, write_files

HEADS = 3


def fitted_medusa(folder: Path, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> str:
    """Fill `folder` with heads whose blocks do nothing, and whose matrices to the vocabulary are
    those of least squares from the last states to the tokens to be drafted. `texts`: prompts with
    their answers."""
    demo = models.BUNDLED["demo"]
    model = AutoModelForCausalLM.from_pretrained(demo, dtype=torch.float32)
    width, rows = model.config.hidden_size, model.config.vocab_size
    states, tokens = [], []
    with torch.inference_mode():
        for prompt, answer in texts:
            ids = torch.tensor([[*prompt, *answer]])
            found = model.model(ids).last_hidden_state[0]
            for place in range(len(prompt) - 1, ids.shape[1] - 1 - HEADS):
                states.append(found[place])
                tokens.append(ids[0, place + 2 : place + 2 + HEADS])
    inputs, wanted = torch.stack(states), torch.stack(tokens)
    tensors = {}
    for head in range(HEADS):
        outputs = torch.nn.functional.one_hot(wanted[:, head], rows).float()
        seen = width >> head + 1  # numbers of a state: later drafts are worse, as trained ones are
        fitted = torch.zeros(rows, width)
        fitted[:, :seen] = torch.linalg.lstsq(inputs[:, :seen], outputs).solution.T
        tensors[f"blocks.{head}.layers.0.weight"] = torch.zeros(width, width)
        tensors[f"lm_heads.{head}.weight"] = fitted
    folder.mkdir()
    write_files(folder, {**medusa_config(demo, HEADS), "original_lm_head": False}, tensors)
    return str(folder)
