"""What a trained exit classifier is worth on held-out answers, measured with the weights of use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from backends.training.classifier.labels import Labels
from backends.training.exits.cache import Cache

THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95)
ROWS = 4096


@torch.no_grad()
def confidences(cache: Cache, weight: Tensor, bias: Tensor) -> Tensor:
    """The classifier's confidence after every exit layer at every position of a cache.

    Args:
        cache: states of the residual stream, widened to float32 here as a decoder does.
        weight, bias: float32 [2, d] and [2], on the CPU.

    Returns:
        float32 [layers, positions].
    """
    slope, offset = weight[1] - weight[0], bias[1] - bias[0]
    parts = torch.split(cache.states[:-1], ROWS, dim=1)
    return torch.cat([(part.float() @ slope + offset).sigmoid() for part in parts], dim=1)


def held_out_report(
    cache: Cache, layers: Sequence[int], labels: Labels, confidence: Tensor, *, depth: int
) -> dict[str, Any]:
    """Per layer and per threshold, for "all" workloads and for each, of a model of `depth` layers.

    Returns:
        `layers`: for each layer, `positions`; `agrees`, the share of positions at which an exit
        gives the last layer's token; `accuracy` of confidence > 0.5, `balanced_accuracy` (mean of
        both classes'); `auc`, and for comparison `softmax_auc` of the top-1 minus top-2
        probability; `over`: at each threshold the `share` passing it and the `precision` among
        them. `exits`: at each threshold, where every position takes its first passage and nothing
        else changes, `layers_run` of a token, the share `skipped` of layers, and `agreement` with
        the last layer's token.
    """
    groups = cache.groups()
    by_layer: dict[str, Any] = {
        str(layer): {
            name: _layer(
                labels.agrees[row, where], confidence[row, where], labels.margin[row, where]
            )
            for name, where in groups.items()
        }
        for row, layer in enumerate(layers)
    }
    exits = {
        name: {
            str(threshold): _exits(
                labels.agrees[:, where], confidence[:, where] > threshold, layers, depth
            )
            for threshold in THRESHOLDS
        }
        for name, where in groups.items()
    }
    return {"layers": by_layer, "exits": exits}


def auc(scores: Tensor, labels: Tensor) -> float | None:
    """Area under the ROC curve: the chance that a true one scores above a false one, ties half.

    None when the labels are all the same.
    """
    positive, negative = int(labels.sum()), int((~labels).sum())
    if not positive or not negative:
        return None
    _, inverse, count = torch.unique(scores, return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    rank = last - (count - 1) / 2
    total = float(rank[inverse][labels].sum())
    return (total - positive * (positive + 1) / 2) / (positive * negative)


def _layer(agrees: Tensor, confidence: Tensor, margin: Tensor) -> dict[str, Any]:
    right = (confidence > 0.5) == agrees
    recalls = [right[part].double().mean() for part in (agrees, ~agrees) if bool(part.any())]
    return {
        "positions": len(agrees),
        "agrees": _share(agrees),
        "accuracy": _share(right),
        "balanced_accuracy": round(float(torch.stack(recalls).mean()), 5),
        "auc": _rounded(auc(confidence, agrees)),
        "softmax_auc": _rounded(auc(margin, agrees)),
        "over": {
            str(threshold): {
                "share": _share(confidence > threshold),
                "precision": _share(agrees[confidence > threshold]),
            }
            for threshold in THRESHOLDS
        },
    }


def _exits(
    agrees: Tensor, passed: Tensor, layers: Sequence[int], depth: int
) -> dict[str, float | None]:
    """Of agrees and passed, bool [layers, positions], in a model of `depth` layers."""
    taken = torch.cat([passed, torch.ones_like(passed[:1])]).int().argmax(dim=0)
    right = torch.cat([agrees, torch.ones_like(agrees[:1])]).gather(0, taken[None])[0]
    run = torch.tensor([*layers, depth])[taken].double().mean()
    return {
        "layers_run": round(float(run), 4),
        "skipped": round(1 - float(run) / depth, 5),
        "agreement": _share(right),
    }


def _share(marks: Tensor) -> float | None:
    return round(float(marks.double().mean()), 5) if len(marks) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)
