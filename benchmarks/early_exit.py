"""Early exit inside vLLM against vLLM itself, in one run.

    python benchmarks/early_exit.py [--parts never static checks techniques bounds prompts]
                                    [--modes eager norm compiled] [--repeats 7] [--requests 24]
                                    [--model demo | random | FOLDER]

never       what never leaves against plain vLLM, opened so or cut at exits: same tokens, and speed
static      always leaving at half the depth against the ideal: a vLLM of half the layers, plus the
            fill; where the rest goes
checks      what checking costs that never passes, by measure and number of layers
techniques  static, softmax, classifier and state with their calibrated thresholds on the bundled
            workloads: throughput over vLLM, ROUGE-L to full, exits, and what the batch costs them
bounds      what decoding a batch in two groups by depth could gain at best, and a free probe before
            the softmax
prompts     prompts apart from decodes against steps that mix them, under requests that keep coming

Modes: eager, eager with the compiled RMSNorm (both sides), compiled. The engines are loaded beside
each other and take turns; ratios are medians over the turns with their quartiles. `random` is a
model of 126M random weights. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from benchmarks.support.early_exit.bounds import bounds
from benchmarks.support.early_exit.steps import checks, never, static
from benchmarks.support.early_exit.text import prompts, techniques
from benchmarks.support.turns import MODES
from harness.core.nouns import Model

RANDOM = {
    "num_hidden_layers": 16,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "vocab_size": 16384,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}


def main() -> None:
    parts: dict[str, Callable[[argparse.Namespace, str], Any]] = {
        "never": never,
        "static": static,
        "checks": checks,
        "techniques": techniques,
        "bounds": bounds,
        "prompts": prompts,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--model", default="demo")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--requests", type=int, default=24, help="of each workload")
    parser.add_argument("--threads", type=int, default=None)
    chosen = parser.parse_args()
    result: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        chosen.folder = _model(chosen.model, Path(folder))
        for part in chosen.parts:
            for mode in chosen.modes:
                found = result[f"{part} {mode}"] = parts[part](chosen, mode)
                print(f"{part} {mode}: {json.dumps(found)}", flush=True)
    print(json.dumps(result))


def _model(name: str, folder: Path) -> Path:
    if name != "random":
        return models.resolve(Model(name))
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**RANDOM)).save_pretrained(folder / "random")
    return folder / "random"


if __name__ == "__main__":
    main()
