"""Draft and verify on both engines, each over its own plain decoding, in one run.

    python benchmarks/speculative.py [--workloads gsm8k xsum] [--concurrency 1 8] [--requests 16]
                                     [--repeats 3] [--temperature 0] [--top-p 1] [--out FOLDER]

For each variant, workload and number of requests in flight: the speed-up over plain decoding of the
same engine with its 95% interval, tokens per verification, acceptance, the share of the time that
drafting took, and the share of answers that are plain decoding's. With --out the run folder stays,
and `decodebench report` draws it. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.support.sweeps import measured, rounded
from reports.cells import Cell
from results.compare.pairing import NATIVE

VARIANTS: list[Any] = [
    "vllm",
    {"name": "vllm-speculative", "method": ["draft_model", "ngram"]},
    {"name": "vllm-speculative", "method": "eagle3", "drafts": [3, 5]},
    NATIVE,
    {"name": "speculative", "method": ["draft_model", "prompt_lookup", "layerskip", "lookahead"]},
    {"name": "speculative", "method": "eagle3", "drafts": 3, "threshold": 0.0},
    {"name": "speculative", "method": ["self_speculation", "swift", "eagle3"]},
    {"name": "speculative", "drafts": 12},
    "adadecode",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workloads", nargs="+", default=["gsm8k", "xsum"])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = measured((chosen.out or Path(folder)) / "speculative", experiment(chosen))
    drafting = (cell for cell in seen.cells if cell.value("drafts_per_step") is not None)
    result = [row(cell) for cell in drafting]
    for found in result:
        print(json.dumps(found))
    print(json.dumps(result))


def experiment(chosen: argparse.Namespace) -> dict[str, Any]:
    """All variants on the demo model."""
    return {
        "name": "speculative",
        "model": "demo",
        "reference": "vllm",
        "backends": VARIANTS,
        "workloads": chosen.workloads,
        "max_new_tokens": chosen.tokens,
        "load": [{"kind": "closed", "concurrency": chosen.concurrency}],
        "sampling": {"temperature": chosen.temperature, "top_p": chosen.top_p},
        "requests": max(chosen.requests, *chosen.concurrency),
        "repeats": chosen.repeats,
    }


def row(cell: Cell) -> dict[str, Any]:
    """What is told of one variant under one load."""
    on_vllm = cell.variant.backend.startswith("vllm")
    speedup, same = (
        ("speedup", "consistency_ratio") if on_vllm else ("speedup_native", "consistency_native")
    )
    return {
        "variant": cell.variant.label,
        "workload": cell.workload,
        "load": cell.load,
        "over_plain": rounded(cell.value(speedup)),
        "interval": [rounded(cell.low(speedup)), rounded(cell.high(speedup))],
        "same": rounded(cell.value(same)),
        **{
            name: rounded(cell.value(name))
            for name in ("tokens_per_step", "acceptance_rate", "draft_share", "overhead_share")
        },
    }


if __name__ == "__main__":
    main()
