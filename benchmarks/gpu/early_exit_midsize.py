"""Real exits of a model trained on the spot, for `benchmarks/gpu/early_exit.py`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from benchmarks.support.early_exit.jobs import SAME_RUNNER, Jobs, engine_options
from benchmarks.support.sweeps import command, rounded, seen
from harness.core.errors import UserError
from reports.cells import Cell

WORKLOADS = ("cnn_dailymail", "xsum")
THRESHOLDS = {
    "softmax": (0.2, 0.5, 0.8, 0.9),
    "state": (0.8, 0.9, 0.95, 0.98),
    "classifier": (0.5, 0.7, 0.9, 0.97),
}
LAYERS, WIDTH = 16, 1024
TOLD = (
    *("speedup", "output_tok_per_s", "early_exit_rate", "early_exit_rate_own"),
    *("rouge_l_to_full", "consistency_ratio"),
)
"""Metrics of `docs/metrics.md`."""
MEMORY_SHARE, LIMIT_S = 0.1, 1800


def midsize(jobs: Jobs) -> dict[str, Any]:
    """Train, then run plain vLLM beside each measure on the same requests. In small the demo model
    answers: one that was hardly trained says the same after every layer."""
    folder = (jobs.out / "midsize").resolve()
    words = [sys.executable, "-m", "benchmarks.gpu.early_exit_midsize", str(folder)]
    words += ["--minutes", str(jobs.minutes), *(["--tiny"] if jobs.tiny else [])]
    trained = jobs.shell("midsize-train", shlex.join(words), int(jobs.minutes * 60) + 240)
    if trained is None:
        return {}
    result: dict[str, Any] = {"train": json.loads(trained.rstrip().splitlines()[-1])}
    for mode in jobs.modes:
        out = folder / mode
        words = command(out, experiment(jobs, folder, mode))
        if jobs.shell(f"midsize-{mode}", shlex.join(words), LIMIT_S, SAME_RUNNER) is not None:
            result[mode] = [told(cell) for cell in seen(out).cells]
            for row in result[mode]:
                print(f"midsize {mode}: {json.dumps(row)}", flush=True)
    return result


def experiment(jobs: Jobs, folder: Path, mode: str) -> dict[str, Any]:
    """All measures at all thresholds beside plain vLLM, every engine in this mode."""
    others: dict[str, Any] = {"threads": 1, "kv_cache_gib": 0.25} if jobs.tiny else {}
    if not jobs.tiny:  # engines stay loaded beside one another
        others |= {"kv_cache_gib": 1.0, "engine": {"gpu_memory_utilization": MEMORY_SHARE}}
    common = engine_options(mode, (1, 2, 4, 8, 16), max_num_seqs=16, **others)
    layers = [2, 4, 6] if jobs.tiny else [4, 6, 8, 10, 12]
    early = {"name": "vllm-early-exit", **common, "layers": layers, "calibration": "none"}
    measures: list[dict[str, Any]] = [
        {"measure": measure, "threshold": list(values[1:2] if jobs.tiny else values)}
        for measure, values in THRESHOLDS.items()
    ]
    if not jobs.tiny:
        measures[-1]["classifier"] = str(folder / "classifier")
    return {
        "name": f"midsize-{mode}",
        "model": "demo" if jobs.tiny else str(folder / "model"),
        "reference": "vllm",
        "backends": [
            {"name": "vllm", **common},
            *({**early, "step_times": False, **measure} for measure in measures),
        ],
        "workloads": list(WORKLOADS),
        "max_new_tokens": 16 if jobs.tiny else 192,
        "load": [{"kind": "closed", "concurrency": [1, 2] if jobs.tiny else [1, 4, 16]}],
        "requests": 2 if jobs.tiny else 16,
        "repeats": 1 if jobs.tiny else 3,
    }


def told(cell: Cell) -> dict[str, Any]:
    """What is told of a variant under one load; `early_exit_rate_own` is what would be left out if
    no sequence waited for its batch."""
    return {
        "variant": cell.variant.label,
        "workload": cell.workload,
        "load": cell.load,
        **{name: rounded(cell.value(name)) for name in TOLD},
    }


def train() -> None:
    """The model and its exit classifier, in folders of the one given; goes on where it was."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--tiny", action="store_true")
    chosen = parser.parse_args()
    from backends.training.classifier.train import train_classifier
    from benchmarks.gpu import midsize as gpu_midsize

    shape = {"layers": 8, "width": 128} if chosen.tiny else {"layers": LAYERS, "width": WIDTH}
    steps = 12 if chosen.tiny else 2000
    minutes = chosen.minutes * 3 / 4
    wanted = argparse.Namespace(steps=steps, minutes=minutes, **shape)
    result: dict[str, Any] = {"train_s": gpu_midsize.train(wanted, chosen.out / "model")}
    try:
        content = train_classifier(
            str(chosen.out / "model"),
            list(WORKLOADS),
            chosen.out / "classifier",
            minutes=chosen.minutes / 4,
            rows=8 if chosen.tiny else 200,
        )
        result["classifier"] = content.get("report", {}).get("training", content)
    except UserError as error:
        result["classifier"] = str(error)
    print(json.dumps(result, default=str))


if __name__ == "__main__":
    train()
