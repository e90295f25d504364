"""What `decodebench train classifier` prints at its end: the report as two tables."""

from __future__ import annotations

from typing import Any

from backends.training.exits.display import framed

NOTHING_LEARNT = (
    "no epoch did better on the held-out rows than a classifier that says nothing, which was kept: "
    "take more --rows, or a lower --lr in another folder"
)


def report_lines(content: dict[str, Any]) -> list[str]:
    """The held-out figures of every layer, then of first passages at every threshold."""
    return framed(content, _table)


def _table(found: dict[str, Any]) -> list[str]:
    training, held_out = found["training"], found["held_out"]
    lines = [
        f"{training['epochs']} epochs in {training['seconds']:.0f} s on {training['answers']:,} "
        f"answers ({training['positions']:,} positions); ended: {training['ended']}",
        f"{held_out['answers']:,} held-out answers ({held_out['positions']:,} positions), by which "
        "the best epoch was chosen:",
        "layer  agrees  AUC    of softmax  balanced  over 0.5  right  over 0.9  right",
    ]
    for layer, by_workload in found["layers"].items():
        own = by_workload["all"]
        half, nine = own["over"]["0.5"], own["over"]["0.9"]
        cells = [
            _cell(own["agrees"], 6),
            _cell(own["auc"], 5),
            _cell(own["softmax_auc"], 10),
            _cell(own["balanced_accuracy"], 8),
            _cell(half["share"], 8),
            _cell(half["precision"], 5),
            _cell(nine["share"], 8),
            _cell(nine["precision"], 5),
        ]
        lines.append(f"{layer:>5}  " + "  ".join(cells))
    lines.append("threshold  layers run  skipped  agreement (each token at its first passage)")
    for threshold, own in found["exits"]["all"].items():
        lines.append(
            f"{threshold:<9}  {own['layers_run']:<10.2f}  {_cell(own['skipped'], 7)}  "
            f"{_cell(own['agreement'], 9)}".rstrip()
        )
    if min(training["held_out_loss"]) > training["best_held_out_loss"]:
        lines.append(NOTHING_LEARNT)
    return lines


def _cell(value: float | None, width: int) -> str:
    return ("-" if value is None else f"{value:.3f}").ljust(width)
