"""What the training of exits prints while it runs, and around its report."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from backends.training.exits.run import StageProgress

EVERY_S = 2.0


def printer(losses: str) -> Callable[[StageProgress], None]:
    """A progress callback that prints a line every few seconds, and each stage's first,
    and every remark.

    Args:
        losses: what the epochs' held-out losses are.
    """
    last: dict[str, Any] = {"stage": "", "at": 0.0}

    def show(progress: StageProgress) -> None:
        if progress.remark:
            print(progress.remark, flush=True)
            return
        now = time.monotonic()
        if progress.stage == last["stage"] and now - last["at"] < EVERY_S:
            return
        last["stage"], last["at"] = progress.stage, now
        print(_line(progress, losses), flush=True)

    return show


def framed(content: dict[str, Any], table: Callable[[dict[str, Any]], list[str]]) -> list[str]:
    """The lines of a report, and that a training was stopped.

    Args:
        content: of the file with what was learnt.
        table: the lines of its report.
    """
    goes_on = "the same command goes on from here"
    if (report := content.get("report")) is None:
        return [f"stopped before the first epoch; {goes_on}"]
    stopped = [] if content["finished"] else [f"stopped; {goes_on}"]
    first, *others = table(report)
    return [f"{first}; rows of source {content['recipe']['source']}", *others, *stopped]


def _line(progress: StageProgress, losses: str) -> str:
    text = f"{progress.stage}: {progress.done} of {progress.total}"
    if progress.losses is not None:
        text += f"  held-out {losses} " + " ".join(f"{value:.3f}" for value in progress.losses)
    if progress.done > progress.found:
        pace = progress.seconds / (progress.done - progress.found)
        left_s = (progress.total - progress.done) * pace
        text += f"  {left_s:.0f} s left" if left_s < 120 else f"  {left_s / 60:.0f} min left"
    return text
