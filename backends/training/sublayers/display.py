"""What `decodebench train sublayers` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backends.own.drafting.sublayer_sets import ATTENTION, MLP
from backends.training.sublayers.search import SearchProgress

EVERY = 20
"""Iterations between two lines."""


def printer() -> Callable[[SearchProgress], None]:
    """A function that prints a line now and then."""

    def show(seen: SearchProgress) -> None:
        if seen.done % EVERY == 0 or seen.done == seen.total:
            print(
                f"iteration {seen.done} of {seen.total}  predicted speed-up {seen.speed_up:.3f}  "
                f"left out: {seen.best}",
                flush=True,
            )

    return show


def report_lines(content: dict[str, Any]) -> list[str]:
    """The set, and what is expected of it."""
    held_out, predicted = content["held_out"], content["predicted"]
    search = content["search"]
    lines = [
        f"{search['sets']:,} sets in {search['seconds']:.0f} s; of {content['layers']} layers "
        f"drafting leaves out attention {_listed(content[ATTENTION])} and MLP "
        f"{_listed(content[MLP])}",
        f"predicted, one sequence at a time: {predicted['speed_up']:.2f} of plain decoding with "
        f"{predicted['drafts']} drafts; {held_out['speed_up']:.2f} on {held_out['answers']} "
        f"answers that the search did not see, where {held_out['drafts_that_stand']:.2f} of "
        f"{held_out['drafts_made']:.2f} drafts stand",
    ]
    if not predicted["drafts"]:
        lines.append("no set pays here: with 'drafts: auto' drafting will be off")
    return lines


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers)) or "none"
