"""The command `simulate`: a planned pipeline and its baselines, event by event."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.planning.simulated_run import SimulatedRun
from harness.cli.planning.straggling import slowdowns
from harness.cli.planning.told import read_json
from harness.core.errors import UserError
from harness.core.files import MIB

if TYPE_CHECKING:
    from backends.tetris.pipeline.leaving import LeaveDecisions
    from backends.tetris.profile import StageProfile

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
    window_s: Annotated[
        float | None, typer.Option(help="Plan again every so many seconds; else never.")
    ] = None,
    straggler: Annotated[
        list[str] | None,
        typer.Option(help="DEVICE:TIMES[@SECONDS]: so many times slower, from then on. Repeat it."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Simulate a planned pipeline beside its baselines: goodput on any number of devices."""
    _check_load(rate, plan_rate, clients, requests, copies, seed)
    if address is not None and not live:
        raise UserError("--address: expected --live beside it")
    for option, asked in ("--live", live), ("--window-s", window_s), ("--straggler", straggler):
        if asked and copies > 1:
            raise UserError(f"{option}: expected one cluster, found --copies above 1")
    if window_s is not None and not 0 < window_s < math.inf:
        raise UserError(f"--window-s: expected a number above 0, found {window_s:g}")
    from backends.tetris import planner
    from backends.tetris.pipeline.stage_times import StageTimes
    from backends.tetris.pipeline.windows import WindowPlanner
    from backends.tetris.profile import Wanted, cluster_from, profile_from
    from backends.tetris.simulation.compare import SimulatedLoad, compare
    from harness.experiment.strict_yaml import read_yaml

    wanted = Wanted(slo_ms, slack_ms, rate)
    planned_for = rate if plan_rate is None else plan_rate
    if planned_for is not None:
        wanted = replace(wanted, rate=planned_for / copies)
    model = profile_from(read_json(profile), str(profile))
    devices = cluster_from(read_yaml(cluster), str(cluster), model)
    slow = slowdowns(straggler or [], devices)
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
        every = sum(devices.devices.values())
        check_devices(every if window_s else sum(one.count for one in found.stages), address)
    load = SimulatedLoad(rate, clients, seed)
    systems = list(compare(times, devices, found, decisions, load, slo_ms, copies, slow))
    kept, told = systems[0], SimulatedRun(systems, found, copies, planned_s)
    if window_s is not None:
        from backends.tetris.simulation.planned_again import planned_again

        planning = WindowPlanner(model, devices, wanted)
        row, told.planned_again = planned_again(
            planning, decisions, load, kept, slo_ms, window_s, slow
        )
        systems.insert(1, row)
    if live:
        from backends.tetris.live.row import live_system

        anew = None if window_s is None else WindowPlanner(model, devices, wanted)
        row, told.faults, told.live_plans = live_system(
            times, found, decisions, load, kept, slo_ms, address, slow, anew, window_s or 0.0
        )
        systems.insert(1 if anew is None else 2, row)
    told.seconds = time.perf_counter() - begin
    if as_json:
        print(told.to_json())
    else:
        told.show()


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
