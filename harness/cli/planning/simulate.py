"""The command `simulate`: a planned pipeline and its baselines, event by event."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.planning.told import read_json
from harness.core.errors import UserError
from harness.core.files import MIB

if TYPE_CHECKING:
    from backends.tetris.live.pipeline_driver import LiveFaults
    from backends.tetris.pipeline.leaving import LeaveDecisions
    from backends.tetris.planner import StagePlan
    from backends.tetris.profile import StageProfile
    from backends.tetris.simulation.compare import SimulatedSystem

MOST_REQUESTS = 10_000_000
MOST_TRACE_BYTES = 512 * MIB


def simulate(
    profile: Annotated[Path, typer.Option(help="Measured layers and survival (JSON).")],
    cluster: Annotated[Path, typer.Option(help="Devices and their prices (YAML).")],
    slo_ms: Annotated[float, typer.Option(help="Latency that an answer may have.")],
    slack_ms: Annotated[float, typer.Option(help="Of it, kept in reserve by the plan.")] = 0.0,
    rate: Annotated[
        float | None, typer.Option(help="Open loop: requests that arrive a second.")
    ] = None,
    plan_rate: Annotated[
        float | None, typer.Option(help="Plan for this rate instead, as headroom for bursts.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="Closed loop: clients; by default the best number of each.")
    ] = None,
    requests: Annotated[int, typer.Option(help="How many there are.")] = 100_000,
    copies: Annotated[int, typer.Option(help="Of the cluster, side by side.")] = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Logged ramps (JSON) instead of the profile's survival.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Run it on emulated devices too: Ray actors that wait.")
    ] = False,
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster, HOST:PORT; else one on this machine.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Simulate a planned pipeline beside its baselines: goodput on any number of devices."""
    _check_load(rate, plan_rate, clients, requests, copies, seed)
    if address is not None and not live:
        raise UserError("--address: expected --live beside it")
    if live and copies > 1:
        raise UserError("--live: expected one cluster, found --copies above 1")
    from backends.tetris import planner
    from backends.tetris.pipeline.stage_times import StageTimes
    from backends.tetris.profile import Wanted, cluster_from, profile_from
    from backends.tetris.simulation.compare import SimulatedLoad, compare
    from harness.experiment.strict_yaml import read_yaml

    wanted = Wanted(slo_ms, slack_ms, rate)
    planned_for = rate if plan_rate is None else plan_rate
    if planned_for is not None:
        wanted = replace(wanted, rate=planned_for / copies)
    model = profile_from(read_json(profile), str(profile))
    devices = cluster_from(read_yaml(cluster), str(cluster), model)
    decisions, ramps = _decisions(model, trace, requests, seed)
    if trace is not None:
        model = replace(model, survival=tuple(decisions.alive().tolist()), ramps=ramps)
    times = StageTimes(model, str(profile))
    begin = time.perf_counter()
    found = planner.plan(model, devices, wanted)
    planned_s = time.perf_counter() - begin
    if live:
        from backends.tetris.live.devices import check_devices, check_ray

        check_ray(address)
        check_devices(sum(one.count for one in found.stages), address)
    load = SimulatedLoad(rate, clients, seed)
    systems = list(compare(times, devices, found, decisions, load, slo_ms, copies))
    faults = None
    if live:
        from backends.tetris.live.row import live_system

        row, faults = live_system(times, found, decisions, load, systems[0], slo_ms, address)
        systems.insert(1, row)
    seconds = time.perf_counter() - begin
    if as_json:
        print(_json(systems, found.to_json(planned_s), copies, seconds, faults))
    else:
        _show(systems, found, copies, seconds)
        if faults is not None and faults.replaced:
            again = f"{faults.run_again:,} requests ran again"
            print(f"live: {faults.replaced:,} devices died and were replaced, {again}")


def _check_load(
    rate: float | None,
    plan_rate: float | None,
    clients: int | None,
    requests: int,
    copies: int,
    seed: int,
) -> None:
    if rate is not None and clients is not None:
        raise UserError("--clients: closed loop; expected it or --rate, not both")
    if plan_rate is not None and rate is None:
        raise UserError("--plan-rate: open loop; expected --rate beside it")
    if plan_rate is not None and not 0 < plan_rate < math.inf:
        raise UserError(f"--plan-rate: expected a number above 0, found {plan_rate:g}")
    _whole("--requests", requests, 1, MOST_REQUESTS)
    _whole("--copies", copies, 1, requests)
    if clients is not None:
        _whole("--clients", clients, copies, MOST_REQUESTS)
    _whole("--seed", seed, 0, 2**31)


def _whole(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UserError(f"{option}: expected a whole number of {least} to {most:,}, found {value}")


def _decisions(
    model: StageProfile, trace: Path | None, requests: int, seed: int
) -> tuple[LeaveDecisions, tuple[int, ...] | None]:
    """Who leaves where, and behind which layers there is a ramp (None: behind all)."""
    from backends.tetris.pipeline import leaving

    if requests * model.layers > leaving.MOST_DECISIONS:
        most = f"{leaving.MOST_DECISIONS // model.layers:,} for a model of {model.layers} layers"
        raise UserError(f"--requests: expected at most {most}, found {requests}")
    if trace is None:
        return leaving.drawn(model.survival, requests, seed), model.ramps
    log = leaving.log_from(read_json(trace, MOST_TRACE_BYTES), str(trace), model.layers)
    ramps = tuple(one for one in log.after if one < model.layers)
    return leaving.logged(log, model.layers, requests), ramps


def _json(
    systems: list[SimulatedSystem],
    plan: dict[str, Any],
    copies: int,
    seconds: float,
    faults: LiveFaults | None,
) -> str:
    from backends.tetris.simulation import PROVENANCE

    told = {
        "provenance": PROVENANCE,
        "plan": plan,
        "copies": copies,
        "systems": [one.to_json() for one in systems],
        "seconds": seconds,
    }
    if faults is not None:
        told["live"] = {"replaced": faults.replaced, "run_again": faults.run_again}
    return json.dumps(told, allow_nan=False)


def _show(systems: list[SimulatedSystem], found: StagePlan, copies: int, seconds: float) -> None:
    """A system a line, each set against the pipeline, and the planner's prediction."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("system")
    heads = (
        "goodput/s",
        "pipeline over it",
        "within SLO",
        "latency mean",
        "p99",
        "batch",
        "clients",
    )
    for name in heads:
        table.add_column(name, justify="right")
    piped = systems[0]
    for one in systems:
        table.add_row(*_row(one, piped.goodput_per_s))
    console = Console(width=None if Console().is_terminal else 110)
    console.print(table)
    predicted = piped.predicted_per_s or 0.0
    stages = ", ".join(f"{s.first}–{s.end - 1} on {s.count} × {s.device}" for s in found.stages)
    more = f", {copies} times over" if copies > 1 else ""
    share = piped.goodput_per_s / predicted
    told = f"simulated over predicted {share:.3f} of {predicted:,.6g} a second"
    lines = [
        f"simulation: {piped.requests:,} requests, no model ran   {told}",
        f"plan: {stages}{more}   simulated in {seconds:.1f} s",
    ]
    untried = [one.name for one in systems if one.untried]
    if untried:
        told = "pilots would take longer than the run: nothing was chosen by them for"
        lines.append(f"{told} {', '.join(untried)}")
    console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)


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
