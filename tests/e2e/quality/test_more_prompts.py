"""More prompts for quality than for speed: run by the command, killed, and finished."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import results
from results.compare.quality import quality_keys
from results.rows import summaries
from tests.support.harness.command import environment, here, in_full, printed

REQUESTS, QUALITY_REQUESTS, REPEATS = 3, 9, 2
CONTENT: dict[str, Any] = {
    "name": "more",
    "model": "demo",
    "backends": [{"name": "scripted", "label": "{itl_s}", "itl_s": [0.002, 0.003]}],
    "workloads": [{"name": "jsonl", "source": "mine.jsonl"}],
    "load": [{"kind": "closed", "concurrency": 2}],
    "requests": REQUESTS,
    "quality_requests": QUALITY_REQUESTS,
    "max_new_tokens": 8,
    "repeats": REPEATS,
}
RUN = ("run", "more.yaml", "--again-share", "0")


def stored(folder: Path, kind: str) -> list[Path]:
    files = (folder / "runs/more/trials").glob("*.json")
    return [file for file in files if json.loads(file.read_text())["trial"]["load"]["kind"] == kind]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed as soon as it had answers for quality alone, and run again."""
    made = tmp_path_factory.mktemp("more")
    rows = [
        {"id": n, "prompt": f"Say {n}.", "answer": ".*" if n % 2 else "^never$", "scorer": "regex"}
        for n in range(12)
    ]
    (made / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (made / "more.yaml").write_text(yaml.safe_dump(CONTENT))
    run = subprocess.Popen(
        in_full(*RUN),
        cwd=made,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while run.poll() is None and not stored(made, "quality"):
        time.sleep(0.01)
    run.kill()
    run.wait()
    return made


def test_it_comes_last_is_resumed_and_enters_no_time(folder: Path) -> None:
    timed, before = len(CONTENT["backends"]) * 2 * REPEATS, stored(folder, "quality")
    assert before
    assert len(stored(folder, "closed")) == timed, "timed trials come first"
    seen = {file: file.stat().st_mtime_ns for file in before}
    told = printed(*RUN, cwd=folder)
    assert f"{timed + len(before)} stored" in told
    assert {file: file.stat().st_mtime_ns for file in before} == seen
    run = results.load(folder / "runs/more")
    assert len(run.stored) == timed + 2
    keys = quality_keys(run)
    assert len(keys) == 2
    own = {key: set(run.requests[run.requests["key"] == key]["request_id"]) for key in keys}
    loads = set(run.requests[~run.requests["key"].isin(list(keys))]["request_id"])
    assert len(loads) == REQUESTS
    for asked in own.values():
        assert len(asked) == QUALITY_REQUESTS - REQUESTS
        assert not asked & loads
    rows = [row for row in summaries(run) if row["key"] in keys]
    for row in rows:
        assert row["valid"]
        assert row["matches_pattern"] is not None
        for name in ("speedup", "tpot_s_p50", "e2e_s_mean", "output_tok_per_s", "request_per_s"):
            assert row[name] is None, name

    title, table = told.partition(" of all answers, demo")[::2]
    assert f" {QUALITY_REQUESTS} " in table
    assert "the same, as promised" in table
    assert "jsonl, quality" not in title, "no table of times that are not there"
    assert here("report", "runs/more", cwd=folder).returncode == 0
    page = (folder / "runs/more/report.html").read_text()
    assert f"{QUALITY_REQUESTS - REQUESTS} prompts of a workload that were asked once" in page
    assert f"{timed} trials" in page, "of loads alone"


def test_the_stored_experiment_asks_the_same(folder: Path) -> None:
    plan = here("run", "runs/more/experiment.yaml", "--dry-run", cwd=folder)
    assert plan.stdout.splitlines()[-1] == (
        "4 trials of 3 requests and 2 of more prompts, for quality; nothing was run"
    )
