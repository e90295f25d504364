"""Two workers of one thread each, at equal cost: stages of a pipeline, or the model in each.

    python benchmarks/tetris/workers.py [--models 0.1b demo] [--batches 1 2 4 8 16] [--cut L]
                                        [--leave SHARE] [--tokens 96] [--requests 3] [--repeats 3]
                                        [--open SHARE ...] [--within TIMES] [--quick]

At batch B there are 2 B requests in flight in a closed loop: a worker that has the whole model has
B of them, and each stage of the pipeline can run B at once. Systems take turns on the same prompts:

    plain       autoregressive in each worker
    shrinking   early exit in lockstep in each: the batch shrinks on its way (DeeBERT's exits)
    regrouping  early exit by ready rows in each: regrouped in place (DREX)
    tetris      two stages, survivors fused
    both cores  early exit by ready rows in one worker of two threads, all requests
    verified    two stages, drafts verified by the second: plain's text
    adadecode   drafts verified by the deeper segment, in one worker of two threads: likewise

All exits are those behind `--cut` (a third of the layers). The demo model decides by itself, shapes
replay what it decided, after prompts of 16 tokens. Tokens per second are counted between the first
and the last fifth of all tokens, as the paper counts a closed loop, over plain's. The prediction
beside them is simulated from a profile that all workers measured at the same time, since they share
the memory. The planner's choice is told too. The last line is JSON.

`--open` adds open loops: Poisson arrivals at these shares of the rate that is predicted of the two
stages, the same for all systems (`open_loop.py`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from backends import settings
from backends.checkpoints import models
from backends.engine.model.architecture import read_architecture
from backends.engine.model.heads import ExitHead
from backends.own.backend import Loaded
from backends.tetris import measured
from backends.tetris.pipeline.fusion import FusionQueue
from backends.tetris.pipeline.leaving import drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import PlannedStage, StagePlan, plan
from backends.tetris.profile import StageProfile, Wanted, cluster_from, profile_from
from backends.tetris.simulation.compare import summary
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.lanes import Layout
from backends.tetris.simulation.layouts import data_parallel, pipeline, regrouped
from benchmarks.support.turns import in_turns, mixed_requests
from benchmarks.tetris.backend_process import BackendProcess, answers
from benchmarks.tetris.open_loop import at_rate
from harness.cli.planning.served_text import outside_ms
from harness.core.nouns import Generation, Load, Model, Request

DEMO = "demo"
LONGEST = 1024
WORKERS = 2
BATCHES = (1, 2, 4, 8, 16)
SYSTEMS: dict[str, tuple[str, dict[str, Any], int]] = {
    "plain": ("autoregressive", {}, WORKERS),
    "shrinking": ("own-early-exit", {"batching": "lockstep"}, WORKERS),
    "regrouping": ("own-early-exit", {"batching": "ready"}, WORKERS),
    "tetris": ("tetris", {"stages": WORKERS}, 1),
    "both cores": ("own-early-exit", {"batching": "ready", "threads": WORKERS}, 1),
    "verified": ("tetris", {"stages": WORKERS, "verify": True}, 1),
    "adadecode": ("adadecode", {"threads": WORKERS}, 1),
}
"""Backend, options, workers that have one each."""
NAMED = {"adadecode": "exit_layers"}
"""What a backend calls the layers of its exits."""
SHORT = 16
"""Tokens of a shape's prompts."""
NO_SLO_MS, TOKENS = 1e9, 4_000
"""Of the simulation."""
EDGE = 0.2
"""Of the tokens, at the beginning and at the end, when not all are busy."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=["0.1b", DEMO])
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--cut", type=int)
    parser.add_argument("--leave", type=float, help="share that leaves, in the place of a trace's")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--open", nargs="+", type=float, default=(), metavar="SHARE")
    parser.add_argument("--within", type=float, default=2.0, help="objective of the open loops")
    parser.add_argument("--quick", action="store_true", help="the demo model, few tokens")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.models, chosen.batches, chosen.tokens, chosen.repeats = [DEMO], [2], 8, 1
        chosen.open = [0.5]
    print(json.dumps({name: compared(chosen, name) for name in chosen.models}))


def compared(chosen: argparse.Namespace, name: str) -> dict[str, Any]:
    """All batches on one model."""
    is_demo = name == DEMO
    model = Model(name, dtype="bfloat16", shape=not is_demo)
    depth = read_architecture(models.resolve(model)).layers
    cut = chosen.cut or max(1, round(depth / 3))
    most = WORKERS * max(chosen.batches)
    profiles = {batch: profiled(model, cut, WORKERS * batch) for batch in chosen.batches}
    workers: dict[str, list[BackendProcess]] = {}
    for label, (backend, options, count) in SYSTEMS.items():
        common = {"max_num_seqs": most, "max_model_len": LONGEST, "threads": 1}
        exits = {} if backend == "autoregressive" else {NAMED.get(backend, "layers"): [cut]}
        replayed: dict[str, Any] = {} if is_demo else {"replay": DEMO}
        if chosen.leave is not None:
            replayed = {"replay": {"exits": {str(cut / depth): chosen.leave}}}
        opened = backend, model, {**common, **exits, **replayed, **options}
        workers[label] = [BackendProcess(*opened) for _ in range(count)]
    found: dict[str, Any] = {"cut": cut, "layers": depth}
    try:
        for batch in chosen.batches:
            count = WORKERS * batch * chosen.requests
            told = {"tokens": chosen.tokens, "seed": 7, "ignore_eos": not is_demo}
            wanted = mixed_requests(DEMO, count, between="/test/", **told)
            if not is_demo:  # a profile knows of no prompts
                wanted = [replace(one, prompt_ids=one.prompt_ids[:SHORT]) for one in wanted]
            found[str(batch)] = at_batch(chosen, workers, wanted, batch, profiles[batch])
            print(f"{name}, batch {batch}: {json.dumps(found[str(batch)])}", flush=True)
    finally:
        for worker in (one for some in workers.values() for one in some):
            worker.close()
    return found


def at_batch(
    chosen: argparse.Namespace,
    workers: dict[str, list[BackendProcess]],
    wanted: Sequence[Request],
    batch: int,
    profile: tuple[StageProfile, int],
) -> dict[str, Any]:
    """Every system over plain decoding, measured and predicted."""
    stayed: dict[str, float] = {}
    last: dict[str, list[Generation]] = {}

    def turn(label: str) -> float:
        some = workers[label]
        load = Load("closed", concurrency=WORKERS * batch // len(some))
        told = last[label] = answers(some, wanted, load)
        run, total = (
            sum(g.telemetry.get(key, 0) for g in told) for key in ("layers_run", "layers_total")
        )
        stayed[label] = run / total if total else 1.0
        return tokens_per_s(told)

    rates = in_turns({label: partial(turn, label) for label in workers}, chosen.repeats)
    (times, cut), depth = profile, profile[0].layers
    survival = min(1.0, max(0.0, (stayed["tetris"] * depth - cut) / (depth - cut)))
    guessed, planned = predicted(times, cut, survival, batch)
    result: dict[str, Any] = {"survival": round(survival, 3), "planned": planned}
    for label, found in rates.items():
        ratios = [a / b for a, b in zip(found, rates["plain"], strict=True)]
        result[label] = {
            "tokens_per_s": round(statistics.median(found)),
            "over_plain": round(statistics.median(ratios), 3),
            "from_to": [round(min(ratios), 3), round(max(ratios), 3)],
        }
        if label in guessed:
            result[label]["predicted_over_plain"] = round(guessed[label] / guessed["plain"], 3)
            result[label]["over_predicted"] = round(statistics.median(found) / guessed[label], 3)
    for share in chosen.open:
        rate = share * guessed["tetris"]
        result[f"open {share:g}"] = at_rate(chosen, workers, wanted, rate, last["plain"])
    return result


def tokens_per_s(answers: Sequence[Generation]) -> float:
    """While all are busy."""
    stamps = np.sort(np.concatenate([np.repeat(g.commit_ns, g.commit_tokens) for g in answers]))
    first, last = int(EDGE * len(stamps)), int((1 - EDGE) * len(stamps))
    return float(1e9 * (last - first) / (stamps[last] - stamps[first]))


def profiled(model: Model, cut: int, batch: int) -> tuple[StageProfile, int]:
    """What a worker's segments cost while the others are at work too, and the cut."""
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        found = pool.starmap(_costs, [(model, cut, batch)] * WORKERS, chunksize=1)
    told: dict[str, Any] = {"layers": len(found[0]["layer_ms"]), "batch": batch, "ramps": [cut]}
    for key in ("layer_ms", "fill_ms"):
        told[key] = {"core": np.mean([one[key] for one in found], axis=0).tolist()}
    told["ramp_ms"] = {"core": statistics.mean(one["ramp_ms"] for one in found)}
    shares = [one["time_share"] for one in found]
    share = {count: statistics.mean(one[count] for one in shares) for count in shares[0]}
    told["time_share"] = {"core": share}
    for key, by_count in outside_ms(model, models.resolve(model), _sizes(batch), 1, cut).items():
        told[key] = {"core": by_count}
    told["transfer_ms"] = measured.transfer_ms(4 * batch * found[0]["width"])
    told["survival"] = [1.0] * (told["layers"] + 1)
    return profile_from(told, "profile"), cut


def _costs(model: Model, cut: int, batch: int) -> dict[str, Any]:
    options = settings("autoregressive", {"threads": 1, "max_num_seqs": batch})
    loaded = Loaded("profile", models.resolve(model), model, options)
    executor = loaded.executor([ExitHead(cut, loaded.weights.head)])
    found = measured.costs(executor, _sizes(batch), lambda batch: None)
    executor.close()
    return {**found, "width": loaded.architecture.width}


def _sizes(batch: int) -> list[int]:
    return sorted({*(size for size in BATCHES if size < batch), batch // WORKERS, batch})


class EagerQueue(FusionQueue):
    """Whoever waits is taken as soon as a device is free, as both schedulers do by default."""

    def ready(self, now_ms: float) -> bool:
        return len(self) > 0


def predicted(
    profile: StageProfile, cut: int, survival: float, batch: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Tokens per second of each system, simulated, and the planner's choice with its goodput, for
    which there would always have to be whole batches."""
    depth, in_flight = profile.layers, WORKERS * batch
    alive = tuple([1.0] * cut + [survival] * (depth - cut + 1))
    told = replace(profile, survival=alive)
    times, narrow = StageTimes(told), StageTimes(replace(told, **at_most(told, batch)))
    cluster = cluster_from({"devices": {"core": WORKERS}, "price": {"core": 1.0}}, "here", told)
    planned = plan(told, cluster, Wanted(NO_SLO_MS))
    stages = (PlannedStage(0, cut, "core", 1, 0.0, 1.0), PlannedStage(cut, depth, "core", 1, 0, 1))
    cut_here = StagePlan(stages, in_flight, 0.0, 0.0, float(WORKERS), 0.0)
    layouts = {
        "plain": (narrow, data_parallel(narrow, cluster.devices, "plain")),
        "shrinking": (narrow, data_parallel(narrow, cluster.devices, "shrinking batch")),
        "regrouping": (narrow, eager(regrouped(narrow, cluster.devices, (cut,)), batch)),
        "tetris": (times, eager(pipeline(times, cut_here), in_flight)),
    }
    tokens, found = drawn(alive, TOKENS, 0), {}
    for label, (known, layout) in layouts.items():
        run = LaneSimulation(layout, known, tokens, in_flight, NO_SLO_MS).run()
        found[label] = summary(label, [run], NO_SLO_MS, in_flight).goodput_per_s
    choice = [[one.first, one.end, one.count] for one in planned.stages]
    return found, {"stages": choice, "goodput_per_s": round(planned.goodput_per_s)}


def eager(layout: Layout, batch: int) -> Layout:
    """The layout with queues that do not wait."""
    for lane in layout.lanes:
        lane.queue = EagerQueue(batch, 0.0)
    return layout


def at_most(profile: StageProfile, batch: int) -> dict[str, Any]:
    """What a profile says of a smaller batch."""
    share = dict(profile.time_share["core"])[batch]
    counts = [(count, part / share) for count, part in profile.time_share["core"] if count <= batch]
    return {
        "batch": batch,
        "time_share": {"core": tuple(counts)},
        "layer_ms": {"core": tuple(share * ms for ms in profile.layer_ms["core"])},
        "ramp_ms": {"core": share * profile.ramp_ms["core"]},
        "fill_ms": {"core": tuple(ms * batch / profile.batch for ms in profile.fill_ms["core"])},
    }


if __name__ == "__main__":
    main()
