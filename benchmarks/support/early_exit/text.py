"""Early exit on the bundled workloads against plain vLLM, for `benchmarks/early_exit.py`."""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Sequence
from typing import Any

from backends.checkpoints import models
from benchmarks.support.turns import (
    BATCHES,
    WORKLOADS,
    Wanted,
    answers,
    counted,
    engines,
    in_turns,
    mixed_requests,
    spread,
    tokens_per_second,
)
from harness.core.nouns import Generation
from harness.core.rouge import rouge_l


def techniques(chosen: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Throughput over plain vLLM's with the calibrated thresholds, and what it costs in text."""
    depth = models.read_config(chosen.folder)["num_hidden_layers"]
    tokenizer = models.load_tokenizer(chosen.folder)
    requests = mixed_requests(str(chosen.folder), chosen.requests * len(WORKLOADS))
    options = {m: {"measure": m} for m in ("static", "softmax", "classifier", "state")}
    every = {"measure": "schedule", "layers": list(range(1, depth))}
    wanted: dict[str, Wanted] = {"vllm": ("vllm", chosen.folder, {}),
              "early": ("vllm-early-exit", chosen.folder, every)}  # fmt: skip
    if mode == "compiled":  # each engine cut where it leaves, as a user would have it
        del wanted["early"]
        wanted |= {m: ("vllm-early-exit", chosen.folder, o) for m, o in options.items()}
    found: dict[str, Any] = {}
    with engines(chosen, mode, **wanted) as systems:

        def run(technique: str, batch: int) -> float:
            system = systems.get(technique) or systems["early"]
            if technique in options and mode != "compiled":
                system.configure({"layers": "auto", **options[technique]})
            done = last[technique] = answers(system, requests, batch)
            return tokens_per_second(done)

        for batch in BATCHES:
            last: dict[str, list[Generation]] = {}
            calls = {n: functools.partial(run, n, batch) for n in ("vllm", *options)}
            times = in_turns(calls, chosen.repeats)
            texts = {n: [tokenizer.decode(g.token_ids) for g in done] for n, done in last.items()}
            found[f"batch {batch}"] = {
                name: {
                    "throughput": spread(times[name], times["vllm"]),
                    "rouge_l_to_full": round(
                        statistics.mean(map(rouge_l, texts["vllm"], texts[name])), 4
                    ),
                    **exits(last[name]),
                }
                for name in options
            }
    return found


def exits(done: Sequence[Generation]) -> dict[str, Any]:
    """Where the decode steps left, together and each sequence alone."""
    sums = counted(done)
    steps = sums["steps"]

    def share(name: str) -> float | None:  # None where nothing was timed
        return round(sums[name] / sums["forward_us"], 4) if "forward_us" in sums else None

    return {
        "early_exit_rate": round(sums["layers_skipped"] / sums["layers_total"], 4),
        "mean exit layer": round(sums["layers_run"] / steps, 3),
        "needed alone": round(sums["layers_needed"] / steps, 3),
        "mixed steps": round(sums.get("mixed_steps", 0) / steps, 4),
        "checks of the forward pass": share("check_us"),
        "fill of the forward pass": share("fill_us"),
    }


def prompts(chosen: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Throughput with prompts apart over mixed steps, in closed loops of short answers."""
    requests = mixed_requests(str(chosen.folder), chosen.requests * len(WORKLOADS))
    options: dict[str, Any] = {"measure": "static", "layers": [3]}
    wanted: dict[str, Wanted] = {
        name: ("vllm-early-exit", chosen.folder, {**options, "prompt_steps": name})
        for name in ("mixed", "separate")
    }
    found: dict[str, Any] = {}
    with engines(chosen, mode, **wanted) as systems:
        for batch in BATCHES[1:]:
            last: dict[str, list[Generation]] = {}

            def run(name: str, batch: int, last: dict[str, list[Generation]] = last) -> float:
                last[name] = answers(systems[name], requests, batch)
                return tokens_per_second(last[name])

            calls = {name: functools.partial(run, name, batch) for name in wanted}
            times = in_turns(calls, chosen.repeats)
            found[f"batch {batch}"] = {
                **spread(times["separate"], times["mixed"]),
                **{f"mixed steps, {name}": exits(last[name])["mixed steps"] for name in wanted},
            }
    return found
