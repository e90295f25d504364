"""The command `plan`: the stages of an early-exit pipeline for a profile, a cluster and an SLO."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.planning.told import log_decisions, read_json
from harness.core.errors import UserError

if TYPE_CHECKING:
    from backends.tetris.planner import StagePlan
    from backends.tetris.simulation.baselines import BaselinePlan


def plan(
    profile: Annotated[Path, typer.Option(help="Measured layers and survival (JSON).")],
    cluster: Annotated[Path, typer.Option(help="Devices and their prices (YAML).")],
    slo_ms: Annotated[float, typer.Option(help="Bound on the longest latency that is expected.")],
    slack_ms: Annotated[
        float, typer.Option(help="Of it, kept for survivors that come in lumps.")
    ] = 0.0,
    rate: Annotated[float | None, typer.Option(help="Requests that arrive a second.")] = None,
    budget: Annotated[float | None, typer.Option(help="Highest price of all devices.")] = None,
    min_cost: Annotated[
        bool, typer.Option("--min-cost", help="The cheapest plan that reaches --target.")
    ] = False,
    target: Annotated[float | None, typer.Option(help="Goodput, requests a second.")] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="What ramps said (JSON): survival under the plan's own cuts."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Cut an early-exit model into stages: highest goodput or lowest cost within an SLO; and say
    what the same devices give without stages, and whether the plan can pay."""
    if min_cost != (target is not None):
        given, missing = ("--min-cost", "--target") if min_cost else ("--target", "--min-cost")
        raise UserError(f"{given}: expected {missing} beside it")
    from backends.tetris import own_survival, planner
    from backends.tetris.profile import Wanted, cluster_from, profile_from
    from backends.tetris.simulation.baselines import baselines, refusal
    from harness.experiment.strict_yaml import read_yaml

    wanted = Wanted(slo_ms, slack_ms, rate, budget, target)
    model = profile_from(read_json(profile), str(profile))
    devices = cluster_from(read_yaml(cluster), str(cluster), model)
    decisions = None
    if log is not None:
        decisions, ramps = log_decisions(log, model.layers, model.ramps)
        model = replace(model, survival=tuple(decisions.alive().tolist()), ramps=ramps)
    begin = time.perf_counter()
    if decisions is None:
        found = planner.plan(model, devices, wanted)
    else:
        found, _ = own_survival.plan(model, devices, wanted, decisions)
    seconds = time.perf_counter() - begin
    others = baselines(model, devices, wanted, decisions)
    refused = refusal(found, others, wanted)
    if as_json:
        print(json.dumps(_told(found, seconds, others, refused), allow_nan=False))
    else:
        _show(found, seconds)
        _show_others(found, others)
        print(refused or "no baseline is predicted to give more for less")


def _told(
    found: StagePlan,
    seconds: float,
    others: Mapping[str, BaselinePlan | None],
    refused: str | None,
) -> dict[str, Any]:
    told = {name: one and one.to_json() for name, one in others.items()}
    return {**found.to_json(seconds), "baselines": told, "refused": refused}


def _show_others(found: StagePlan, others: Mapping[str, BaselinePlan | None]) -> None:
    """A baseline a line, and how much of it the plan gives."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("the same devices without stages")
    for name in ("goodput/s", "plan over it", "latency", "cost", "devices"):
        table.add_column(name, justify="right")
    for name, one in others.items():
        if one is None:
            table.add_row(name, *["–"] * 5)
            continue
        used = ", ".join(f"{n} × {kind}" for kind, n in one.devices.items())
        share = f"{found.goodput_per_s / one.goodput_per_s:.2f}"
        numbers = f"{one.goodput_per_s:,.6g}", share, f"{one.latency_ms:.4g} ms", f"{one.cost:.6g}"
        table.add_row(name, *numbers, escape(used))
    Console(width=None if Console().is_terminal else 100).print(table)


def _show(found: StagePlan, seconds: float) -> None:
    """The pipeline, a stage a line, and what it gives."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("pipeline", "layers", "devices", "cycle", "share alive"):
        table.add_column(name, justify="left" if name in ("pipeline", "devices") else "right")
    for place, one in enumerate(found.stages):
        table.add_row(
            "└─▶ " * (place > 0) + f"stage {place + 1}",
            f"{one.first}–{one.end - 1}" if one.end - one.first > 1 else f"{one.first}",
            escape(f"{one.count} × {one.device}"),
            f"{one.cycle_ms:.3g} ms",
            f"{one.alive:.0%}",
        )
    console = Console(width=None if Console().is_terminal else 100)
    console.print(table)
    what = f"goodput {found.goodput_per_s:,.6g} a second   latency {found.latency_ms:.4g} ms"
    more = f"cost {found.cost:.6g}   batch {found.batch}, one every {found.cycle_ms:.3g} ms"
    console.print(f"{what}   {more}\nplanned in {seconds:.3f} s", highlight=False, soft_wrap=True)
