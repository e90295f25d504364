"""One load of `http_truth` through the `http` backend, in a process of its own as in a sweep."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from backends import open_backend
from backends.checkpoints import models
from harness.core.nouns import Generation, Load, Model, Request, Trial, TrialRecord, Workload
from harness.measure.checks import check_trial
from harness.measure.load_loop import run_load
from results.metrics import latency
from results.metrics.arrays import from_record
from results.metrics.distribution import describe


def main() -> None:
    """Do the job of the file that the command line names; what is told goes to its `out`."""
    job = json.loads(Path(sys.argv[1]).read_text())
    tokenizer = models.load_tokenizer(Path(job["model"]))
    requests = [
        Request(f"r{n}", tuple(tokenizer(text)["input_ids"]), job["tokens"], ignore_eos=True)
        for n, text in enumerate(job["texts"])
    ]
    load = Load("closed", concurrency=job["streams"])
    backend = open_backend("http", None, Model("m"), {"base_url": job["url"]})
    run_load(backend, [replace(r, id=f"w{r.id}") for r in requests[: job["streams"]]], load)
    backend.reset()
    generations = run_load(backend, requests, load)
    trial = Trial("http", {}, Model("m"), Workload("truth"), load, len(requests), job["tokens"])
    validity = check_trial(trial, generations, backend.info)
    backend.close()
    found = told(trial, generations)
    marks = [reason for reason in validity.reasons if not reason.startswith("too-few-samples")]
    Path(job["out"]).write_text(json.dumps(found | {"marks": marks}))


def told(trial: Trial, generations: Sequence[Generation]) -> dict[str, float | None]:
    """What a report would say of these answers, in milliseconds."""
    columns = from_record(TrialRecord("truth", trial, {}, "ok", generations=generations))
    ttft = describe(latency.ttft_s(columns) * 1e3, "ttft")
    itl = describe(latency.itl_s(columns) * 1e3, "itl")
    names = {f"ttft_{part}_ms": ttft[f"ttft_{part}"] for part in ("p50", "mean", "p99")}
    return names | {"itl_p99_ms": itl["itl_p99"]}
