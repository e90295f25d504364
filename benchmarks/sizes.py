"""Every system at the sizes that users run: random weights, replayed decisions, the sweep itself.

    python benchmarks/sizes.py [--sizes 0.1b 0.5b 1b] [--tokens 48] [--requests 6] [--repeats 3]
                               [--parts decoding prompts] [--out FOLDER]

Two experiments, each run by `decodebench run`: decoding at 1, 8 and 16 requests in flight, and
prompts of 1,000 tokens. For each size: plain decoding on our engine over vLLM compiled, its share
of the memory floor, a step of 8 and 16 rows over that of one, prompt tokens per second over vLLM's,
the peak memory of its process over the bytes of the weights, and each method's speed-up beside what
costs and decisions predict. Medians over the repeats. With --out the two run folders stay, and
`decodebench report` draws them. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.sweeps import measured, rounded
from reports.cells import Cell, Overview
from reports.sections.speed import sizes

PARTS = ("decoding", "prompts")
PROMPT = 1000
LONGEST = 1280
"""Positions: a long prompt and a few tokens."""
ROWS = (1, 8, 16)
WORDS = 2000
"""Of a long document, over 1,000 of the demo model's tokens; the rest is cut off."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", nargs="+", default=["0.1b", "0.5b", "1b"])
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--requests", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    result: dict[str, dict[str, Any]] = {model: {} for model in chosen.sizes}
    with tempfile.TemporaryDirectory() as folder:
        out = chosen.out or Path(folder)
        if "decoding" in chosen.parts:
            decoding = measured(out / "decoding", decode_experiment(chosen))
            for model, found in result.items():
                found |= {**decoded(decoding, model), "methods": methods(decoding, model)}
        if "prompts" in chosen.parts:
            reading = measured(out / "prompts", prompt_experiment(chosen, Path(folder)))
            for model, found in result.items():
                found |= read(reading, model)
    for model, found in result.items():
        print(f"{model}: {json.dumps(found)}", flush=True)
    print(json.dumps(result))


def decode_experiment(chosen: argparse.Namespace) -> dict[str, Any]:
    """Plain decoding, and each method with the decisions of the demo model, drafts in the numbers
    that were recorded."""
    compiled = {"enforce_eager": False, "max_model_len": LONGEST, "replay": "demo"}
    own = {"max_model_len": LONGEST, "replay": "demo"}
    return experiment(
        chosen,
        "decoding",
        [
            {"name": "vllm", **compiled},
            {"name": "vllm-early-exit", **compiled},
            {"name": "autoregressive", **own},
            {"name": "adadecode", **own},
            {"name": "speculative", "method": "draft_model", "drafts": 12, **own},
            {"name": "speculative", "method": "layerskip", "drafts": 8, **own},
        ],
        [{"name": "gsm8k", "max_new_tokens": chosen.tokens}],
        chosen.rows,
    )


def prompt_experiment(chosen: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Long prompts, two tokens each: the time to the first is the prompt's."""
    draw = random.Random(0)
    words = ["harbour", "council", "voted", "repair", "bridge", "river", "winter", "town"]
    rows = [
        {
            "document": " ".join(draw.choices(words, k=WORDS)),
            "summary": "none",
            "id": str(n),
        }
        for n in range(chosen.requests)
    ]
    source = folder / "long.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = {"max_model_len": LONGEST}
    workload = {
        "name": "xsum", "source": str(source), "max_article_tokens": PROMPT, "max_new_tokens": 2,
    }  # fmt: skip
    return experiment(
        chosen,
        "prompts",
        [{"name": "vllm", "enforce_eager": False, **common}, {"name": "autoregressive", **common}],
        [workload],
        (1,),
    )


def experiment(
    chosen: argparse.Namespace,
    name: str,
    backends: Sequence[dict[str, Any]],
    workloads: Sequence[dict[str, Any]],
    concurrency: Sequence[int],
) -> dict[str, Any]:
    """What both experiments have in common."""
    return {
        "name": name,
        "model": {"shape": chosen.sizes},
        "dtype": "bfloat16",
        "reference": "vllm",
        "ignore_eos": True,
        "backends": backends,
        "workloads": workloads,
        "load": [{"kind": "closed", "concurrency": list(concurrency)}],
        "requests": max(chosen.requests, *concurrency),
        "repeats": chosen.repeats,
    }


def cell(seen: Overview, backend: str, model: str, load_value: float = 1) -> Cell:
    """The one of a backend on a model under a load."""
    return next(
        cell
        for cell in seen.cells
        if (cell.variant.backend, cell.load_value) == (backend, load_value)
        and cell.model in ("", model)
    )


def decoded(seen: Overview, model: str) -> dict[str, Any]:
    """Plain decoding on our engine."""
    rows = sorted({cell.load_value for cell in seen.cells if cell.load_value})
    own = {n: cell(seen, "autoregressive", model, n) for n in rows}
    one, steps = own[1], {n: own[n].value("step_s") or 0.0 for n in rows}
    known = one.measured.pass_bytes or {}
    weights = known["layers"] * known["layer"] + known["head"]
    return {
        "over_vllm": {f"{n:g}": rounded(own[n].value("speedup")) for n in rows},
        "share_of_floor": rounded(one.value("floor_share")),
        "rows_over_one": {f"{n:g}": rounded(steps[n] / steps[1]) for n in rows},
        "peak_over_weights": rounded((one.value("peak_memory_bytes") or 0) / weights),
    }


def read(seen: Overview, model: str) -> dict[str, Any]:
    """Prompts: our tokens per second over vLLM's."""
    theirs, ours = (
        cell(seen, name, model).value("ttft_s_p50") for name in ("vllm", "autoregressive")
    )
    return {
        "prompt_tok_per_s": round(PROMPT / ours, 1) if ours else None,
        "prompt_over_vllm": rounded(theirs / ours if theirs and ours else None),
    }


def methods(seen: Overview, model: str) -> dict[str, Any]:
    """Speed-ups over vLLM and over the same engine's plain decoding, and what is predicted."""
    return {
        f"{own.cell.variant.label} {own.cell.load}": {
            "over_vllm": rounded(own.cell.value("speedup")),
            "over_plain": rounded(own.over_plain),
            "predicted": rounded(sizes.predicted(own)),
        }
        for own in sizes.sized(seen)
        if own.cell.model in ("", model) and own.over_plain is not None
    }


if __name__ == "__main__":
    main()
