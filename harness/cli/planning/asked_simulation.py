"""One simulation as it was asked for: checked, planned, and run beside its baselines."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.planning.simulated_run import SimulatedRun
from harness.cli.planning.straggling import slowdowns
from harness.cli.planning.told import log_decisions, read_json
from harness.core.errors import UserError

if TYPE_CHECKING:
    from backends.tetris.pipeline.leaving import LeaveDecisions
    from backends.tetris.pipeline.stage_times import StageTimes
    from backends.tetris.pipeline.stragglers import Slowdown
    from backends.tetris.pipeline.windows import WindowPlanner
    from backends.tetris.planner import StagePlan
    from backends.tetris.profile import DeviceCluster, StageProfile, Wanted
    from backends.tetris.simulation.compare import SimulatedLoad, SimulatedSystem, UnderCuts

DEFAULT_REQUESTS = 100_000


@dataclass(frozen=True, slots=True)
class AskedSimulation:
    """The options of `decodebench simulate`, which tells what each is."""

    profile: Path
    cluster: Path
    slo_ms: float
    slack_ms: float
    rate: float | None
    plan_rate: float | None
    clients: int | None
    requests: int | None
    copies: int
    trace: Path | None
    live: bool
    address: str | None
    window_s: float | None
    straggler: list[str]
    seed: int

    def run(self) -> SimulatedRun:
        """Everything that was asked for. Raises `UserError`."""
        from backends.tetris.simulation.compare import SimulatedLoad, compare

        self._check()
        setting = self._setting()
        begin = time.perf_counter()
        found, known = self._planned(setting)
        planned_s = time.perf_counter() - begin
        if self.live:
            self._check_live(setting, found)
        load = SimulatedLoad(self.rate, self.clients, self.seed)
        asked = (setting.decisions, load, self.slo_ms, self.copies, setting.slow)
        systems = list(compare(setting.times, setting.devices, found, *asked, under=known))
        told = SimulatedRun(systems, found, self.copies, planned_s)
        kept = systems[0]
        if self.window_s is not None:
            systems.insert(1, self._planned_again(setting, load, kept, told, self.window_s))
        if self.live:
            times = setting.times if known is None or self.window_s else known(found.cuts)
            row = self._run_live(replace(setting, times=times), load, kept, told)
            systems.insert(1 if self.window_s is None else 2, row)
        told.seconds = time.perf_counter() - begin
        return told

    def _planned(self, setting: _Setting) -> tuple[StagePlan, UnderCuts | None]:
        """The plan, and what who leaves under some cuts makes of the profile; None where survival
        does not depend on them."""
        from backends.tetris import own_survival, planner
        from backends.tetris.pipeline.stage_times import StageTimes

        model = setting.model
        if self.trace is None:
            return planner.plan(model, setting.devices, setting.wanted), None
        asked = model, setting.devices, setting.wanted, setting.decisions
        found, _ = own_survival.plan(*asked)

        def under(cuts: Sequence[int]) -> StageTimes:
            return StageTimes(own_survival.under_cuts(model, setting.decisions, cuts))

        return found, under

    def _check(self) -> None:
        from backends.tetris.labels.options import LEAST_WINDOW_S

        _check_load(self.rate, self.plan_rate, self.clients, self.requests, self.copies, self.seed)
        if self.address is not None and not self.live:
            raise UserError("--address: expected --live beside it")
        alone = (
            ("--live", self.live),
            ("--window-s", self.window_s),
            ("--straggler", self.straggler),
        )
        for option, asked in alone:
            if asked and self.copies > 1:
                raise UserError(f"{option}: expected one cluster, found --copies above 1")
        if self.window_s is not None and not LEAST_WINDOW_S <= self.window_s < math.inf:
            least = f"{LEAST_WINDOW_S:g} or more"
            raise UserError(f"--window-s: expected {least}, found {self.window_s:g}")

    def _setting(self) -> _Setting:
        """What the files say."""
        from backends.tetris.pipeline.stage_times import StageTimes
        from backends.tetris.profile import Wanted, cluster_from, profile_from
        from harness.experiment.strict_yaml import read_yaml

        wanted = Wanted(self.slo_ms, self.slack_ms, self.rate)
        planned_for = self.rate if self.plan_rate is None else self.plan_rate
        if planned_for is not None:
            wanted = replace(wanted, rate=planned_for / self.copies)
        model = profile_from(read_json(self.profile), str(self.profile))
        devices = cluster_from(read_yaml(self.cluster), str(self.cluster), model)
        slow = slowdowns(self.straggler, devices)
        requests = self._requests(sum(devices.devices.values()), model.batch)
        decisions, ramps = _decisions(model, self.trace, requests, self.seed)
        if self.trace is not None:
            model = replace(model, survival=tuple(decisions.alive().tolist()), ramps=ramps)
        times = StageTimes(model, str(self.profile))
        return _Setting(model, times, devices, wanted, decisions, slow)

    def _requests(self, devices: int, batch: int) -> int:
        """As many as were asked for. Raises `UserError` for a closed loop that needs more."""
        from backends.tetris.simulation.compare import MOST_REQUESTS, ROUNDS, least_requests

        needed = 1
        if self.rate is None:
            needed = least_requests(devices, batch, self.copies, self.clients)
        asked = max(needed, DEFAULT_REQUESTS) if self.requests is None else self.requests
        if asked < needed:
            told = f"{ROUNDS} of each client that is tried, found {asked:,}"
            raise UserError(f"--requests: expected {needed:,} or more, {told}")
        if asked > MOST_REQUESTS:
            most = f"at most {MOST_REQUESTS:,}, and these devices and batches need {needed:,}"
            raise UserError(f"--requests: {most}; plan an equal part of the cluster")
        return asked

    def _check_live(self, setting: _Setting, found: StagePlan) -> None:
        from backends.tetris.live.devices import check_devices, check_ray

        check_ray(self.address)
        every = sum(setting.devices.devices.values())
        planned = sum(one.count for one in found.stages)
        check_devices(every if self.window_s else planned, self.address)

    def _planned_again(
        self,
        setting: _Setting,
        load: SimulatedLoad,
        kept: SimulatedSystem,
        told: SimulatedRun,
        window_s: float,
    ) -> SimulatedSystem:
        from backends.tetris.simulation.planned_again import planned_again

        windows = kept.requests / kept.throughput_per_s / window_s
        typer.echo(f"simulate: plans again about {windows:,.0f} times", err=True)
        asked = (setting.decisions, load, kept, self.slo_ms, window_s, setting.slow)
        row, told.planned_again = planned_again(setting.planning(told.found), *asked)
        return row

    def _run_live(
        self, setting: _Setting, load: SimulatedLoad, kept: SimulatedSystem, told: SimulatedRun
    ) -> SimulatedSystem:
        from backends.tetris.live.row import live_system

        row, told.faults, told.live_plans = live_system(
            setting.times,
            told.found,
            setting.decisions,
            load,
            kept,
            self.slo_ms,
            self.address,
            setting.slow,
            None if self.window_s is None else setting.planning(told.found),
            self.window_s or 0.0,
        )
        return row


@dataclass(frozen=True, slots=True)
class _Setting:
    model: StageProfile
    times: StageTimes
    devices: DeviceCluster
    wanted: Wanted
    decisions: LeaveDecisions
    slow: dict[str, Slowdown]

    def planning(self, first: StagePlan) -> WindowPlanner:
        """Of a run that plans again, which it keeps."""
        from backends.tetris.pipeline.windows import WindowPlanner

        return WindowPlanner(self.model, self.devices, self.wanted, first)


def _check_load(
    rate: float | None,
    plan_rate: float | None,
    clients: int | None,
    requests: int | None,
    copies: int,
    seed: int,
) -> None:
    from backends.tetris.profile import LEAST_RATE
    from backends.tetris.simulation.compare import MOST_REQUESTS

    if rate is not None and clients is not None:
        raise UserError("--clients: closed loop; expected it or --rate, not both")
    if plan_rate is not None and rate is None:
        raise UserError("--plan-rate: open loop; expected --rate beside it")
    if plan_rate is not None and not 0 < plan_rate < math.inf:
        raise UserError(f"--plan-rate: expected a number above 0, found {plan_rate:g}")
    if plan_rate is not None and plan_rate < LEAST_RATE * copies:
        least = f"{LEAST_RATE * copies:g} a second or more"
        raise UserError(f"--plan-rate: expected {least}, found {plan_rate:g}")
    if requests is not None:
        _whole("--requests", requests, 1, MOST_REQUESTS)
    _whole("--copies", copies, 1, requests or MOST_REQUESTS)
    if clients is not None:
        _whole("--clients", clients, copies, MOST_REQUESTS)
        if clients % copies:
            told = f"as many for each of {copies} copies"
            raise UserError(f"--clients: expected {told}, found {clients}")
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
    return log_decisions(trace, model.layers, model.ramps, requests)
