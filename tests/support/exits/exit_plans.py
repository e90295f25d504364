"""Which engines the early-exit tests load, and what they are asked on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from tests.support.exits.exit_loads import (
    RESET,
    Load,
    again,
    conversations,
    crowd,
    pieces,
    prompts,
    waves,
)
from tests.support.exits.exit_models import read_classifier
from tests.support.exits.exit_reference import Rule

OPTIONS: Mapping[str, Any] = {
    "kv_cache_gib": 0.0625,
    "max_model_len": 160,
    "max_num_seqs": 16,
    "threads": 1,
    "enforce_eager": True,
}
EARLY_EXIT = "vllm-early-exit"


@dataclass(frozen=True)
class PlannedRun:
    """One load under one policy. `load` pairs each request with the poll before which it comes."""

    name: str
    configure: Mapping[str, Any]
    load: Load
    mutate: str | None = None
    reset_at: int | None = None


@dataclass(frozen=True)
class PlannedEngine:
    """One engine with the runs that it makes."""

    name: str
    model: Path
    runs: Sequence[PlannedRun]
    options: Mapping[str, Any] = field(default_factory=dict)
    backend: str = EARLY_EXIT
    dtype: str = "float32"

    def plan(self) -> dict[str, Any]:
        """As the child reads it."""
        return {
            "name": self.name,
            "model": str(self.model),
            "backend": self.backend,
            "dtype": self.dtype,
            "options": {**OPTIONS, **self.options},
            "runs": [
                {
                    "name": f"{self.name}/{run.name}",
                    "configure": dict(run.configure),
                    "requests": [[at, r.id, r.prompt_ids, r.max_new_tokens] for at, r in run.load],
                    "mutate": run.mutate,
                    "reset_at": run.reset_at,
                }
                for run in self.runs
            ],
        }

    def rule(self, run: PlannedRun) -> Rule:
        """What the options mean."""
        chosen = {**self.options, **run.configure}
        measure, layers = chosen["measure"], tuple(chosen.get("layers", ()))
        bounds = chosen.get("thresholds") or [chosen.get("threshold", 0.0)] * len(layers)
        heads, classifier = chosen.get("heads", "original"), None
        if measure == "classifier":
            classifier = read_classifier(Path(chosen["classifier"]))
        return Rule(
            measure,
            layers,
            tuple(bounds),
            chosen.get("decay", "none"),
            chosen.get("decay_tau", 4.0),
            Path(heads) if measure == "softmax" and heads != "original" else None,
            classifier,
        )


def confident(depth: int, classifier: Path, heads: Path) -> dict[str, dict[str, Any]]:
    """Measures with thresholds at which sequences of the random models leave everywhere."""
    every = list(range(1, depth))
    rising = [0.2, 0.75, 0.82, 0.86, 0.9, 0.91, 0.94][: depth - 1]
    softmax = {"measure": "softmax", "layers": every, "heads": "original"}
    chosen = {"measure": "classifier", "layers": every, "classifier": str(classifier)}
    return {
        "softmax": {**softmax, "threshold": 0.4},
        "softmax, some layers": {**softmax, "layers": [2, 5], "thresholds": [0.7, 0.05]},
        "softmax, a threshold for each": {
            **softmax,
            "thresholds": [1.0, 0.9, 0.6, 0.1, 0.3, 0.2, 0.0][: depth - 1],
        },
        "softmax, decay calm": {**softmax, "threshold": 0.3, "decay": "calm", "decay_tau": 2.5},
        "softmax, trained heads": {**softmax, "threshold": 0.4, "heads": str(heads)},
        "state": {"measure": "state", "layers": every, "thresholds": rising},
        "state, one that none can pass": {
            "measure": "state",
            "layers": [1, 3, 5],
            "thresholds": [0.1, 1.0, 0.35],
        },
        "state, some layers": {"measure": "state", "layers": [3, 4, 5], "threshold": 0.86},
        "state, decay t5x": {"measure": "state", "layers": every, "thresholds": rising}
        | {"decay": "t5x"},
        "classifier": {**chosen, "threshold": 0.5},
        "classifier, decay calm": {**chosen, "threshold": 0.35, "decay": "calm"},
    }


def forced(depth: int) -> dict[str, dict[str, Any]]:
    """Exits that ask nothing: each layer in turn, far ones beside near ones."""
    zigzag = [
        x for pair in zip(range(1, depth + 1), range(depth, 0, -1), strict=True) for x in pair
    ]
    return {
        "every layer in turn": {"measure": "schedule", "layers": [*zigzag, 1, depth, 2]},
        "shallow and whole": {"measure": "schedule", "layers": [1, depth]},
        "static": {"measure": "static", "layers": [depth // 2]},
        "never": {"measure": "never"},
    }


def eager_engines(at: Mapping[str, Path]) -> list[PlannedEngine]:
    """All measures on both models; then prompts in pieces, prefixes, few blocks."""
    found = []
    for name, depth in (("grouped", 8), ("biased", 6)):
        load = waves(101, seed=depth)
        rules = forced(depth) | confident(depth, at[f"{name} classifier"], at[f"{name} heads"])
        runs = [PlannedRun(label, options, load) for label, options in rules.items()]
        runs.append(
            PlannedRun("reset midway", rules["every layer in turn"], again(load), reset_at=RESET)
        )
        options = {"measure": "softmax", "layers": list(range(1, depth)), "threshold": 0.5}
        found.append(PlannedEngine(name, at[name], runs, options))
    return found


def prompt_engines(at: Mapping[str, Path]) -> list[PlannedEngine]:
    """Prompts in pieces, in the prefix cache, apart from decodes, and more than fits."""
    rules = {
        "every layer in turn": forced(8)["every layer in turn"],
        "softmax": confident(8, at["grouped classifier"], at["grouped heads"])["softmax"],
    }
    every = {"measure": "softmax", "layers": list(range(1, 8)), "threshold": 0.5}
    few = {**every, "max_num_seqs": 6}
    cut = {"engine": {"max_num_batched_tokens": 16, "block_size": 32}}
    tight = {
        "engine": {"max_num_batched_tokens": 33, "block_size": 32, "num_gpu_blocks_override": 7}
    }
    loads = {"pieces": pieces(101), "conversations": conversations(101), "crowd": crowd(101)}
    shapes: dict[str, dict[str, Any]] = {
        "cut": {**few, **cut},
        "cut, cached": {**few, **cut, "prefix_caching": True},
        "cut, apart": {**few, **cut, "prompt_steps": "separate"},
        "tight": {**few, **tight},
        "tight, cached, apart": {**few, **tight, "prefix_caching": True}
        | {"prompt_steps": "separate"},
    }
    return [
        PlannedEngine(
            shape,
            at["grouped"],
            [
                PlannedRun(f"{load}, {rule}", rules[rule], requests)
                for load, requests in loads.items()
                for rule in rules
            ],
            options,
        )
        for shape, options in shapes.items()
    ]


def plain_engines(at: Mapping[str, Path], *, eager: bool) -> list[PlannedEngine]:
    """Unmodified vLLM beside engines that never leave: one opened so, one cut for exits.

    Compiled in bfloat16, graphs that end at exits round at other places than one graph, so that
    random weights choose other tokens now and then: no engine is cut there.
    """
    never = {"measure": "never", "enforce_eager": eager}
    load = [*waves(101, seed=1), *pieces(101)]
    cut = {"measure": "softmax", "layers": [2, 4, 5], "threshold": 0.3, "enforce_eager": eager}
    turns = {"measure": "schedule", "layers": [2, 6, 5, 4, 6, 2, 5]}
    found = []
    for dtype in ("float32", "bfloat16"):
        mode, model = f"{'eager' if eager else 'compiled'} {dtype}", at["biased"]
        runs = [
            PlannedRun("never", never, load),
            PlannedRun("turns", turns, load),
            PlannedRun("softmax", {}, load),
        ]
        plain = PlannedRun("never", {}, load)
        found.append(
            PlannedEngine(f"vllm, {mode}", model, [plain], {"enforce_eager": eager}, "vllm", dtype)
        )
        if eager or dtype == "float32":
            found.append(PlannedEngine(f"cut, {mode}", model, runs, cut, dtype=dtype))
        if eager or dtype == "bfloat16":
            found.append(PlannedEngine(f"whole, {mode}", model, [plain], never, dtype=dtype))
    return found


def wrong_engines(at: Mapping[str, Path]) -> list[PlannedEngine]:
    """Fills that are wrong on purpose, and one by vLLM's own operations, which is not."""
    options = forced(8)["shallow and whole"]
    names = ("writes nothing", "turns keys by one position too many", "forgets the hidden state")
    runs = [PlannedRun(name, options, waves(101, seed=8), mutate=name) for name in names]
    runs.append(PlannedRun("right again", options, waves(101, seed=8)))
    runs.append(
        PlannedRun("by layers", options, waves(101, seed=8), mutate="writes layer by layer")
    )
    return [PlannedEngine("wrong", at["grouped"], runs, {**options, "layers": [1, 8]})]


def demo_engines(at: Mapping[str, Path]) -> list[PlannedEngine]:
    """The bundled model on prompts of its workloads, with all that was trained for it."""
    every = list(range(1, 8))
    softmax = {"measure": "softmax", "layers": every, "heads": "original"}
    rules: dict[str, dict[str, Any]] = {
        "every layer in turn": forced(8)["every layer in turn"],
        "softmax": {**softmax, "threshold": 0.7},
        "softmax, trained heads": {
            **softmax,
            "threshold": 0.7,
            "heads": str(models.DEMO / "heads" / "mixed"),
        },
        "state": {"measure": "state", "layers": every, "threshold": 0.93},
        "classifier": {"measure": "classifier", "layers": every, "threshold": 0.6}
        | {"classifier": str(models.DEMO / "early_exit" / "classifier")},
    }
    load = prompts(at["demo"])
    runs = [PlannedRun(name, rule, load) for name, rule in rules.items()]
    options = {**softmax, "threshold": 0.5, "max_model_len": 1024}
    return [PlannedEngine("demo", at["demo"], runs, options)]


def eager_plain(at: Mapping[str, Path]) -> list[PlannedEngine]:
    """See `plain_engines`."""
    return plain_engines(at, eager=True)


def compiled_plain(at: Mapping[str, Path]) -> list[PlannedEngine]:
    """See `plain_engines`."""
    return plain_engines(at, eager=False)
