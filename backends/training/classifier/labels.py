"""What an exit classifier has to say: where a layer's top token is already the last layer's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from backends.engine.model.forward import final_logits
from backends.training.exits.backbone import Backbone
from backends.training.exits.cache import KEEP_EVERY_S, Cache
from backends.training.small_models.checkpoint import load_state, save_state

LOGITS = {"cpu": 1 << 21, "cuda": 1 << 26}
"""Logits computed at once."""


@dataclass(frozen=True)
class Labels:
    """Of every layer but the last and every position of a cache; on the CPU."""

    agrees: Tensor
    """bool [layers, positions]: argmax head(norm(h)) is that of the last layer."""
    margin: Tensor
    """float32 [layers, positions]: top-1 minus top-2 probability, the confidence measure that costs
    a head's product where the classifier costs d."""

    def shares(self) -> Tensor:
        """float64 [layers]: how many positions agree."""
        return self.agrees.double().mean(dim=1)


@torch.no_grad()
def label(
    path: Path, backbone: Backbone, cache: Cache, going_on: Callable[[int], bool]
) -> Labels | None:
    """Put every layer's state through the model's final norm and head.

    The tokens are the model's own greedy answer, so the last layer's top token is the next of them.
    Inputs of the head are in the model's dtype, its logits float32, as in `final_logits`.

    Args:
        path: file that keeps the labels; what an earlier run has put there, or beside it as far as
            it came, is used again.
        backbone: the frozen model.
        cache: states of the residual stream after the exit layers and the last.
        going_on: called with the number of positions done so far; False stops early.

    Returns:
        None when it was stopped early.
    """
    if (kept := load_state(path)) is not None:
        return Labels(**kept)
    head = backbone.head
    rows = max(16, LOGITS[head.device.type] // (head.shape[0] * len(cache.states)))
    begun = path.with_name(f"{path.name}.begun")
    parts = [Labels(**kept)] if (kept := load_state(begun)) is not None else []
    kept_at = time.monotonic()
    for begin in range(parts[0].agrees.shape[1] if parts else 0, cache.positions, rows):
        stopped = not going_on(begin)
        if parts and (stopped or time.monotonic() - kept_at >= KEEP_EVERY_S):
            parts = [_joined(parts)]
            save_state(begun, vars(parts[0]))
            kept_at = time.monotonic()
        if stopped:
            return None
        part = cache.states[:, begin : begin + rows].to(head.device)
        logits = final_logits(backbone.weights, part)
        top = logits[:-1].softmax(dim=-1).topk(2, dim=-1).values
        tokens = logits.argmax(dim=-1)
        agrees = (tokens[:-1] == tokens[-1]).cpu()
        parts.append(Labels(agrees, (top[..., 0] - top[..., 1]).cpu()))
    found = _joined(parts)
    save_state(path, vars(found))
    begun.unlink(missing_ok=True)
    return found


def _joined(parts: Sequence[Labels]) -> Labels:
    """Those of one run of positions after another."""
    return Labels(
        torch.cat([part.agrees for part in parts], dim=1),
        torch.cat([part.margin for part in parts], dim=1),
    )
