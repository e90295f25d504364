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
stands what the simulator says for these inputs and a profile that both workers measured at the same
time, with what a batch costs outside the layers. The cut is the one that shares the work best; what
the planner would do is told too. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from backends.checkpoints import models
from backends.classifiers import measured
from backends.classifiers.weights import load
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import PlannedStage, StagePlan, plan
from backends.tetris.profile import StageProfile, Wanted, cluster_from, profile_from
from backends.tetris.ramps.rules import EntropyRule
from backends.tetris.simulation.compare import summary
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.layouts import data_parallel, pipeline, regrouped
from benchmarks.support.turns import in_turns
from benchmarks.tetris.workers import NO_SLO_MS, WORKERS, BackendProcess, tokens_per_s
from harness.cli.planning.outside import outside
from harness.core.nouns import Model, Request
from workloads import bundled

TEXTS = {"demo-sentiment": ("sentiment", "sentence"), "demo-shapes": ("shapes", "image")}
RULE = EntropyRule(0.2)
IN_FLIGHT = 4
"""Over a batch."""


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
    print(json.dumps({name: compared(chosen, name) for name in chosen.models}))


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
        profile = profiled(model, prompts, batch, leaves)
        found[str(batch)] = at_batch(chosen, model, prompts, batch, (profile, leaves))
        print(f"{name}, batch {batch}: {json.dumps(found[str(batch)])}", flush=True)
    return found


def at_batch(
    chosen: argparse.Namespace,
    model: Model,
    prompts: list[tuple[int, ...]],
    batch: int,
    known: tuple[StageProfile, LeaveDecisions],
) -> dict[str, Any]:
    """Every system over the plain one, measured and predicted."""
    cut, planned = cuts(known[0])
    workers = opened(model, batch, cut)
    wanted = [Request(str(n), ids, 1, answer="label") for n, ids in enumerate(prompts)]

    def turn(label: str) -> float:
        some = workers[label]
        for place, worker in enumerate(some):
            worker.ask(wanted[place :: len(some)], IN_FLIGHT * batch // len(some))
        return tokens_per_s([one for worker in some for one in worker.answer()])

    try:
        rates = in_turns({label: partial(turn, label) for label in workers}, chosen.repeats)
    finally:
        for worker in (one for some in workers.values() for one in some):
            worker.close()
    guessed = predicted(*known, cut, batch)
    result: dict[str, Any] = {"cut": cut, "planned": planned}
    for label, found in rates.items():
        ratios = [a / b for a, b in zip(found, rates["plain"], strict=True)]
        result[label] = {
            "labels_per_s": round(statistics.median(found)),
            "over_plain": round(statistics.median(ratios), 3),
            "from_to": [round(min(ratios), 3), round(max(ratios), 3)],
            "predicted_over_plain": round(guessed[label] / guessed["plain"], 3),
            "over_predicted": round(statistics.median(found) / guessed[label], 3),
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


def profiled(
    model: Model, prompts: list[tuple[int, ...]], batch: int, leaves: LeaveDecisions
) -> StageProfile:
    """What a worker's layers cost while the other one is at work too."""
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        found = pool.starmap(_costs, [(model, prompts, batch)] * WORKERS, chunksize=1)
    told: dict[str, Any] = {"batch": batch, "survival": leaves.alive().tolist()}
    told["layer_ms"] = {"core": np.mean([one["layer_ms"] for one in found], axis=0).tolist()}
    told["layers"] = len(told["layer_ms"]["core"])
    told["ramp_ms"] = {"core": statistics.mean(one["ramp_ms"] for one in found)}
    for key in ("time_share", "batch_ms", "stage_ms"):
        each = [one[key] for one in found]
        told[key] = {
            "core": {count: statistics.mean(one[count] for one in each) for count in each[0]}
        }
    told["transfer_ms"] = measured.transfers(found[0]["state_bytes"])
    return profile_from(told, "profile")


def _costs(model: Model, prompts: list[tuple[int, ...]], batch: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    network = load(models.resolve(model), model.dtype)
    sizes = sorted({one for one in (1, 2, 4, 8, 16, 32) if one < batch} | {batch})
    found = measured.costs(network, prompts, sizes, lambda batch: None)
    directory = models.resolve(model)
    return {**found, **outside(model, directory, prompts, found, network.ramps, threads=1)}


def cuts(profile: StageProfile) -> tuple[int, list[list[int]]]:
    """Where two stages share the work best, and the planner's stages on the two cores."""
    cluster = cluster_from({"devices": {"core": WORKERS}, "price": {"core": 1}}, "here", profile)
    found = plan(profile, cluster, Wanted(NO_SLO_MS))
    times, batch, depth = StageTimes(profile), profile.batch, profile.layers

    def slower_ms(cut: int) -> float:
        first = times.stage_ms("core", 0, cut, batch)
        return max(first, profile.survival[cut] * times.stage_ms("core", cut, depth, batch))

    best = min(profile.ramps_before(depth), key=slower_ms)
    return best, [[one.first, one.end, one.count] for one in found.stages]


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
        "regrouping": regrouped(at_cut, devices, (cut,)),
        "tetris": pipeline(at_cut, cut_here),
    }
    clients, found = IN_FLIGHT * batch, {}
    for label, layout in layouts.items():
        run = LaneSimulation(layout, times, leaves, clients, NO_SLO_MS).run()
        found[label] = summary(label, [run], NO_SLO_MS, clients).goodput_per_s
    return found


if __name__ == "__main__":
    main()
