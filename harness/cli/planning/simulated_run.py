"""What `simulate` tells of a run: one JSON object, or a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backends.tetris.live.live_run import LiveFaults
    from backends.tetris.planner import StagePlan
    from backends.tetris.simulation.changing import ChangingPlan
    from backends.tetris.simulation.compare import SimulatedSystem

HEADS = ("goodput/s", "pipeline over it", "within SLO", "latency mean", "p99", "batch", "clients")


@dataclass(slots=True)
class SimulatedRun:
    """Systems, the pipeline that keeps its plan `found` first. `planned_again` and `live_plans`
    are those of pipelines that do not, and `faults` the live one's."""

    systems: list[SimulatedSystem]
    found: StagePlan
    copies: int
    planned_s: float
    seconds: float = 0.0
    planned_again: ChangingPlan | None = None
    live_plans: ChangingPlan | None = None
    faults: LiveFaults | None = None

    def to_json(self) -> str:
        """One JSON object."""
        from backends.tetris.simulation import PROVENANCE

        told: dict[str, Any] = {
            "provenance": PROVENANCE,
            "plan": self.found.to_json(self.planned_s),
            "copies": self.copies,
            "systems": [one.to_json() for one in self.systems],
            "seconds": self.seconds,
        }
        if self.planned_again is not None:
            told["planned_again"] = _plans(self.planned_again)
        if self.faults is not None:
            replaced, again = self.faults.replaced, self.faults.run_again
            told["live"] = {"replaced": replaced, "run_again": again}
            told["live"]["dropped"] = self.faults.dropped
            told["live"] |= {} if self.live_plans is None else _plans(self.live_plans)
        return json.dumps(told, allow_nan=False)

    def show(self) -> None:
        """A system a line, each set against the pipeline, and the planner's prediction."""
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("system")
        for name in HEADS:
            table.add_column(name, justify="right")
        for one in self.systems:
            table.add_row(*_row(one, self.systems[0].goodput_per_s))
        console = Console(width=None if Console().is_terminal else 110)
        console.print(table)
        console.print("\n".join(self._lines()), highlight=False, soft_wrap=True, markup=False)

    def _lines(self) -> Iterator[str]:
        piped, found = self.systems[0], self.found
        predicted = piped.predicted_per_s or 0.0
        stages = ", ".join(f"{s.first}–{s.end - 1} on {s.count} × {s.device}" for s in found.stages)
        more = f", {self.copies} times over" if self.copies > 1 else ""
        share = piped.goodput_per_s / predicted
        told = f"simulated over predicted {share:.3f} of {predicted:,.6g} a second"
        yield f"simulation: {piped.requests:,} requests, no model ran   {told}"
        yield f"plan: {stages}{more}   simulated in {self.seconds:.1f} s"
        untried = [one.name for one in self.systems if one.untried]
        if untried:
            told = "pilots would take longer than the run: nothing was chosen by them for"
            yield f"{told} {', '.join(untried)}"
        if self.planned_again is not None:
            yield f"planned again: {_changes(self.planned_again)}"
        if self.live_plans is not None:
            yield f"live, planned again: {_changes(self.live_plans)}"
        if self.faults is not None and self.faults.replaced:
            again = f"{self.faults.run_again:,} requests ran again"
            yield f"live: {self.faults.replaced:,} devices died and were replaced, {again}"


def _plans(changing: ChangingPlan) -> dict[str, Any]:
    plans = [{"at_s": ms / 1e3, "stages": one.stages_json()} for ms, one in changing.plans]
    return {"plans": plans, "stragglers": sorted(changing.stragglers)}


def _changes(changing: ChangingPlan) -> str:
    at = ", ".join(f"{ms / 1e3:.1f} s" for ms, _ in changing.plans[1:])
    changes = f"the plan changed at {at}" if at else "the plan stayed"
    slow = ", ".join(sorted(changing.stragglers))
    return f"{changes}; stragglers: {slow or 'none'}"


def _row(one: SimulatedSystem, piped_per_s: float) -> list[str]:
    ratio = piped_per_s / one.goodput_per_s if one.goodput_per_s else None
    return [
        one.name,
        f"{one.goodput_per_s:,.6g}",
        "–" if ratio is None else f"{ratio:.2f}",
        f"{one.within_slo:.1%}",
        f"{one.latency_ms_mean:.4g} ms",
        f"{one.latency_ms_p99:.4g} ms",
        f"{one.batch:.3g}",
        "open loop" if one.clients is None else f"{one.clients:,}",
    ]
