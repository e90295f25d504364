"""The live pipeline: an actor for each device, started, replaced and ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.tetris.live.devices import device_actor
from backends.tetris.live.live_run import LiveFaults, LiveRun
from backends.tetris.live.replanned_run import ReplannedLiveRun
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import Slowdown
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.planner import StagePlan
from backends.tetris.simulation.changing import ChangingPlan
from backends.tetris.simulation.events import Served
from backends.tetris.simulation.layouts import pipeline
from harness.core.errors import UserError

READY_S = 120.0


class LivePipeline:
    """The stages of a plan, an actor for each device. `actors` has them by device name, `pids` the
    process that each was when it was last ready; `close` ends them. Raises `UserError` when they do
    not start in two minutes.

    Args:
        ray: as `start_ray` gives it.
        limit_ms: latency that queues are flushed for.
        devices: names of all devices that a later plan may use; None: those of this one.
    """

    def __init__(
        self,
        ray: Any,
        times: StageTimes,
        plan: StagePlan,
        limit_ms: float,
        devices: Collection[str] | None = None,
    ) -> None:
        self.ray, self.times, self.limit_ms = ray, times, limit_ms
        self._class = device_actor(ray)
        self.layout = pipeline(times, plan)
        if devices is None:
            devices = [name for crew in self.layout.crews for name in crew.devices]
        self.actors: dict[str, Any] = {name: self._class.remote() for name in devices}
        try:
            asked = [actor.ready.remote() for actor in self.actors.values()]
            self.pids = dict(zip(self.actors, ray.get(asked, timeout=READY_S), strict=True))
        except (ray.exceptions.GetTimeoutError, ray.exceptions.RayActorError) as error:
            self.close()
            late = isinstance(error, ray.exceptions.GetTimeoutError)
            why = f"were not ready in {READY_S:g} s" if late else "did not start"
            raise UserError(f"--live: the {len(devices)} emulated devices {why}") from None

    def close(self) -> None:
        """End the actors."""
        for actor in self.actors.values():
            self.ray.kill(actor)

    def run(
        self,
        decisions: LeaveDecisions,
        arrivals: Sequence[float] | NDArray[np.float64] | int,
        slow: Mapping[str, Slowdown] | None = None,
    ) -> tuple[Served, LiveFaults]:
        """Every request answered once, by the plan's stages. Arguments as of `LiveRun`."""
        run = LiveRun(self, self.layout, decisions, arrivals, slow)
        return run.served(), run.faults

    def run_planned_again(
        self,
        planner: WindowPlanner,
        decisions: LeaveDecisions,
        arrivals: Sequence[float] | NDArray[np.float64] | int,
        window_s: float,
        slow: Mapping[str, Slowdown] | None = None,
    ) -> tuple[Served, LiveFaults, ChangingPlan]:
        """Every request answered once, by the stages of `planner`'s present plan and of those that
        it makes at the ends of windows. `devices` must name all of its cluster."""
        run = ReplannedLiveRun(self, planner, decisions, arrivals, slow, window_s)
        return run.served(), run.faults, run.changing

    def send(
        self, device: str, requests: list[int], depths: list[int], end: int, took_ms: float
    ) -> Any:
        """Send a batch to a device; the reference of its answer: who left, who goes on, and how
        many milliseconds it took."""
        return self.actors[device].run.remote(requests, depths, end, took_ms)

    def start_anew(self, device: str) -> Any:
        """A new actor in place of a dead one; the reference of its process, when it is ready. What
        only could not be reached is ended, so that nothing runs twice."""
        self.ray.kill(self.actors[device])
        self.actors[device] = self._class.remote()
        return self.actors[device].ready.remote()
