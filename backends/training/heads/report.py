"""What trained heads are worth on held-out answers, measured with the matrices of use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backends.engine.model.forward import head_product
from backends.training.exits.cache import Cache
from backends.training.heads.fit import chunks
from backends.training.heads.recipe import GAMMAS

BINS = 10


@dataclass(frozen=True)
class Outputs:
    """What one set of heads says at every held-out position; all on the CPU.

    `confidence` float32, `agrees` bool and `kl` float32 (nats) are [positions, layers].
    """

    confidence: Tensor
    agrees: Tensor
    kl: Tensor


@torch.no_grad()
def outputs(head: Tensor, cache: Cache, matrices: Sequence[Tensor]) -> Outputs:
    """Evaluate exit heads at every position of a cache.

    Products of inputs in the model's dtype are summed and kept in float32, as a decoder does.

    Args:
        head: E* [V, d], whose top token at the last boundary is what an exit has to agree with.
        cache: the held-out states.
        matrices: per exit layer, the matrix [V, d] of its logits.
    """
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    wide_head, wide = _wide(head), [_wide(matrix) for matrix in matrices]
    for states in chunks(cache, range(len(cache.workloads)), head):
        states = states.to(wide_head.dtype)
        taught = torch.log_softmax(head_product(states[-1], wide_head), dim=-1)
        final, target = taught.argmax(dim=-1), taught.exp()
        rows = []
        for x, matrix in zip(states[:-1], wide, strict=True):
            student = torch.log_softmax(head_product(x, matrix), dim=-1)
            top, token = student.max(dim=-1)
            rows.append((top.exp(), token == final, (target * (taught - student)).sum(dim=-1)))
        columns = (torch.stack(part, dim=1).cpu() for part in zip(*rows, strict=True))
        found.append(tuple(columns))  # type: ignore[arg-type]
    confidence, agrees, kl = (torch.cat(part) for part in zip(*found, strict=True))
    return Outputs(confidence, agrees, kl)


def summarise(out: Outputs, layer: int, where: Tensor) -> dict[str, Any]:
    """The figures of one layer's head at the positions `where` (bool [positions]).

    Returns:
        `kl` (mean, nats), `agreement` (share whose top token is the final layer's),
        `histogram` of the confidence in ten equal bins, as `count` and `agreement` (null in an
        empty bin) of each, and `over`: for each gamma, the `share` of tokens whose confidence
        is above it and the `agreement` among them.
    """
    confidence, agrees = out.confidence[where, layer], out.agrees[where, layer]
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    count = torch.bincount(bins, minlength=BINS)
    right = torch.bincount(bins[agrees], minlength=BINS)
    return {
        "kl": _rounded(out.kl[where, layer].mean()),
        "agreement": _rounded(agrees.float().mean()),
        "histogram": {
            "count": count.tolist(),
            "agreement": [
                _rounded(r / c) if c else None for r, c in zip(right, count, strict=True)
            ],
        },
        "over": {str(gamma): _over(confidence > gamma, agrees) for gamma in GAMMAS},
    }


def layer_reports(
    cache: Cache, layers: Sequence[int], trained: Outputs, original: Outputs
) -> dict[str, dict[str, Any]]:
    """Per layer, for "all" and for each workload: the figures of the trained and original head."""
    groups = cache.groups()
    return {
        str(layer): {
            name: {
                "positions": int(where.sum()),
                "trained": summarise(trained, number, where),
                "original": summarise(original, number, where),
            }
            for name, where in groups.items()
        }
        for number, layer in enumerate(layers)
    }


def _wide(matrix: Tensor) -> Tensor:
    """On a CPU in float32, once for all positions; a GPU sums in float32 by itself."""
    return matrix if matrix.is_cuda else matrix.float()


def _over(kept: Tensor, agrees: Tensor) -> dict[str, float | None]:
    share = _rounded(kept.float().mean())
    return {"share": share, "agreement": _rounded(agrees[kept].float().mean()) if share else None}


def _rounded(value: Tensor) -> float:
    return round(float(value), 5)
