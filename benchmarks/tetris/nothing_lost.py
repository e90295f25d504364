"""Nothing lost: actors killed at random, plans that change and stragglers, all at once.

    python -m benchmarks.tetris.nothing_lost [--quick] [--requests N] [--scale X] [--kill-every S]

BERT-Base at batch 8 on eight emulated V100, X times as slow as in `paper.py`, closed loop. Five
mixes of easy and hard inputs follow one another, so that plans change at the ends of windows; two
devices become 2 and 4 times slower on the way; every S seconds on average `kill -9` hits an actor
chosen at random. The audit counts what the devices answered: each request once, and its stages
one behind the other. The provenance is 'simulation': nothing is computed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends.tetris.figures.point import mixed
from backends.tetris.live.devices import start_ray
from backends.tetris.live.pipeline_driver import LivePipeline
from backends.tetris.live.replanned_run import ReplannedLiveRun
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import Slowdown
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.profile import StageProfile, Wanted, cluster_from
from backends.tetris.simulation.compare import summary
from backends.tetris.simulation.lanes import Lane
from benchmarks.tetris import paper

DEVICES = 8
MIXES = (0.9, 0.5, 0.8, 0.4, 0.7)


class AuditedRun(ReplannedLiveRun):
    """Keeps what the devices answered, before the driver makes anything of it."""

    def __init__(self, *arguments: Any) -> None:
        self.answers: Counter[int] = Counter()
        self.ends: defaultdict[int, list[int]] = defaultdict(list)
        super().__init__(*arguments)

    def take(self, lane: Lane, left: list[int], going: list[int]) -> None:
        """A batch that a lane's device ran."""
        self.answers.update(left)
        for one in (*left, *going):
            self.ends[one].append(lane.end)
        super().take(lane, left, going)

    def audit(self, count: int) -> dict[str, int]:
        """How many of the requests 0 to `count` - 1 have no answer, more than one, and how many ran
        a stage twice or out of turn."""
        ends = self.ends.values()
        return {
            "lost": sum(self.answers[one] == 0 for one in range(count)),
            "answered twice": sum(times > 1 for times in self.answers.values()),
            "stages out of turn": sum(one != sorted(set(one)) for one in ends),
        }


class RandomKiller(threading.Thread):
    """Kills one of a pipeline's actors every so many seconds on average, as a context."""

    def __init__(self, live: LivePipeline, every_s: float, seed: int) -> None:
        super().__init__(daemon=True)
        self._live, self._every_s, self._random = live, every_s, random.Random(seed)
        self._over = threading.Event()
        self.killed = 0

    def __enter__(self) -> RandomKiller:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Until the context ends."""
        while not self._over.wait(self._random.expovariate(1 / self._every_s)):
            pid = self._live.pids[self._random.choice(list(self._live.actors))]
            try:
                # a number may have been given to another process since
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1
            except OSError:
                continue  # dead already, and its successor not ready


def slower(model: StageProfile, scale: float) -> StageProfile:
    """The model on devices that take so many times as long."""
    by_layer = {kind: tuple(scale * ms for ms in layers) for kind, layers in model.layer_ms.items()}
    ramps = {kind: scale * ms for kind, ms in model.ramp_ms.items()}
    transfer_ms = tuple(scale * ms for ms in model.transfer_ms)
    return replace(model, layer_ms=by_layer, ramp_ms=ramps, transfer_ms=transfer_ms)


def workload(count: int) -> LeaveDecisions:
    """`MIXES` after one another, an equal share each."""
    each = [count // len(MIXES)] * (len(MIXES) - 1)
    found = mixed(paper.BERT.layers, MIXES[0], each[0], 0)
    for seed, share in enumerate(MIXES[1:], 1):
        many = each[0] if seed < len(each) else count - sum(each)
        found = found.then(mixed(paper.BERT.layers, share, many, seed))
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="800 requests")
    asked.add_argument("--requests", type=int, default=10_000)
    asked.add_argument("--scale", type=float, default=32.0)
    asked.add_argument("--kill-every", type=float, default=1.0)
    asked.add_argument("--window", type=float, default=3.0)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    count = 800 if given.quick else given.requests
    decisions = workload(count)
    model = slower(paper.model(8), given.scale)
    first = mixed(model.layers, MIXES[0], 20_000, 0)
    model = replace(model, survival=tuple(first.alive().tolist()))
    devices = {"devices": {"V100": DEVICES}, "price": {"V100": paper.PRICE["V100"]}}
    cluster, limit_ms = cluster_from(devices, "cluster", model), 1e3 * given.scale
    planner = WindowPlanner(model, cluster, Wanted(limit_ms))
    slow = {"V100-1": Slowdown(4.0, 8e3), "V100-5": Slowdown(2.0, 16e3)}
    ray = start_ray()
    live = LivePipeline(ray, StageTimes(model), planner.plan, limit_ms, cluster.names())
    begin = time.monotonic()
    clients = 3 * model.batch * DEVICES
    run = AuditedRun(live, planner, decisions, clients, slow, given.window)
    # Ray tells deaths on standard output
    with RandomKiller(live, given.kill_every, given.seed) as killer, redirect_stdout(sys.stderr):
        served = run.served()
    seconds = time.monotonic() - begin
    live.close()
    ray.shutdown()
    audit = run.audit(count)
    found = summary("", [served], limit_ms, clients)
    print(f"simulation: {count:,} requests on {DEVICES} emulated devices in {seconds:.1f} s")
    print("  " + ", ".join(f"{what}: {many}" for what, many in audit.items()))
    faults = run.faults
    again = f"{faults.run_again} requests ran again, {faults.dropped} answers dropped"
    print(f"  {killer.killed} actors killed, {faults.replaced} replaced, {again}")
    told = f"{len(run.changing.plans) - 1} changes of plan, stragglers found"
    print(f"  {told}: {', '.join(sorted(run.changing.stragglers)) or 'none'}")
    print(f"  {found.goodput_per_s:.0f} good answers a second, mean batch {found.batch:.2f}")
    sys.exit(1 if any(audit.values()) else 0)


if __name__ == "__main__":
    main()
