"""A model of some 180M parameters, trained on the spot, and AdaDecode on it beside both baselines.

    python benchmarks/gpu/midsize.py --out FOLDER [--minutes 4.5] [--head-minutes 1.5]
                                     [--layers 16] [--width 1024] [--requests 12] [--without-vllm]

One go, for a machine on which nothing is kept: trains on the bundled train rows as the demo model
is trained, trains exit heads at every second layer, then compares plain decoding, AdaDecode, vLLM
and transformers on bundled test rows (`benchmarks/adadecode.py`, `soundness/exactness.py`). The
same command goes on where it was stopped. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DTYPE = "bfloat16"
PARTS = {"speed": "benchmarks/adadecode.py", "consistency": "benchmarks/soundness/exactness.py"}
WORKLOADS = ("cnn_dailymail", "xsum", "humaneval", "gsm8k")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=4.5, help="of training the model")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--head-minutes", type=float, default=1.5)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=200, help="prompts for the heads")
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--without-vllm", action="store_true")
    chosen = parser.parse_args()
    model, heads = chosen.out / "model", chosen.out / "heads"
    result: dict[str, Any] = {"train_s": train(chosen, model)}
    result["quality"] = quality(model)
    result["heads"] = train_heads(chosen, model, heads)
    print(json.dumps(result), flush=True)
    result["adadecode"] = {part: compare(chosen, part, model, heads) for part in chosen.parts}
    print(json.dumps(result))


def train(chosen: argparse.Namespace, out: Path) -> float:
    """Train the model, or go on; the seconds that it took."""
    from backends.training.small_models.demo import train_demo
    from backends.training.small_models.recipe import Recipe, TrainingProgress

    def report(progress: TrainingProgress) -> None:
        losses = " ".join(f"{loss:.2f}" for loss in progress.layer_losses)
        print(f"step {progress.step}: {losses}, {progress.tokens_per_s:,.0f} tok/s", flush=True)

    head_dim = 64
    shape = {
        "layers": chosen.layers,
        "width": chosen.width,
        "feed_forward": chosen.width * 11 // 4 // 16 * 16,
        "heads": chosen.width // head_dim,
        "kv_heads": max(1, chosen.width // head_dim // 4),
    }
    started = time.monotonic()
    # a larger model wants smaller steps
    recipe = Recipe(steps=chosen.steps, late_from=chosen.steps * 3 // 5, muon_lr=0.01, shape=shape)
    out.mkdir(parents=True, exist_ok=True)
    train_demo(out, recipe=recipe, minutes=chosen.minutes, progress=report)
    return round(time.monotonic() - started, 1)


def quality(model: Path) -> dict[str, float]:
    """Mean task score of plain decoding on a few unseen rows of each workload."""
    from backends.checkpoints import models
    from benchmarks.adadecode import opened
    from benchmarks.support.turns import answers, requests_of
    from workloads.bundled import rows
    from workloads.scoring import score_all

    count = 24
    plain = opened(
        argparse.Namespace(model=str(model), threads=None, dtype=DTYPE), "autoregressive"
    )
    tokenizer = models.load_tokenizer(model)
    found = {}
    for workload in WORKLOADS:
        made = answers(plain, requests_of(str(model), workload, count), 8)
        texts = [tokenizer.decode(g.token_ids, skip_special_tokens=True) for g in made]
        scores = score_all(workload, rows(workload, "test", count, 0), texts)
        found[workload] = round(sum(next(iter(s.values())) for s in scores) / count, 3)
    plain.close()
    return found


def train_heads(chosen: argparse.Namespace, model: Path, out: Path) -> dict[str, Any]:
    """Exit heads after every second layer; their agreement with the last layer."""
    from backends.training.heads import train as heads

    layers = ",".join(str(layer) for layer in range(2, chosen.layers, 2)) or "1"
    content = heads.train_heads(
        str(model),
        list(WORKLOADS),
        out,
        layers=layers,
        minutes=chosen.head_minutes,
        rows=chosen.rows,
    )
    if "layers" not in content:
        sys.exit("heads: no epoch was finished in time; the same command goes on")
    return {"layers": content["layers"], "training": content["report"]["training"]["ended"]}


def compare(chosen: argparse.Namespace, part: str, model: Path, heads: Path) -> Any:
    """What the script of a part says, from a process of its own."""
    speed = ["--repeats", str(chosen.repeats)] + ["--without-vllm"] * chosen.without_vllm
    exact = ["--methods", "autoregressive", "adadecode", "adadecode policies"]
    command = [
        *(sys.executable, PARTS[part], "--model", str(model), "--heads", str(heads)),
        *("--requests", str(chosen.requests), *(speed if part == "speed" else exact)),
    ]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    last = [*done.stdout.splitlines(), ""][-1]
    return json.loads(last) if last.startswith("{") else {"failed": done.returncode}


if __name__ == "__main__":
    main()
