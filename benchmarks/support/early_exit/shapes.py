"""Static exits in the shapes of Llama 3 with random weights, for `benchmarks/gpu/early_exit.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.exit_heads import quarters
from backends.checkpoints.shapes.ladder import LADDER
from benchmarks.support.early_exit.jobs import SAME_RUNNER, Jobs, engine_options
from harness.core.nouns import Model

NEVER_PASSES = 0.9999
"""Of the softmax margin of random weights."""


@dataclass(frozen=True, slots=True)
class MeasuredShape:
    """A model and what is measured on it."""

    name: str
    shape: str
    """In the ladder."""
    layers: int
    batches: tuple[int, ...] = (1, 8, 32, 128)
    prompt_tokens: int = 256
    tokens: int = 64
    repeats: int = 3
    kv_cache_gib: float = 8.0

    @property
    def exits(self) -> list[int]:
        """Quarters of the depth."""
        return list(quarters(self.layers))

    @property
    def config(self) -> Mapping[str, Any]:
        """The shape's, whose number of layers may be another."""
        return LADDER[self.shape]

    def folder(self, jobs: Jobs, layers: int) -> Path:
        """A checkpoint's folder: its shape alone, in small with weights, for a machine where vLLM
        packs what it loads."""
        if jobs.tiny:
            return models.resolve(Model(self.shape, shape=True, layers=layers))
        folder = jobs.out / f"{self.name}-{layers}"
        folder.mkdir(parents=True, exist_ok=True)
        config = {**self.config, "num_hidden_layers": layers, "torch_dtype": "bfloat16"}
        (folder / "config.json").write_text(json.dumps(config))
        return folder


LLAMA_1B = MeasuredShape("1b", "llama-3.2-1b", 16, kv_cache_gib=4.0)
LLAMA_8B = MeasuredShape("8b", "llama-3.1-8b", 32)


def small(shape: MeasuredShape, layers: int) -> MeasuredShape:
    """The same by name, of a size that a CPU can try."""
    return replace(
        shape,
        shape="0.1b",
        layers=layers,
        batches=(1, 4),
        prompt_tokens=12,
        tokens=16,
        repeats=1,
        kv_cache_gib=0.125,
    )


def llama_1b(jobs: Jobs) -> dict[str, Any]:
    """`shape` in the shape of Llama-3.2-1B."""
    return shape(jobs, small(LLAMA_1B, 8) if jobs.tiny else LLAMA_1B)


def llama_8b(jobs: Jobs) -> dict[str, Any]:
    """`shape` in the shape of Llama-3.1-8B."""
    return shape(jobs, small(LLAMA_8B, 4) if jobs.tiny else LLAMA_8B)


def shape(jobs: Jobs, model: MeasuredShape) -> dict[str, Any]:
    """Measure plain vLLM and early exit in each mode; print and return a table of each."""
    whole = model.folder(jobs, model.layers)
    half = model.folder(jobs, model.layers // 2)
    size = model.config["num_key_value_heads"] * model.config["head_dim"]
    rows = {str(e): 2 * (model.layers - e) * size for e in model.exits}
    run = {"name": "fill", "kind": "product", "rows": rows, "width": model.config["hidden_size"]}
    run |= {"batches": model.batches, "dtype": "bfloat16"}
    products = jobs.engine(f"{model.name}-product", None, whole, {}, [run])
    fill = products["runs"]["fill"] if products else None
    result: dict[str, Any] = {"exits": model.exits, "fill_product_ms": fill, "modes": {}}
    for mode in jobs.modes:
        plain = plain_times(jobs, model, mode, {model.layers: whole, model.layers // 2: half})
        early = early_times(jobs, model, mode, whole)
        if plain and early:
            table = compare(model, plain, early, fill)
            result["modes"][mode] = {"plain": plain, "early": early, "table": table}
            show(model, mode, table)
    best = jobs.engine(
        f"{model.name}-plain-default",
        "vllm",
        whole,
        options(jobs, model, "default"),
        [steps(model, "full")],
    )
    result["vllm_default"] = best and best["runs"]["full"]
    return result


def options(jobs: Jobs, model: MeasuredShape, mode: str, **others: Any) -> dict[str, Any]:
    """Those that both backends get."""
    engine = {} if jobs.tiny else {"load_format": "dummy"}
    sizes = {"max_model_len": 1024, "max_num_seqs": max(model.batches)}
    if jobs.tiny:
        sizes["threads"] = 1
    cache = {"kv_cache_gib": model.kv_cache_gib}
    return engine_options(mode, model.batches, engine=engine, **sizes, **cache, **others)


def steps(
    model: MeasuredShape, name: str, configure: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A run that times decode steps."""
    run = {"name": name, "kind": "steps", "batches": model.batches}
    run |= {field: getattr(model, field) for field in ("prompt_tokens", "tokens", "repeats")}
    return run if configure is None else {**run, "configure": configure}


def plain_times(
    jobs: Jobs, model: MeasuredShape, mode: str, folders: dict[int, Path]
) -> dict[str, Any] | None:
    """Plain vLLM's milliseconds per step, by layers and batch."""
    found = {}
    for layers, folder in folders.items():
        done = jobs.engine(
            f"{model.name}-plain-{mode}-{layers}",
            "vllm",
            folder,
            options(jobs, model, mode),
            [steps(model, "full")],
            environment=SAME_RUNNER,
        )
        if done is None:
            return None
        found[str(layers)] = done["runs"]["full"]
    return found


def early_times(jobs: Jobs, model: MeasuredShape, mode: str, folder: Path) -> dict[str, Any] | None:
    """Milliseconds per step of each static exit, of never leaving, and of checks that never pass;
    one engine, cut at all exits."""
    runs = [steps(model, "never", {"measure": "never"})]
    for layer in model.exits:
        static = {"measure": "static", "layers": [layer]}
        runs.append(steps(model, f"static {layer}", static))
    for name, layers in (("one check", model.exits[1:2]), ("three checks", model.exits)):
        check = {"measure": "softmax", "layers": layers, "threshold": NEVER_PASSES}
        runs.append(steps(model, name, check))
    given = options(jobs, model, mode, measure="schedule", layers=model.exits, step_times=False)
    done = jobs.engine(f"{model.name}-early-{mode}", "vllm-early-exit", folder, given, runs)
    return done and done["runs"]


def compare(
    model: MeasuredShape, plain: dict[str, Any], early: dict[str, Any], fill: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """One row per batch and exit: speed-up over plain vLLM, the ideal one, the share reached."""
    table = []
    for batch in map(str, model.batches):
        full = plain[str(model.layers)][batch]["ms"]
        half = plain[str(model.layers // 2)][batch]["ms"]
        per_layer = (full - half) / (model.layers - model.layers // 2)
        never = early["never"][batch]["ms"]
        checks = {name: early[name][batch]["ms"] - never for name in ("one check", "three checks")}
        table.append(
            {"batch": int(batch), "exit": model.layers, "ms": never, "plain_ms": full}
            | {"share": round(full / never, 3), "per_layer_ms": round(per_layer, 4)}
            | {f"{name}_ms": round(time, 4) for name, time in checks.items()}
        )
        for layer in model.exits:
            took = early[f"static {layer}"][batch]["ms"]
            ideal = full - per_layer * (model.layers - layer)
            filled = ideal + (fill[str(layer)][batch] if fill else 0.0)
            table.append(
                {"batch": int(batch), "exit": layer, "ms": took, "plain_ms": full}
                | {"speedup": round(full / took, 3), "ideal": round(full / ideal, 3)}
                | {"share": round(ideal / took, 3), "share_with_fill": round(filled / took, 3)}
            )
    return table


def show(model: MeasuredShape, mode: str, table: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"{model.name} {mode}: batch exit   ms/step  plain  speed-up ideal  share  with fill")
    for row in table:
        line = f"{row['batch']:5d} {row['exit']:4d} {row['ms']:9.3f} {row['plain_ms']:7.3f}"
        if "speedup" in row:
            line += f" {row['speedup']:7.2f}x {row['ideal']:5.2f}x {row['share']:6.1%}"
            line += f" {row['share_with_fill']:6.1%}"
        else:
            checks = f"checks {row['one check_ms']:+.3f}, {row['three checks_ms']:+.3f} ms"
            line += f"    never leaves: {row['share']:6.1%} of plain vLLM; {checks}"
        print(line, flush=True)
