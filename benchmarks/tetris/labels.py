"""Two workers of one thread each, at equal cost: a classifier in stages, or whole in each.

    python -m benchmarks.tetris.labels [--models demo-sentiment demo-shapes] [--batches 1 4 8 16]
                                       [--inputs 400] [--repeats 3] [--quick]

At batch B there are 4 B requests in flight in a closed loop, two batches for each worker. Systems
take turns on the same inputs, half of them easy, and leave below an entropy of 0.2:

    plain       classifier in each worker
    shrinking   classifier-early-exit in each: who is sure leaves, the rest goes on (DeeBERT)
    together    the same, a batch leaves once all are sure (the early-exit paper's rule)
    regrouping  the same, survivors fused on the worker's core (DREX), cut where the pipeline is
    tetris      tetris-classifier: two stages, a core each

Labels a second are counted between the first and the last fifth of all, over plain's. Beside them
stands what the simulator says for these inputs and a profile that was measured in the same turns,
where both workers serve (`harness.cli.planning.served_costs`). The cut is the one that shares the
work best. What `decodebench plan` says, its stages and whether it refuses them, is told too: the
refusal is right where the pipeline was measured below the best baseline. A table stands at the end,
measured and, in brackets, predicted over measured; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from backends.checkpoints import models
from backends.classifiers import measured
from backends.classifiers.weights import load
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import PlannedStage, StagePlan, plan
from backends.tetris.profile import StageProfile, Wanted, cluster_from, profile_from
from backends.tetris.ramps.rules import EntropyRule
from backends.tetris.simulation.baselines import baselines, refusal
from backends.tetris.simulation.compare import summary
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.layouts import data_parallel, pipeline, regrouped
from benchmarks.support.turns import in_turns
from benchmarks.tetris.backend_process import BackendProcess, answers
from benchmarks.tetris.workers import NO_SLO_MS, WORKERS, tokens_per_s
from harness.cli.planning.served_costs import ServedCosts
from harness.core.nouns import Load, Model, Request
from workloads import bundled

TEXTS = {"demo-sentiment": ("sentiment", "sentence"), "demo-shapes": ("shapes", "image")}
RULE = EntropyRule(0.2)
IN_FLIGHT = 4
"""Over a batch."""
WAIT_MS = 20.0
"""For one another, as both backends have it by default."""
FIRST_TURNS = 1
"""Of the costs, before there is a cut."""
SYSTEMS = ("plain", "shrinking", "together", "regrouping", "tetris")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=list(TEXTS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 8, 16])
    parser.add_argument("--inputs", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one model, one batch, few inputs")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.models, chosen.batches, chosen.inputs, chosen.repeats = (
            ["demo-sentiment"],
            [4],
            64,
            1,
        )
    found = {name: compared(chosen, name) for name in chosen.models}
    for name, by_batch in found.items():
        print(table(name, by_batch))
    print(json.dumps(found))


def table(name: str, by_batch: Mapping[str, Any]) -> str:
    """Over plain, and in brackets predicted over measured, of every system and batch."""
    lines = ["| ".join([f"| {name}, batch", *(f"{batch} " for batch in by_batch)]) + "|"]
    lines.append("|---" * (len(by_batch) + 1) + "|")
    for label in SYSTEMS[1:]:
        cells = [
            f"{one[label]['over_plain']:.2f} "
            f"({one[label]['predicted_over_plain'] / one[label]['over_plain']:.2f}) "
            for one in by_batch.values()
        ]
        lines.append("| ".join([f"| {label} ", *cells]) + "|")
    for batch, one in by_batch.items():
        lines.append(f"batch {batch}: {one['refused'] or 'not refused'}")
    return "\n".join(lines)


def compared(chosen: argparse.Namespace, name: str) -> dict[str, Any]:
    """All batches on one model."""
    model, workload, key = Model(name, dtype="float32"), *TEXTS[name]
    tokenizer = models.load_tokenizer(models.resolve(model))
    rows = bundled.rows(workload, "test", chosen.inputs, 5)
    prompts = [tuple(tokenizer.encode(str(row[key]))) for row in rows]
    network = load(models.resolve(model), "float32")
    leaves = LeaveDecisions(measured.decisions(network, RULE, prompts))
    found = {}
    for batch in chosen.batches:
        sizes = sorted({one for one in (1, 2, 4, 8, 16, 32) if one < batch} | {batch})
        known = (model, models.resolve(model), prompts, sizes, network.ramps)
        with ServedCosts(*known, threads=1) as costs:
            found[str(batch)] = at_batch(chosen, model, prompts, costs, leaves)
        print(f"{name}, batch {batch}: {json.dumps(found[str(batch)])}", flush=True)
    return found


def at_batch(
    chosen: argparse.Namespace,
    model: Model,
    prompts: list[tuple[int, ...]],
    costs: ServedCosts,
    leaves: LeaveDecisions,
) -> dict[str, Any]:
    """Every system over the plain one, measured and predicted."""
    for _ in range(FIRST_TURNS):
        costs.turn()
    first = profiled(model, costs, leaves)
    batch, cut = first.batch, best_cut(first)
    workers = opened(model, batch, cut)
    wanted = [Request(str(n), ids, 1, answer="label") for n, ids in enumerate(prompts)]

    def turn(label: str) -> float:
        some = workers[label]
        load = Load("closed", concurrency=IN_FLIGHT * batch // len(some))
        return tokens_per_s(answers(some, wanted, load))

    def measured_again() -> float:
        costs.turn()
        return 0.0

    turns = {label: partial(turn, label) for label in workers}
    try:
        rates = in_turns({"": measured_again, **turns}, chosen.repeats)
    finally:
        for worker in (one for some in workers.values() for one in some):
            worker.close()
    profile = profiled(model, costs, leaves)
    guessed = predicted(profile, leaves, cut, batch)
    result: dict[str, Any] = {"cut": cut, **planned(profile)}
    for label in SYSTEMS:
        ratios = [a / b for a, b in zip(rates[label], rates["plain"], strict=True)]
        result[label] = {
            "labels_per_s": round(statistics.median(rates[label])),
            "over_plain": round(statistics.median(ratios), 3),
            "from_to": [round(min(ratios), 3), round(max(ratios), 3)],
            "predicted_over_plain": round(guessed[label] / guessed["plain"], 3),
            "over_predicted": round(statistics.median(rates[label]) / guessed[label], 3),
        }
    return result


def opened(model: Model, batch: int, cut: int) -> dict[str, list[BackendProcess]]:
    """The workers of every system."""
    systems: dict[str, tuple[str, dict[str, Any], int]] = {
        "plain": ("classifier", {}, WORKERS),
        "shrinking": ("classifier-early-exit", {}, WORKERS),
        "together": ("classifier-early-exit", {"batching": "together"}, WORKERS),
        "regrouping": (
            "classifier-early-exit",
            {"batching": "regrouped", "layers": [cut]},
            WORKERS,
        ),
        "tetris": ("tetris-classifier", {"layers": [cut]}, 1),
    }
    common = {"threads": 1, "batch": batch}
    return {
        label: [BackendProcess(name, model, {**common, **options}) for _ in range(count)]
        for label, (name, options, count) in systems.items()
    }


def profiled(model: Model, costs: ServedCosts, leaves: LeaveDecisions) -> StageProfile:
    """What was measured until now, as `decodebench profile` tells it."""
    found = costs.told()
    batch = max(map(int, found["time_share"]))
    about = {"layers": len(found["layer_ms"]), "batch": batch, "survival": leaves.alive().tolist()}
    moved = measured.transfers(costs.state_bytes(load(models.resolve(model), model.dtype)))
    by_kind = {key: {"core": value} for key, value in found.items()}
    return profile_from({**about, **by_kind, "transfer_ms": moved}, "profile")


def planned(profile: StageProfile) -> dict[str, Any]:
    """What `decodebench plan` says of the two cores."""
    cluster = cluster_from({"devices": {"core": WORKERS}, "price": {"core": 1}}, "here", profile)
    wanted = Wanted(NO_SLO_MS)
    found, others = plan(profile, cluster, wanted), baselines(profile, cluster, wanted)
    return {
        "planned": [[one.first, one.end, one.count] for one in found.stages],
        "planned_per_s": round(found.goodput_per_s),
        "baselines_per_s": {name: round(one.goodput_per_s) for name, one in others.items() if one},
        "refused": refusal(found, others, wanted),
        "profile": {
            key: [list(one) for one in getattr(profile, key)["core"]]
            for key in ("time_share", "ramp_share", "batch_ms", "enter_ms", "stage_ms")
        },
        "layer_ms": [round(ms, 3) for ms in profile.layer_ms["core"]],
        "ramp_ms": round(profile.ramp_ms["core"], 3),
    }


def best_cut(profile: StageProfile) -> int:
    """Where two stages share the work best."""
    times, batch, depth = StageTimes(profile), profile.batch, profile.layers

    def slower_ms(cut: int) -> float:
        first = times.stage_ms("core", 0, cut, batch)
        return max(first, profile.survival[cut] * times.stage_ms("core", cut, depth, batch))

    return min(profile.ramps_before(depth), key=slower_ms)


def predicted(
    profile: StageProfile, leaves: LeaveDecisions, cut: int, batch: int
) -> dict[str, float]:
    """Labels a second of each system, simulated."""
    times, depth, devices = StageTimes(profile), profile.layers, {"core": WORKERS}
    stages = (PlannedStage(0, cut, "core", 1, 0, 1), PlannedStage(cut, depth, "core", 1, 0, 1))
    cut_here = StagePlan(stages, batch, 0, 0, float(WORKERS), 0)
    at_cut = StageTimes(replace(profile, ramps=(cut,)))
    layouts = {
        "plain": data_parallel(times, devices, "plain"),
        "shrinking": data_parallel(times, devices, "shrinking batch"),
        "together": data_parallel(times, devices, "batch rule"),
        "regrouping": regrouped(at_cut, devices, (cut,), WAIT_MS),
        "tetris": pipeline(at_cut, cut_here, wait_ms=WAIT_MS),
    }
    clients, found = IN_FLIGHT * batch, {}
    for label, layout in layouts.items():
        run = LaneSimulation(layout, times, leaves, clients, NO_SLO_MS).run()
        found[label] = summary(label, [run], NO_SLO_MS, clients).goodput_per_s
    return found


if __name__ == "__main__":
    main()
