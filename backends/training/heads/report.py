"""What trained heads are worth on held-out answers, measured with the matrices of use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backends.engine.model.forward import head_product
from backends.engine.model.heads import folded
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
def outputs(head: Tensor, cache: Cache, parameters: Sequence[Tensor | None]) -> Outputs:
    """Evaluate exit heads at every position of a cache.

    Products of inputs in the model's dtype are summed and kept in float32, as a decoder does. One
    head at a time is folded: each is as large as the model's own.

    Args:
        head: E* [V, d], whose top token at the last boundary is what an exit has to agree with.
        cache: the held-out states.
        parameters: per exit layer, what `folded` makes the matrix of its logits from; None: the
            model's own head.
    """
    columns = [_outputs(head, cache, layer, one) for layer, one in enumerate(parameters)]
    confidence, agrees, kl = (torch.stack(part, dim=1) for part in zip(*columns, strict=True))
    return Outputs(confidence, agrees, kl)


def _outputs(
    head: Tensor, cache: Cache, layer: int, parameter: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Of one layer: its confidence, agreement and KL at every position, on the CPU."""
    wide_head = _wide(head)
    wide = wide_head if parameter is None else _wide(folded(head, parameter))
    found: list[list[Tensor]] = []
    for states in chunks(cache, range(len(cache.workloads)), head, [layer]):
        x, last = states.to(wide_head.dtype)
        taught = torch.log_softmax(head_product(last, wide_head), dim=-1)
        student = torch.log_softmax(head_product(x, wide), dim=-1)
        top, token = student.max(dim=-1)
        agrees = token == taught.argmax(dim=-1)
        kl = (taught.exp() * (taught - student)).sum(dim=-1)
        found.append([part.cpu() for part in (top.exp(), agrees, kl)])
    confidence, right, distance = (torch.cat(part) for part in zip(*found, strict=True))
    return confidence, right, distance


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
