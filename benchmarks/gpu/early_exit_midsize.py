"""Real exits of a model trained on the spot, for `benchmarks/gpu/early_exit.py`."""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from benchmarks.support.early_exit.jobs import SAME_RUNNER, Jobs, engine_options
from harness.core.errors import UserError
from harness.core.nouns import Model

WORKLOADS = ("cnn_dailymail", "xsum")
THRESHOLDS = {
    "softmax": (0.2, 0.5, 0.8, 0.9),
    "state": (0.8, 0.9, 0.95, 0.98),
    "classifier": (0.5, 0.7, 0.9, 0.97),
}
LAYERS, WIDTH = 16, 1024


def midsize(jobs: Jobs) -> dict[str, Any]:
    """Train, then answer the same requests with plain vLLM and with each measure. In small the
    demo model answers: one that was hardly trained says the same after every layer."""
    folder = jobs.out / "midsize"
    command = (
        f"{shlex.quote(sys.executable)} -m benchmarks.gpu.early_exit_midsize {folder.resolve()}"
    )
    command += f" --minutes {jobs.minutes}{' --tiny' if jobs.tiny else ''}"
    trained = jobs.shell("midsize-train", command, int(jobs.minutes * 60) + 240)
    if trained is None:
        return {}
    result: dict[str, Any] = {"train": json.loads(trained.rstrip().splitlines()[-1])}
    model = models.resolve(Model("demo")) if jobs.tiny else folder / "model"
    requests, stops = bundled_requests(model, 2 if jobs.tiny else 16, jobs.tiny)
    batches = (1, 2) if jobs.tiny else (1, 4, 16)
    for mode in jobs.modes:
        plain = answers(jobs, model, mode, None, requests, stops, batches)
        if plain is None:
            continue
        rows = []
        for measure in THRESHOLDS:
            early = answers(jobs, model, mode, measure, requests, stops, batches)
            rows += compare(measure, plain, early, batches, model) if early else []
        result[mode] = rows
        show(mode, rows)
    return result


def bundled_requests(model: Path, count: int, tiny: bool) -> tuple[list[list[Any]], Sequence[int]]:
    """[id, prompt ids, limit] of the first bundled test rows of each workload; the stop ids."""
    from benchmarks.adadecode import requests_of

    found = [r for w in WORKLOADS for r in requests_of(str(model), w, count)]
    limit = 16 if tiny else found[0].max_new_tokens
    return [[r.id, list(r.prompt_ids), limit] for r in found], found[0].stop_ids


def answers(
    jobs: Jobs,
    model: Path,
    mode: str,
    measure: str | None,
    requests: list[list[Any]],
    stops: Sequence[int],
    batches: Sequence[int],
) -> dict[str, Any] | None:
    """Runs by "THRESHOLD BATCH" ("full BATCH" of plain vLLM, `measure` None), after a warm-up."""
    base = {"kind": "answers", "requests": requests, "stop_ids": list(stops)}
    warm = {**base, "requests": requests[:2], "concurrency": 2, "name": "warm-up"}
    others: dict[str, Any] = {"threads": 1, "kv_cache_gib": 0.25} if jobs.tiny else {}
    if measure is None:
        runs = [{**base, "name": f"full {b}", "concurrency": b} for b in batches]
    else:
        chosen = THRESHOLDS[measure][1:2] if jobs.tiny else THRESHOLDS[measure]
        runs = [
            {**base, "name": f"{t} {b}", "concurrency": b, "configure": {"threshold": t}}
            for t in chosen
            for b in batches
        ]
        others |= {"measure": measure, "threshold": chosen[0], "calibration": "none"}
        others |= {"layers": [2, 4, 6] if jobs.tiny else [4, 6, 8, 10, 12], "step_times": False}
        if measure == "classifier" and not jobs.tiny:
            others["classifier"] = str((model.parent / "classifier").resolve())
    done = jobs.engine(
        f"midsize-{mode}-{measure or 'vllm'}",
        "vllm-early-exit" if measure else "vllm",
        model,
        engine_options(mode, (1, 2, 4, 8, 16), max_num_seqs=16, **others),
        [warm, *runs],
        environment=SAME_RUNNER,
    )
    return done and done["runs"]


def compare(
    measure: str,
    plain: dict[str, Any],
    early: dict[str, Any],
    batches: Sequence[int],
    model: Path,
) -> list[dict[str, Any]]:
    """One row per threshold and batch: tokens/s over plain vLLM's, layers run, agreement."""
    rows = []
    for name, run in early.items():
        threshold, _, batch = name.partition(" ")
        if not batch.isdigit() or int(batch) not in batches:
            continue
        full = plain[f"full {batch}"]
        counts = run["telemetry"]
        rows.append(
            {"measure": measure, "threshold": float(threshold), "batch": int(batch)}
            | {"speedup": round(speed(run) / speed(full), 3), "tok_per_s": round(speed(run), 1)}
            | {"layers_run": round(counts["layers_run"] / counts["layers_total"], 3)}
            | {"layers_needed": round(counts["layers_needed"] / counts["layers_total"], 3)}
            | agreement(full["tokens"], run["tokens"], model)
        )
    return rows


def speed(run: dict[str, Any]) -> float:
    """Output tokens per second."""
    return sum(map(len, run["tokens"].values())) / float(run["seconds"])


def agreement(
    full: dict[str, list[int]], found: dict[str, list[int]], model: Path
) -> dict[str, float]:
    """Means over answers of F1 from 0 to 1 against the full model's: of the longest common
    subsequence of token ids, and ROUGE-L of the texts where its package is installed."""
    means = {"lcs_to_full": round(statistics.mean(lcs_f1(full[n], found[n]) for n in full), 3)}
    if find_spec("rouge_score"):
        from workloads.scoring import rouge_l

        decode = models.load_tokenizer(model).decode
        pairs = [
            [decode(tokens, skip_special_tokens=True) for tokens in (full[n], found[n])]
            for n in full
        ]
        means["rouge_l_to_full"] = round(statistics.mean(rouge_l(*pair) for pair in pairs), 3)
    return means


def lcs_f1(one: Sequence[int], other: Sequence[int]) -> float:
    """1 for equal sequences, 0 for nothing in common."""
    if not one or not other:
        return float(not one and not other)
    row = [0] * (len(other) + 1)
    for a in one:
        before = 0
        for place, b in enumerate(other, 1):
            before, row[place] = (
                row[place],
                before + 1 if a == b else max(row[place], row[place - 1]),
            )
    return 2 * row[-1] / (len(one) + len(other))


def show(mode: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows."""
    print(f"midsize {mode}: measure    threshold batch speed-up layers needed LCS to full")
    for row in rows:
        print(
            f"{row['measure']:22s} {row['threshold']:9g} {row['batch']:5d} "
            f"{row['speedup']:7.2f}x {row['layers_run']:6.1%} {row['layers_needed']:6.1%} "
            f"{row['lcs_to_full']:8.3f}",
            flush=True,
        )


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
