"""Decode steps of early exit against plain vLLM's, for `benchmarks/early_exit.py`."""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.exit_heads import quarters
from benchmarks.support.turns import (
    BATCHES,
    PROMPT,
    TOKENS,
    Wanted,
    answers,
    engines,
    in_turns,
    random_requests,
    spread,
    step_ms,
)


def never(chosen: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Speed of never leaving over plain vLLM's, and how many answers differ: of an engine opened
    so, and of one that is cut at the quarters of the depth. Beside them a second plain vLLM:
    engines of one process differ by where their memory lies."""
    depth = models.read_config(chosen.folder)["num_hidden_layers"]
    found: dict[str, Any] = {}
    plain: Wanted = ("vllm", chosen.folder, {})
    early: Wanted = ("vllm-early-exit", chosen.folder, {"measure": "never"})
    schedule = {"measure": "schedule", "layers": list(quarters(depth))}
    cut: Wanted = ("vllm-early-exit", chosen.folder, schedule)
    with engines(chosen, mode, vllm=plain, never=early, cut=cut, again=plain) as systems:
        systems["cut"].configure({"measure": "never"})
        for batch in BATCHES:
            calls = {n: functools.partial(step_ms, s, batch) for n, s in systems.items()}
            times = in_turns(calls, chosen.repeats)
            requests = random_requests(batch, PROMPT, TOKENS, 1)
            texts = {n: answers(s, requests, batch) for n, s in systems.items()}
            found[f"batch {batch}"] = {
                name: {
                    **spread(times["vllm"], times[name]),
                    "answers that differ": sum(
                        a.token_ids != b.token_ids
                        for a, b in zip(texts["vllm"], texts[name], strict=True)
                    ),
                }
                for name in ("never", "cut", "again")
            }
    return found


def static(chosen: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Half the depth against a vLLM that has half the layers, plus the fill."""
    depth = models.read_config(chosen.folder)["num_hidden_layers"]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        half = truncated(chosen.folder, Path(folder) / "half", depth // 2)
        wanted: dict[str, Wanted] = {
            "full": ("vllm", chosen.folder, {}),
            "half": ("vllm", half, {}),
            "static": ("vllm-early-exit", chosen.folder, {"measure": "static"}),
        }
        with engines(chosen, mode, **wanted) as systems:
            for batch in BATCHES:
                calls = {n: functools.partial(step_ms, s, batch) for n, s in systems.items()}
                times = in_turns(calls, chosen.repeats)
                fill = fill_ms(systems["static"], batch)
                ideal = [ms + fill for ms in times["half"]]
                gap = statistics.median(times["static"]) - statistics.median(ideal)
                found[f"batch {batch}"] = {
                    "speed-up": spread(times["full"], times["static"]),
                    "half the layers": spread(times["full"], times["half"]),
                    "ideal with the fill": spread(times["full"], ideal),
                    "share of the ideal": spread(ideal, times["static"]),
                    "fill of a step": round(fill / statistics.median(times["static"]), 4),
                    "rest of a step": round(gap / statistics.median(times["static"]), 4),
                }
    return found


def fill_ms(backend: Any, batch: int) -> float:
    """The median fill of one step."""
    requests = random_requests(batch, PROMPT, TOKENS, 2)
    per_step = [
        g.telemetry["fill_us"] / g.telemetry["steps"] * batch / 1e3
        for g in answers(backend, requests, batch)
    ]
    return statistics.median(per_step)


def truncated(folder: Path, target: Path, layers: int) -> Path:
    """The checkpoint's first layers as a checkpoint."""
    from safetensors.torch import load_file, save_file

    target.mkdir()
    for file in folder.iterdir():
        if file.suffix == ".json" and file.name != "config.json":
            shutil.copy(file, target)
    config = models.read_config(folder) | {"num_hidden_layers": layers}
    (target / "config.json").write_text(json.dumps(config))
    tensors = {}
    for file in folder.glob("*.safetensors"):
        for name, tensor in load_file(file).items():
            parts = name.split(".")
            if parts[1] != "layers" or int(parts[2]) < layers:
                tensors[name] = tensor
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


def checks(chosen: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Speed with checks that never pass over plain vLLM's. It includes the making of a threshold
    for each row, which only decays need."""
    depth = models.read_config(chosen.folder)["num_hidden_layers"]
    sets = {"one": [depth // 2], "all": list(range(1, depth))}
    measures = ["softmax", "state", *["classifier"][: chosen.model == "demo"]]
    found: dict[str, Any] = {}
    every = {"measure": "schedule", "layers": sets["all"]}
    wanted: dict[str, Wanted] = {"vllm": ("vllm", chosen.folder, {}),
              "early": ("vllm-early-exit", chosen.folder, every)}  # fmt: skip
    with engines(chosen, mode, **wanted) as systems:
        early = systems["early"]

        def checked(measure: str, layers: list[int], batch: int) -> float:
            # a bound of 1 that the policy does not know to be one: checked, and never passed
            bound = {"threshold": 1, "decay": "calm", "decay_tau": 1e-9}
            early.configure({"measure": measure, "layers": layers, **bound})
            return step_ms(early, batch)

        for batch in BATCHES:
            calls = {
                f"{measure} {name}": functools.partial(checked, measure, layers, batch)
                for measure in measures
                for name, layers in sets.items()
            }
            plain = functools.partial(step_ms, systems["vllm"], batch)
            times = in_turns({"vllm": plain, **calls}, chosen.repeats)
            found[f"batch {batch}"] = {n: spread(times["vllm"], times[n]) for n in calls}
    return found
