"""Every system at 8B on a GPU: random weights, replayed decisions, the sweep itself.

    python benchmarks/gpu/sizes.py --out FOLDER [--sizes 1b llama-3.1-8b] [--requests 64]
                                   [--repeats 3] [--minutes 20] [--systems vllm autoregressive]
                                   [--pipeline] [--tiny]

Measures the device's bandwidth, then runs `benchmarks/sizes.py`'s decoding experiment with CUDA
graphs: plain vLLM (`vllm`, and `vllm-pieces` with graphs between attentions alone), early exit
inside it (also with graphs of whole segments), its EAGLE-3 with the acceptance of a server's log
(0.72, 0.50, 0.34 of three drafts), plain decoding on our engine, AdaDecode with the model's own
head at each exit (as it is, in 8 bits, with a shortlist of 16,384 tokens), early exit on our
engine, and drafts of a smaller shape, as many as its costs tell it. `--systems` chooses among
them: a card holds some seven engines of 8B side by side. With `--pipeline` it runs instead, beside
plain decoding, early exit on our engine: in lockstep, by ready rows, and in two stages, a process
each, on the one card or on two. Tells each system's share of the bandwidth floor and its speed-ups;
`decodebench report FOLDER/decoding` draws them. What was measured stays in FOLDER: the same command
goes on where it was stopped. With two engines of vLLM an H200 took 5 minutes for the first starts
at 8B, and 75 s for the trials of a repeat.
`--tiny` tries the whole path on 0.1b, on a CPU too. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.sizes import experiment, methods
from benchmarks.support.early_exit.jobs import SAME_RUNNER
from benchmarks.support.sweeps import MAIN, command, rounded, seen
from reports.cells import Overview

LONGEST = 512
"""Positions; the demo model's prompts of gsm8k have some 60."""
PROMPT_ROWS = (64, 128, 256, 512)
"""Graphs for prompts, as vLLM has them by default where it may serve 256 at once."""
SHORTLIST = 16384
LOGGED = (0.72, 0.50, 0.34)
"""Drafts that stand, by place, as vLLM's log of a server tells them (an example, of no server)."""
SYSTEMS = (
    "vllm", "vllm-pieces", "vllm-early-exit", "vllm-early-exit-segments", "vllm-speculative",
    "autoregressive", "adadecode", "adadecode-8-bits", "adadecode-shortlist", "own-early-exit",
    "speculative",
)  # fmt: skip
GPU_ALONE = ("vllm-pieces", "vllm-early-exit-segments", "adadecode-8-bits")
"""What is no other system without CUDA graphs, or needs a GPU: left out of `--tiny`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", nargs="+", default=["1b", "llama-3.1-8b"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--requests", type=int, default=64, help="more than one wave of the most")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=20.0, help="after which it stops")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--memory-share", type=float, default=0.2, help="of the device, per engine")
    parser.add_argument("--kv-cache-gib", type=float, default=4.0, help="of each of vLLM's engines")
    parser.add_argument("--pipeline", action="store_true", help="TETRIS, and what it is held to")
    parser.add_argument("--tiny", action="store_true", help="try the whole path in small")
    chosen = parser.parse_args()
    if chosen.tiny:
        chosen.sizes, chosen.rows, chosen.tokens = ["0.1b"], [1], 4
        chosen.requests = chosen.repeats = 1
    ended_in_time(*MAIN, "doctor", "--bandwidth")
    out = chosen.out / "decoding"
    ended = ended_in_time(*command(out, asked(chosen)), seconds=60 * chosen.minutes)
    found = seen(out)
    result = {model: shares(found, model) for model in chosen.sizes}
    print(json.dumps({"ended": ended, **result}))
    sys.exit(not ended)


def ended_in_time(*words: str, seconds: float | None = None) -> bool:
    """Run a command; whether it ended well and in time. What a sweep has stored by then is
    whole."""
    environment = os.environ | SAME_RUNNER
    try:
        done = subprocess.run(words, env=environment, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def asked(chosen: argparse.Namespace) -> dict[str, Any]:
    """The experiment."""
    workloads = [{"name": "gsm8k", "max_new_tokens": chosen.tokens}]
    backends = pipeline(chosen) if chosen.pipeline else methods_of(chosen)
    content = experiment(chosen, "decoding", backends, workloads, chosen.rows)
    rates = {"logged": {"acceptance": list(LOGGED)}}
    return {**content, "rates": rates, "reference": backends[0]["name"]}


def pipeline(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Plain decoding, early exit in one process, and as a pipeline."""
    common = {"max_model_len": LONGEST, "replay": "demo", "max_num_seqs": max(chosen.rows)}
    early = {"name": "own-early-exit", **common}
    return [
        {"name": "autoregressive", **common},
        {**early, "batching": "lockstep"},
        {**early, "batching": "ready"},
        {"name": "tetris", "stages": 2, **common},
    ]


def methods_of(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """The chosen systems; vLLM's engines first, which reserve their memory at once."""
    common: dict[str, Any] = {"max_model_len": LONGEST, "replay": "demo"}
    if chosen.tiny:
        compiled = {**common, "enforce_eager": False}
        graphs = segments = cut = drafted = compiled
    else:
        # engines stay loaded beside one another where they fit, so that repeats go by turns
        common["max_num_seqs"] = max(chosen.rows)
        compiled = {**common, "enforce_eager": False, "kv_cache_gib": chosen.kv_cache_gib}
        graphs = {**compiled, "engine": engine(chosen)}
        segments = {**compiled, "engine": engine(chosen, cudagraph_mode="FULL_AND_PIECEWISE")}
        cut = {**compiled, "engine": engine(chosen, cudagraph_mode="PIECEWISE")}
        drafted = {**compiled, "engine": engine(chosen, rows=1 + len(LOGGED))}
    ada = {"name": "adadecode", "heads": "original", **common}
    eagle = {"method": "eagle3", "drafts": len(LOGGED), **drafted, "replay": "logged"}
    systems: dict[str, dict[str, Any]] = {
        "vllm": {"name": "vllm", **graphs},
        "vllm-pieces": {"name": "vllm", **cut},
        "vllm-early-exit": {"name": "vllm-early-exit", **graphs},
        "vllm-early-exit-segments": {"name": "vllm-early-exit", **segments},
        "vllm-speculative": {"name": "vllm-speculative", **eagle},
        "autoregressive": {"name": "autoregressive", **common},
        "adadecode": ada,
        "adadecode-8-bits": {**ada, "head_dtype": "fp8"},
        "adadecode-shortlist": {**ada, "shortlist": SHORTLIST},
        "own-early-exit": {"name": "own-early-exit", **common},
        "speculative": {"name": "speculative", "method": "draft_model", **common},
    }
    without = GPU_ALONE if chosen.tiny else ()
    return [one for name, one in systems.items() if name in chosen.systems and name not in without]


def engine(chosen: argparse.Namespace, rows: int = 1, **compilation: Any) -> dict[str, Any]:
    """vLLM's own arguments: graphs for the numbers of rows that occur (each sequence has as many as
    said, and prompts have more), and memory for one model."""
    decoding = {rows * n for n in (1, 2, 4, 8, 16, *chosen.rows) if n <= max(chosen.rows)}
    compilation["cudagraph_capture_sizes"] = sorted({*decoding, *PROMPT_ROWS})
    share = {"gpu_memory_utilization": chosen.memory_share}
    return {**share, "compilation_config": compilation}


def shares(run: Overview, model: str) -> dict[str, Any]:
    """Each system's share of the floor, and what the methods gain."""
    floors = {
        f"{cell.variant.label}, {cell.load}": rounded(cell.value("floor_share"))
        for cell in run.cells
        if cell.model in ("", model) and cell.is_measured
    }
    found = methods(run, model)
    if not any(cell.variant.backend == "vllm" for cell in run.cells):
        for told in found.values():  # its reference is plain decoding here
            del told["over_vllm"]
    return {"share_of_floor": floors, "methods": found}


if __name__ == "__main__":
    main()
