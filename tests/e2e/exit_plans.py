"""Which engines the early-exit tests load, and what they are asked on each."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backends import models
from harness.core import Request
from tests.exit_models import write_exit_model
from tests.exit_reference import Rule

OPTIONS: Mapping[str, Any] = {
    "kv_cache_gib": 0.0625,
    "max_model_len": 160,
    "max_num_seqs": 16,
    "threads": 1,
    "enforce_eager": True,
}
EARLY_EXIT = "vllm-early-exit"
Load = Sequence[tuple[int, Request]]


@dataclass(frozen=True)
class Run:
    """One load under one policy. `load` pairs each request with the poll before which it comes."""

    name: str
    configure: Mapping[str, Any]
    load: Load
    mutate: str | None = None
    reset_at: int | None = None


@dataclass(frozen=True)
class Engine:
    """One engine with the runs that it makes."""

    name: str
    model: Path
    runs: Sequence[Run]
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

    def rule(self, run: Run) -> Rule:
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


def waves(vocabulary: int, *, seed: int = 0, count: int = 16, every: int = 2) -> list[Any]:
    """Requests that join one after another until `count` decode together, and leave one by one."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        length = draw.choice([1, 2, 3, draw.randint(4, 40)])
        tokens = every * (count - number) + 3 + (5 * number) % 13
        found.append((number * every, ask(f"wave-{number}", length, tokens, vocabulary, draw)))
    return found


def ask(name: str, length: int, tokens: int, vocabulary: int, draw: random.Random) -> Request:
    """A request with a random prompt."""
    return Request(name, tuple(draw.randrange(vocabulary) for _ in range(length)), tokens)


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
        "state, some layers": {"measure": "state", "layers": [3, 4, 5], "threshold": 0.86},
        "state, decay t5x": {"measure": "state", "layers": every, "thresholds": rising}
        | {"decay": "t5x"},
        "classifier": {**chosen, "threshold": 0.5},
        "classifier, decay calm": {**chosen, "threshold": 0.35, "decay": "calm"},
    }


def forced(depth: int) -> dict[str, dict[str, Any]]:
    """Exits that ask nothing: each layer in turn, far ones beside near ones."""
    zigzag = [x for pair in zip(range(1, depth + 1), range(depth, 0, -1), strict=True) for x in pair]
    return {
        "every layer in turn": {"measure": "schedule", "layers": [*zigzag, 1, depth, 2]},
        "shallow and whole": {"measure": "schedule", "layers": [1, depth]},
        "static": {"measure": "static", "layers": [depth // 2]},
        "never": {"measure": "never"},
    }


def write_models(folder: Path) -> dict[str, Path]:
    """Every checkpoint, classifier and folder of heads that the plans use."""
    found = {"demo": models.BUNDLED["demo"]}
    for name in ("grouped", "biased"):
        found[name] = write_exit_model(folder / name, name)
        found[f"{name} heads"] = write_heads(folder / f"{name}-heads", found[name])
        found[f"{name} classifier"] = write_classifier(folder / f"{name}-classifier", found[name])
    return found


def write_heads(folder: Path, model: Path) -> Path:
    """Random exit heads: of two kinds, a transform of the final head and a head of its own."""
    import torch
    from safetensors.torch import save_file

    config = models.read_config(model)
    width, vocabulary = config["hidden_size"], config["vocab_size"]
    layers = list(range(1, config["num_hidden_layers"]))
    draw = torch.Generator().manual_seed(3)
    tensors = {
        "token_order": torch.arange(vocabulary, dtype=torch.int32),
        "trace.start": torch.tensor([0, 1], dtype=torch.int32),
        "trace.confidence": torch.zeros(1, len(layers), dtype=torch.float16),
        "trace.confidence_original": torch.zeros(1, len(layers), dtype=torch.float16),
        "trace.agrees": torch.zeros(1, len(layers), dtype=torch.uint8),
        "trace.agrees_original": torch.zeros(1, len(layers), dtype=torch.uint8),
    }
    for layer in layers:
        if layer % 2:
            noise = torch.randn(width, width, generator=draw) * 0.05
            tensors[f"layer.{layer}.transform"] = torch.eye(width) + noise
        else:
            tensors[f"layer.{layer}.head"] = torch.randn(vocabulary, width, generator=draw) * 0.5
    folder.mkdir(parents=True)
    save_file(tensors, folder / "heads.safetensors")
    about = {"format": 1, "checkpoint": models.checksum(model), "layers": layers}
    about |= {"width": width, "vocabulary": vocabulary}
    (folder / "heads.json").write_text(json.dumps(about))
    return folder


def write_classifier(folder: Path, model: Path) -> Path:
    """A random classifier that is sure of half the states."""
    import torch
    from safetensors.torch import save_file

    config = models.read_config(model)
    draw = torch.Generator().manual_seed(7)
    weight = torch.randn(2, config["hidden_size"], generator=draw) * 0.06
    folder.mkdir(parents=True)
    tensors = {"weight": weight, "bias": torch.tensor([0.1, -0.1])}
    save_file(tensors, folder / "classifier.safetensors")
    about = {"format": 1, "checkpoint": models.checksum(model), "width": config["hidden_size"]}
    about |= {"layers": list(range(1, config["num_hidden_layers"])), "recipe": {}, "report": {}}
    (folder / "classifier.json").write_text(json.dumps(about))
    return folder


def read_classifier(folder: Path) -> tuple[Any, Any]:
    """Weight and bias as they lie in the file."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "classifier.safetensors")
    return tensors["weight"], tensors["bias"]


def eager_engines(at: Mapping[str, Path]) -> list[Engine]:
    """All measures on both models; then prompts in pieces, prefixes, few blocks."""
    found = []
    for name, depth in (("grouped", 8), ("biased", 6)):
        load = waves(101, seed=depth)
        rules = forced(depth) | confident(depth, at[f"{name} classifier"], at[f"{name} heads"])
        runs = [Run(label, options, load) for label, options in rules.items()]
        runs.append(Run("reset midway", rules["every layer in turn"], again(load), reset_at=21))
        options = {"measure": "softmax", "layers": list(range(1, depth)), "threshold": 0.5}
        found.append(Engine(name, at[name], runs, options))
    return found


def again(load: Load) -> Load:
    """The load twice: a reset in the middle of the first leaves room for the second."""
    return [*load, *((at + 24, replace(r, id=f"again-{r.id}")) for at, r in load)]


def pieces(vocabulary: int) -> list[Any]:
    """Prompts cut into pieces, of which the last is often one token, beside ones that decode."""
    draw = random.Random(5)
    lengths = [17, 33, 5, 49, 1, 18, 40, 65, 2, 34, 16, 81]
    return [
        (2 * n + n % 2, ask(f"piece-{n}", length, 10 + 3 * (n % 5), vocabulary, draw))
        for n, length in enumerate(lengths)
    ]


def crowd(vocabulary: int) -> list[Any]:
    """Answers that together outgrow few blocks, so that some have to give way and begin again."""
    draw = random.Random(9)
    lengths = [9, 30, 3, 41, 12, 60, 1, 25]
    return [(n, ask(f"crowd-{n}", x, 40 + 7 * n, vocabulary, draw)) for n, x in enumerate(lengths)]


def conversations(vocabulary: int) -> list[Any]:
    """Prompts with beginnings that were computed before: all of them but one token, some blocks
    only, and (second turns) answers whose cache was filled by exits."""
    draw = random.Random(8)
    first = ask("first", 64, 40, vocabulary, draw)
    whole = replace(first, id="whole", max_new_tokens=12)
    longer = Request("longer", (*first.prompt_ids, 5), 14)
    half = Request("half", (*first.prompt_ids[:32], *range(20)), 9)
    other = ask("other", 7, 50, vocabulary, draw)
    return [(0, first), (1, other), (6, whole), (8, longer), (9, half), (30, replace(whole, id="w"))]


def prompt_engines(at: Mapping[str, Path]) -> list[Engine]:
    """Prompts in pieces, in the prefix cache, apart from decodes, and more than fits."""
    rules = {
        "every layer in turn": forced(8)["every layer in turn"],
        "softmax": confident(8, at["grouped classifier"], at["grouped heads"])["softmax"],
    }
    every = {"measure": "softmax", "layers": list(range(1, 8)), "threshold": 0.5}
    few = {**every, "max_num_seqs": 6}
    cut = {"engine": {"max_num_batched_tokens": 16, "block_size": 32}}
    tight = {"engine": {"max_num_batched_tokens": 33, "block_size": 32, "num_gpu_blocks_override": 7}}
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
        Engine(
            shape,
            at["grouped"],
            [
                Run(f"{load}, {rule}", rules[rule], requests)
                for load, requests in loads.items()
                for rule in rules
            ],
            options,
        )
        for shape, options in shapes.items()
    ]
