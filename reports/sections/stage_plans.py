"""The plans of a pipeline that plans while it serves, in words: when, what and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from reports.cells import Cell, Overview
from reports.numbers import significant

MOST_TOLD = 6
"""Plans that are told one by one: the first and the last ones."""
Plan = Mapping[str, Any]


def planned(seen: Overview) -> Iterator[str]:
    """For each cell that has plans those of its first repeat that it uses, and how well survival
    was forecast in it."""
    rows = {row["key"]: row for row in seen.rows}
    for cell in seen.cells:
        used = [row for key in cell.keys if (row := rows.get(key)) and row.get("plans")]
        used = [row for row in used if not row.get("left_out")] or used
        if used and cell.stands_alone:
            yield _of_trial(cell, used[0])


def _of_trial(cell: Cell, row: Mapping[str, Any]) -> str:
    made = list(row["plans"].values())
    where = f"{cell.variant.label} under {cell.condition}, {cell.workload}"
    told = [f"{where}: began with {stages(made[0])}"]
    changes = list(pairwise(made))
    shown = changes if len(changes) < MOST_TOLD else [changes[0], *changes[-MOST_TOLD + 2 :]]
    for before, plan in shown:
        if len(shown) < len(changes) and plan is shown[1][1]:
            told.append(f"{len(changes) - len(shown)} more plans")
        told.append(f"at {significant(plan['at_s'])} s {stages(plan)}, because {why(before, plan)}")
    if not changes:
        told.append("no later plan was another one")
    windows = row.get("planned_windows") or {}
    return "; ".join(told) + "." + "".join(_forecast(list(windows.values())))


def stages(plan: Plan) -> str:
    """Layers and workers of each stage: "layers 1-2 on 1 worker, 3-8 on 2"."""
    found, first = [], 1
    for end, count in plan["workers"].items():
        layers = end if int(end) == first else f"{first}-{end}"
        found.append(f"{layers} on {count:.0f}")
        first = int(end) + 1
    many = plan["workers"].values()
    return f"layers {', '.join(found)} worker{'s' * (list(many)[-1] != 1)}"


def why(before: Plan, plan: Plan) -> str:
    """What made the plan another one than that of before."""
    if plan["left_out"] > before["left_out"]:
        count = int(plan["left_out"])
        return f"{count} worker{'s' * (count > 1)} had become slow"
    return "other shares were expected to leave"


def _forecast(windows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The mean error over windows and ramps, and the first ramp one by one."""
    known = [one for one in windows if one["forecast"]]
    if not known:
        return
    errors = [
        abs(share - one["alive"][ramp]) for one in known for ramp, share in one["forecast"].items()
    ]
    mean = 100 * sum(errors) / len(errors)
    ramp = next(iter(known[0]["forecast"]))
    series = ", ".join(
        f"{100 * one['forecast'][ramp]:.0f}/{100 * one['alive'][ramp]:.0f}"
        for one in known[-MOST_TOLD:]
    )
    yield (
        f" Survival at the ramps was forecast to within {significant(mean)} points on average of "
        f"what {len(known)} window{'s' * (len(known) > 1)} then saw; behind layer {ramp}, forecast"
        f"/measured in %: {series}."
    )
