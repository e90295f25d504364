"""What `decodebench train eagle` and `train medusa` print at their end: acceptance as a table."""

from __future__ import annotations

from typing import Any

from backends.training.exits.display import framed


def report_lines(content: dict[str, Any]) -> list[str]:
    """The held-out figures of every workload, as table lines."""
    return framed(content, _table)


def _table(found: dict[str, Any]) -> list[str]:
    training, held_out = found["training"], found["held_out"]
    places = len(held_out["all"]["acceptance"])
    lines = [
        f"{training['epochs']} epochs in {training['seconds']:.0f} s on {training['answers']:,} "
        f"answers; ended: {training['ended']}",
        f"{held_out['all']['answers']:,} held-out answers, {held_out['all']['tokens']:,} tokens "
        "after each one's first, greedy; the best epoch was chosen by these answers:",
        "workload       tokens a step  accepted at "
        + "".join(f"{i + 1:<7}" for i in range(places)),
    ]
    for name, own in held_out.items():
        cells = "".join("-      " if x is None else f"{x:<7.3f}" for x in own["acceptance"])
        lines.append(f"{name:<15}{own['tokens_per_step']:<15.2f}            {cells}".rstrip())
    return lines
