"""The TETRIS paper's figure 11, simulated: 80:20, then 50:50, then 20:80 easy to hard inputs.

    python benchmarks/tetris/shift.py [--quick]

On the cluster of `paper.py` at batch 8. The pipeline is planned once, for the first mix, or again
at the end of each window from what its own ramps said. Easy inputs leave each ramp with
probability 0.6 and hard ones with 0.05. Goodput by mix, over the plain model's.
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import numpy as np

from backends.tetris.drift import EASY, HARD
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.profile import Wanted, cluster_from, profile_from
from backends.tetris.simulation.events import LaneSimulation, Served
from backends.tetris.simulation.layouts import data_parallel, pipeline
from backends.tetris.simulation.replanning import ReplanningSimulation
from benchmarks.tetris import paper

MIXES = (0.8, 0.5, 0.2)


def inputs(share: float, count: int, seed: int) -> LeaveDecisions:
    """A mix with so many easy inputs; each stays sure once it is."""
    random = np.random.default_rng(seed)
    leave = np.where(random.random(count) < share, EASY, HARD)
    behind = random.geometric(leave)
    return LeaveDecisions(behind[:, None] <= np.arange(1, paper.LAYERS))


def by_mix(run: Served, count: int) -> list[float]:
    """Good answers a second while each mix is asked."""
    starts = [*run.asked_ms[::count], run.asked_ms[-1]]
    good = run.answered_ms[run.answered_ms - run.asked_ms <= paper.SLO_MS]
    return [1e3 * ((good > a) & (good <= b)).sum() / (b - a) for a, b in pairwise(starts)]


def runs(name: str, count: int) -> tuple[dict[str, Served], int]:
    """Each system on one of the paper's clusters, `count` requests of each mix, and how often the
    plan changed."""
    workload = inputs(MIXES[0], count, 0)
    survival = workload.alive()
    for seed, share in enumerate(MIXES[1:], 1):
        workload = workload.then(inputs(share, count, seed))
    told = {**paper.profile(8), "survival": np.minimum.accumulate(survival).tolist()}
    model = profile_from(told, "profile")
    cluster = cluster_from(paper.cluster(name), "cluster", model)
    times, planner = StageTimes(model), WindowPlanner(model, cluster, Wanted(paper.SLO_MS))
    clients = 16 * sum(cluster.devices.values())
    again = ReplanningSimulation(planner, workload, clients, paper.SLO_MS, window_s=1.5)
    layouts = {
        "plain": data_parallel(times, cluster.devices, "plain"),
        "shrinking batch": data_parallel(times, cluster.devices, "shrinking batch"),
        "planned once": pipeline(times, planner.plan),
    }
    found = {
        what: LaneSimulation(made, times, workload, clients, paper.SLO_MS).run()
        for what, made in layouts.items()
    }
    found["planned again"] = again.run()
    return found, len(again.changing.plans) - 1


def over_plain(found: dict[str, Served], count: int) -> dict[str, list[float]]:
    """Goodput by mix, over the plain model's."""
    base = by_mix(found["plain"], count)
    return {
        what: [a / b for a, b in zip(by_mix(run, count), base, strict=True)]
        for what, run in found.items()
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="a third of the requests")
    count = 20_000 if asked.parse_args().quick else 60_000
    for name in paper.CLUSTERS:
        found, changes = runs(name, count)
        print(f"\nsimulation, {name}: easy {MIXES}; {changes} changes of plan")
        for what, ratios in over_plain(found, count).items():
            print(f"  {what:16} " + "  ".join(f"{ratio:.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
