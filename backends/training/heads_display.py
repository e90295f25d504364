"""What `decodebench train heads` prints: progress lines, and the report as a table."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from backends.training.heads import Progress

EVERY_S = 2.0


def printer() -> Callable[[Progress], None]:
    """A progress callback that prints a line every few seconds, and each stage's first."""
    last: dict[str, Any] = {"stage": "", "at": 0.0}

    def show(progress: Progress) -> None:
        now = time.monotonic()
        if progress.stage == last["stage"] and now - last["at"] < EVERY_S:
            return
        last["stage"], last["at"] = progress.stage, now
        print(_line(progress), flush=True)

    return show


def report_lines(content: dict[str, Any]) -> list[str]:
    """The held-out figures of every layer, trained against original head, as table lines."""
    found = content.get("report")
    if found is None:
        return ["stopped before the first epoch; the same command goes on from here"]
    training, held_out = found["training"], found["held_out"]
    lines = [
        f"{training['epochs']} epochs in {training['seconds']:.0f} s on {training['answers']:,} "
        f"answers ({training['positions']:,} positions); ended: {training['ended']}",
        f"{held_out['answers']:,} held-out answers ({held_out['positions']:,} positions); "
        "the original head in brackets:",
        "layer  KL (nats)        agreement        over 0.75        right there      probe AUC",
    ]
    for layer, by_workload in found["layers"].items():
        own, other = by_workload["all"]["trained"], by_workload["all"]["original"]
        area = found["probes"][layer]["auc"]
        cells = [
            _pair(own["kl"], other["kl"]),
            _pair(own["agreement"], other["agreement"]),
            _pair(own["over"]["0.75"]["share"], other["over"]["0.75"]["share"]),
            _pair(own["over"]["0.75"]["agreement"], other["over"]["0.75"]["agreement"]),
            "-" if area is None else f"{area:.3f}",
        ]
        lines.append(f"{layer:>5}  " + "  ".join(cells))
    if not content["finished"]:
        lines.append("stopped; the same command goes on from here")
    return lines


def _line(progress: Progress) -> str:
    text = f"{progress.stage}: {progress.done} of {progress.total}"
    if progress.kl is not None:
        text += "  held-out KL per layer " + " ".join(f"{value:.3f}" for value in progress.kl)
    if progress.done > progress.found:
        pace = progress.seconds / (progress.done - progress.found)
        left_s = (progress.total - progress.done) * pace
        text += f"  {left_s:.0f} s left" if left_s < 120 else f"  {left_s / 60:.0f} min left"
    return text


def _pair(own: float | None, other: float | None) -> str:
    shown = ["-" if value is None else f"{value:.3f}" for value in (own, other)]
    return f"{shown[0]} ({shown[1]})".ljust(15)
