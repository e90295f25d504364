"""The first ten minutes, as a user has them: what measures is a real process, of the scripted
backend, a made-up server, and once the demo model."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.fake_openai import FakeReply, FakeServer, good
from tests.support.harness.command import decodebench, here, refused, rows_of

DURATION_S = 2.5
"""Longer than a machine stands still."""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    found = FakeServer(good, probe=good)
    yield found
    found.close()


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Six prompts with an answer that no scripted token is, and one that anything matches."""
    rows = [
        {"id": n, "prompt": f"Say {n}.", "answer": "zzz", "scorer": "contains"} for n in range(5)
    ]
    last = {"id": 5, "prompt": "Say what?", "answer": ".*", "scorer": "regex"}
    rows.append(last)
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_quick_runs_shows_and_says_what_is_next(tmp_path: Path, prompts: Path) -> None:
    arguments = (
        "quick", "--model", "demo", "--workload", "mine.jsonl", "--backend", "scripted",
        "--concurrency", "1,2", "--requests", "6", "--max-new-tokens", "8",
    )  # fmt: skip
    done = decodebench(*arguments, cwd=tmp_path, env={"COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (run,) = (f"runs/{path.name}" for path in (tmp_path / "runs").iterdir())
    assert run.startswith("runs/quick-demo-mine.jsonl-")
    assert f"trials: 6 ok; results in {run}" in lines
    assert "jsonl, closed c=2, demo (mine.jsonl)" in done.stdout
    assert lines[-1].startswith(f"next: decodebench report {run}")
    assert max(map(len, (line.rstrip() for line in lines[1:-1] if line.startswith("scr")))) <= 80
    found = rows_of(run, tmp_path)
    assert {row["contains_answer"] for row in found} == {0.0}
    assert {row["matches_pattern"] for row in found} == {1.0}
    stored = tmp_path / run / "experiment.yaml"
    again = decodebench("run", stored, "--out", stored.parent, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "trials: 6 stored" in again.stdout, "a stored experiment runs again as it is"
    page = here("report", stored.parent, cwd=tmp_path)
    assert page.returncode == 0, page.stderr


def test_a_server_is_measured_without_a_file(tmp_path: Path, server: FakeServer) -> None:
    server.models = ["other", "demo"]
    done = decodebench(
        "quick", "--model", "demo", "--workload", "synthetic", "--url", server.url, "--rate", "50",
        "--requests", "6", "--repeats", "1", "--max-new-tokens", "3",
        "--api-key-env", "SOME_KEY", cwd=tmp_path, env={"SOME_KEY": "sk-1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "http (unverified)" in done.stdout
    assert "synthetic, poisson 50/s" in done.stdout
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("quick-demo-synthetic-")
    (row,) = rows_of(f"runs/{run.name}", tmp_path)
    assert row["lossless"] is None
    asked = [body for body in server.bodies if body["max_tokens"] == 3]
    assert [len(body["prompt"]) for body in asked][-6:] == [512] * 6
    assert all(body["ignore_eos"] for body in asked[-6:])
    assert {body["model"] for body in server.bodies} == {"demo"}
    assert server.headers["Authorization"] == "Bearer sk-1"


def test_a_server_s_usage_is_held_against_what_it_sent(tmp_path: Path) -> None:
    def lossy(reply: FakeReply) -> None:
        reply.tokens([11, 12, 13], "length")
        reply.event({"choices": [], "usage": {"completion_tokens": 4}})
        reply.done()
        reply.end()

    found = FakeServer(lossy, probe=good)
    try:
        done = decodebench(
            "quick", "--model", "demo", "--workload", "synthetic", "--url", found.url,
            "--concurrency", "1", "--requests", "5", "--repeats", "1", "--max-new-tokens", "3",
            "--out", "run", cwd=tmp_path,
        )  # fmt: skip
    finally:
        found.close()
    assert done.returncode == 0, done.stderr
    (row,) = rows_of("run", tmp_path)
    assert not row["valid"]
    assert any(reason.startswith("token-counts: 5 of 5") for reason in row["invalid_reasons"])
    assert row["token_counting"] == "ids"
    assert "a server's tokens are counted by the token ids in each chunk" in done.stdout
    assert here("report", "run", cwd=tmp_path).returncode == 0
    assert "tokens counted by the token ids" in (tmp_path / "run/report.html").read_text()


def test_a_duration_and_labels_in_a_file(tmp_path: Path) -> None:
    content = {
        "name": "timed",
        "model": "demo",
        "backends": [
            {
                "name": "scripted",
                "label": "every {itl_s} s",
                "itl_s": [0.001, 0.004],
                "ttft_s": 0.01,
            }
        ],
        "workloads": [{"name": "synthetic", "input_tokens": 8, "output_tokens": 10}],
        "load": [{"kind": "closed", "concurrency": 2}, {"kind": "constant", "rate": 20}],
        "requests": 4,
        "duration_s": DURATION_S,
    }
    (tmp_path / "timed.yaml").write_text(yaml.safe_dump(content))
    done = decodebench("run", "timed.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = rows_of("runs/timed", tmp_path)
    counts = {(row["label"], row["load"]): row["n_completed"] for row in found}
    constant = [counts[f"every {gap} s", "constant 20/s"] for gap in (0.001, 0.004)]
    assert constant == [20 * DURATION_S] * 2
    # an answer takes 19 ms or 46 ms, two at a time, and the last two may go beyond the end
    assert 4 < counts["every 0.004 s", "closed c=2"] <= 2 * (1000 * DURATION_S // 46 + 1)
    assert 4 < counts["every 0.001 s", "closed c=2"] <= 2 * (1000 * DURATION_S // 19 + 1)
    assert {row["duration_s"] for row in found} == {DURATION_S}
    assert all(row["consistency_ratio"] == 1.0 for row in found)
    table = here("show", "runs/timed", "--csv", cwd=tmp_path)
    rows = list(csv.DictReader(io.StringIO(table.stdout)))
    assert {row["label"] for row in rows} == {"every 0.001 s", "every 0.004 s"}
    markdown = here("show", "runs/timed", "--markdown", cwd=tmp_path).stdout
    assert "| every 0.001 s (simulation) |" in markdown
    page = here("report", "runs/timed", cwd=tmp_path)
    assert page.returncode == 0, page.stderr
    assert "every 0.004 s" in (tmp_path / "runs/timed/report.html").read_text()


def test_bad_prompts_stop_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"prompt": "fine"}\n{"prompt": 3}\n')
    told = refused(
        "quick", "--model", "demo", "--workload", "bad.jsonl", "--backend", "scripted", cwd=tmp_path
    )
    (line,) = told.splitlines()
    assert "bad.jsonl, line 2: field 'prompt': expected text, got 3" in line
    assert not (tmp_path / "runs").exists()


def test_the_version_and_completion(tmp_path: Path) -> None:
    done = decodebench("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("decodebench ")
    code = "import sys; from harness.cli.main import main; sys.argv = ['decodebench']; main()"
    asked = {
        "_DECODEBENCH_COMPLETE": "complete_bash",
        "COMP_WORDS": "decodebench qu",
        "COMP_CWORD": "1",
    }
    found = decodebench(cwd=tmp_path, start=("-c", code), env=asked)
    assert found.stdout.split() == ["quick"]


@pytest.mark.slow
def test_the_commented_experiment_runs_as_it_is(tmp_path: Path) -> None:
    assert here("init", "mine.yaml", cwd=tmp_path).returncode == 0
    done = decodebench("run", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "trials: 18 ok" in done.stdout
    assert "a draft model (re-implementation)" in done.stdout
    found = rows_of("runs/mine", tmp_path)
    assert {row["consistency_ratio"] for row in found} == {1.0}, "all three give the same text"
    assert {row["source"] for row in found} == {"bundled"}
