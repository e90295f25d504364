"""What `decodebench train heads` prints at its end: the report as a table."""

from __future__ import annotations

from typing import Any

from backends.training.exits.display import framed


def report_lines(content: dict[str, Any]) -> list[str]:
    """The held-out figures of every layer, trained against original head, as table lines."""
    return framed(content, _table)


def _table(found: dict[str, Any]) -> list[str]:
    training, held_out = found["training"], found["held_out"]
    lines = [
        f"{training['epochs']} epochs in {training['seconds']:.0f} s on {training['answers']:,} "
        f"answers ({training['positions']:,} positions); ended: {training['ended']}",
        f"{held_out['answers']:,} held-out answers ({held_out['positions']:,} positions), by which "
        "each layer's best epoch was chosen; the original head in brackets:",
        "layer  KL (nats)        agreement        over 0.75        right there",
    ]
    for layer, by_workload in found["layers"].items():
        own, other = by_workload["all"]["trained"], by_workload["all"]["original"]
        cells = [
            _pair(own["kl"], other["kl"]),
            _pair(own["agreement"], other["agreement"]),
            _pair(own["over"]["0.75"]["share"], other["over"]["0.75"]["share"]),
            _pair(own["over"]["0.75"]["agreement"], other["over"]["0.75"]["agreement"]),
        ]
        lines.append(f"{layer:>5}  " + "  ".join(cells))
    idle = [
        layer
        for layer, best, *epochs in zip(
            found["layers"], training["best_held_out_kl"], *training["held_out_kl"], strict=True
        )
        if epochs and min(epochs) > best
    ]
    return [*lines, *(nothing_learnt(layer) for layer in idle)]


def nothing_learnt(layer: str) -> str:
    """What to say of a layer whose head no epoch made better."""
    return (
        f"layer {layer}: no epoch did better on the held-out rows than the original head, which "
        "was kept: take more --rows, or a lower --lr in another folder"
    )


def _pair(own: float | None, other: float | None) -> str:
    shown = ["-" if value is None else f"{value:.3f}" for value in (own, other)]
    return f"{shown[0]} ({shown[1]})".ljust(15)
