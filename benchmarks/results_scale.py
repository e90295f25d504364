"""How long storing, loading and showing take: 200 trials of 1,000 requests by default.

Five backends, four workloads, two loads, five repeats; one backend is lossy and diverges from the
reference in a third of its answers, half way, the same in every repeat as greedy decoding does.
Times of whole processes are cold starts of Python; `--drop` also empties the page cache before each
(needs root).

    python benchmarks/results_scale.py [--trials 200] [--requests 1000] [--tokens 64] [--drop]
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import yaml

from harness.core.nouns import BackendInfo, Generation, Load, Model, Trial, TrialRecord, Workload
from results.store.folder import Store

BACKENDS = ("vllm", "adadecode", "speculative", "vllm-early-exit", "autoregressive")
WORKLOADS = ("cnn_dailymail", "xsum", "humaneval", "gsm8k")
LOADS = (Load("closed", concurrency=8), Load("poisson", rate=4.0))
WORDS = np.array([f"word{i}" for i in range(500)])
LOSSY = "vllm-early-exit"


def trials(count: int, requests: int, tokens: int) -> Iterator[Trial]:
    """The first `count` trials of an experiment with as many repeats as that takes."""
    # product() would read an endless repeat to its end before the first cell
    cells = itertools.product(range(count), WORKLOADS, LOADS, BACKENDS)
    for repeat, workload, load, backend in itertools.islice(cells, count):
        yield Trial(
            backend=backend,
            options={},
            model=Model("demo", checksum="0" * 64),
            workload=Workload(workload, checksum="1" * 64),
            load=load,
            requests=requests,
            max_new_tokens=tokens,
            repeat=repeat,
        )


def answers(workload: str, requests: int, tokens: int) -> np.ndarray:
    """(requests, tokens) token ids that every lossless backend gives for a workload."""
    rng = np.random.default_rng(WORKLOADS.index(workload))
    return rng.integers(0, len(WORDS), (requests, tokens))


def make_record(trial: Trial, rng: np.random.Generator) -> TrialRecord:
    """A finished trial with stamps of a plausible spread."""
    requests, tokens = trial.requests, trial.max_new_tokens
    ids = answers(trial.workload.name, requests, tokens).copy()
    if trial.backend == LOSSY:
        ids[::3, tokens // 2 :] = (ids[::3, tokens // 2 :] * 7 + 1) % len(WORDS)
    start = np.sort(rng.integers(0, 10**11, requests)) + 10**15
    stamps = start[:, None] + np.cumsum(rng.lognormal(16, 0.1, ids.shape).astype(np.int64), axis=1)
    names = [f"{trial.workload.name}-{i}" for i in range(requests)]
    counts = {"steps": float(tokens - 1), "layers_run": 8.0 * tokens, "layers_total": 8.0 * tokens}
    generations = [
        Generation(n, int(t), int(t) + 20_000, 9_000, s, [1] * tokens, i, "stop", None, counts)
        for n, t, s, i in zip(names, start, stamps.tolist(), ids.tolist(), strict=True)
    ]
    texts = {name: " ".join(WORDS[row]) for name, row in zip(names, ids, strict=True)}
    return TrialRecord(
        key=trial.key("bench"),
        trial=trial,
        environment={"cpu": "made up", "packages": {f"package{i}": "1.0" for i in range(60)}},
        status="ok",
        backend=BackendInfo(trial.backend, "1", "re-implementation", {}, trial.backend != LOSSY),
        generations=generations,
        texts=texts,
        scores={name: {"exact_match": 1.0} for name in names},
    )


def experiment_text() -> str:
    """The experiment file that these trials would come from."""
    choices = [{"workload": {"name": name}} for name in WORKLOADS]
    backends = [{"name": name, "options": {}} for name in BACKENDS]
    data = {"name": "scale", "reference": "vllm", "backends": backends, "workloads": choices}
    return yaml.safe_dump(data, sort_keys=False)


def timed(what: str, action: Callable[[], object]) -> None:
    start = time.perf_counter()
    action()
    print(f"{what:<52} {time.perf_counter() - start:8.2f} s", flush=True)


def process(code: str, drop: bool) -> None:
    if drop:
        subprocess.run(["sync"], check=True)
        Path("/proc/sys/vm/drop_caches").write_text("3")
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def write_all(store: Store, arguments: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    store.write_experiment(experiment_text())
    seconds = []
    for trial in trials(arguments.trials, arguments.requests, arguments.tokens):
        record = make_record(trial, rng)
        start = time.perf_counter()
        store.write(record)
        seconds.append(time.perf_counter() - start)
    size = sum(p.stat().st_size for p in store.trials_folder.iterdir()) / 1e6
    commits = arguments.requests * arguments.tokens
    middle = statistics.median(seconds)
    print(f"write: {middle * 1e3:.1f} ms per trial (median), {commits / middle:,.0f} commits/s")
    print(f"on disk: {size:.1f} MB, {arguments.trials} trials, {commits:,} commits each")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--drop", action="store_true", help="empty the page cache (root)")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="results_scale"))
    try:
        write_all(Store(folder), arguments)
        start = f"import results; run = results.load({str(folder)!r}); "
        from_metrics = "from results.rows import "
        rows = f"{start}{from_metrics}summaries; assert len(summaries(run)) == {arguments.trials}"
        cells = f"{start}{from_metrics}cells; print(len(cells(run)))"
        show = ["-m", "harness.cli.main", "show", str(folder)]
        drop = arguments.drop
        timed("process: import results, load", lambda: process(start, drop))
        timed("process: summaries, nothing cached", lambda: process(rows, drop))
        timed("process: summaries, cached", lambda: process(rows, drop))
        timed("process: cells, cached", lambda: process(cells, drop))
        timed("process: run.requests frame", lambda: process(start + "run.requests", drop))
        timed("process: run.commits frame", lambda: process(start + "run.commits", drop))
        shutil.rmtree(folder / "cache")
        code = f"import sys; sys.argv = {['decodebench', *show[2:]]!r}; "
        code += "from harness.cli.main import main; main()"
        timed("process: decodebench show, nothing cached", lambda: process(code, drop))
        timed("process: decodebench show, cached", lambda: process(code, drop))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
