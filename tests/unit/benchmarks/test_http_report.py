"""What the http benchmark makes of a tool's words and the server's log."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.support.cpu_time import run_metered
from benchmarks.support.http.report import compare, cpu_us_per_token, read_rate, report
from benchmarks.support.http.tools import ALL, ToolLoad, ToolTold
from harness.cli.truth.server import Answered

MS = 1_000_000


def job(folder: Path, streams: int = 1, requests: int = 2, tokens: int = 3) -> ToolLoad:
    texts = [f"prompt {n}" for n in range(requests)]
    return ToolLoad("http://h:1/v1", folder, texts, streams, requests, tokens, folder)


def answered(arrived_ms: int, *sent_ms: int) -> Answered:
    arrived = arrived_ms * MS
    sent = [arrived + at * MS for at in sent_ms]
    return Answered(-1, arrived, arrived + 20 * MS, sent, [1] * len(sent))


def test_the_bias_is_what_was_told_less_what_happened(tmp_path: Path) -> None:
    warm_up, one, two = answered(0, 99, 999), answered(100, 20, 24, 28), answered(200, 22, 26, 34)
    told = ToolTold(25.0, 26.0, 27.0, 9.0, ["client-late: x"])
    found = compare(told, [two, warm_up, one], job(tmp_path), 0.004, "gaps")
    assert found["truth"]["ttft_p50_ms"] == 21.0
    assert found["bias"]["ttft_mean_ms"] == 5.0
    assert found["bias"]["itl_p99_ms"] == pytest.approx(9.0 - (4 + 4 * 0.97))
    assert found["server_late_p99_ms"] == pytest.approx(2 + 4 * 0.95)
    assert found["server_late_first_p99_ms"] == pytest.approx(2 * 0.99)
    assert (found["tokens"], found["marks"]) == (8, ["client-late: x"])
    means = compare(told, [warm_up, one, two], job(tmp_path), 0.004, "means")
    assert means["truth"]["itl_p99_ms"] == pytest.approx(4 + 2 * 0.99)


def test_a_log_that_lacks_answers_is_no_truth(tmp_path: Path) -> None:
    told = ToolTold(1, 1, 1, 1)
    for log in ([answered(0, 1, 2, 3)], [answered(0, 1, 2, 3), answered(1, 1, 2)]):
        with pytest.raises(RuntimeError, match=f"saw {len(log)} requests of 2"):
            compare(told, log, job(tmp_path), 0.004, "gaps")


def test_only_what_was_certainly_read_counts_as_rate(tmp_path: Path) -> None:
    rows = [answered(at, 1, 2, 3) for at in (0, 0, 500, 1000)]
    assert read_rate(rows, job(tmp_path, streams=2, requests=4)) == 6.0
    assert read_rate(rows[:2], job(tmp_path, streams=2)) == 0.0


def row(tool: str, case: str, gap_ms: float = 4, **figures: float) -> dict[str, Any]:
    numbers = dict.fromkeys(("ttft_p50_ms", "ttft_mean_ms", "ttft_p99_ms", "itl_p99_ms"), 1.0)
    late = {"server_late_p99_ms": 0.0, "server_late_first_p99_ms": 0.0}
    parts = {"told": numbers, "truth": numbers, "bias": numbers, "marks": [], **late}
    return {"tool": tool, "case": case, "gap_ms": gap_ms, **parts, **figures}


def test_cpu_time_is_the_difference_that_tokens_make() -> None:
    rows = [
        *(row("a", "ttft-100", cpu_s=cpu, tokens=400) for cpu in (2.0, 3.0)),
        *(row("a", "tokens", cpu_s=cpu, tokens=100_400) for cpu in (4.0, 6.0)),
        row("b", "ttft-100", cpu_s=1.0, tokens=400),
        {"tool": "b", "case": "tokens", "failed": "x"},
    ]
    assert cpu_us_per_token(rows) == {"a": pytest.approx([20.0, 30.0]), "b": []}
    shown = report([r | {"tok_per_s": 1.0} for r in rows])
    assert "| a | 25.00 (20.00 to 30.00) |" in shown.splitlines()


def test_the_peak_is_the_best_step_of_each_turn() -> None:
    steps = [(2, 50.0), (1, 90.0), (0.5, 80.0), (2, 40.0), (1, 70.0)]
    rows = [row("a", "peak", gap, tok_per_s=rate) for gap, rate in steps]
    assert "| a | 80.00 (70.00 to 90.00) | 1.00 (1.00 to 1.00) |" in report(rows)


def test_each_tool_is_asked_for_the_same_load(tmp_path: Path) -> None:
    for tool in ALL:
        folder = tmp_path / tool.name
        folder.mkdir()
        given = json.dumps(tool.command(tool.program, job(folder, 3, 5, 7)))
        for file in folder.iterdir():
            given += file.read_text()
        assert all(f"prompt {n}" in given for n in range(5))
        assert "3" in given
        assert "7" in given
        assert ("HF_HUB_OFFLINE" in tool.environment()) == tool.offline


def test_a_tool_that_lost_answers_is_not_believed(tmp_path: Path) -> None:
    statistics = {"count": 1, "median": 1, "mean": 1, "percentiles": {"p99": 1}}
    metrics = {
        f"{name}_ms": {"successful": statistics}
        for name in ("time_to_first_token", "inter_token_latency")
    }
    told = {"completed": 1, "benchmarks": [{"metrics": metrics}]}
    (tmp_path / "told.json").write_text(json.dumps(told))
    told = {"request_count": {"avg": 1.0}}
    (tmp_path / "profile_export_aiperf.json").write_text(json.dumps(told))
    for tool in ALL[1:]:
        with pytest.raises(RuntimeError, match="1 of 2 answers"):
            tool.read(job(tmp_path))


BUSY = "import time\nwhile time.process_time() < 0.3: pass"
LEFT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BUSY!r}])"


def test_processes_left_behind_are_metered_too(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEFT]
    assert run_metered(command, {}, tmp_path / "log", 60) >= 0.3


def test_a_command_that_fails_shows_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no tokens today')"]
    with pytest.raises(RuntimeError, match="no tokens today"):
        run_metered(command, {}, tmp_path / "log", 60)
