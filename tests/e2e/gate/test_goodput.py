"""``decodebench goodput``: real probes of a scripted server that serves one at a time."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soundness.goodput_search import capacity
from tests.e2e.test_cli import write
from tests.support.fake_openai import FakeReply, FakeServer, good
from tests.support.harness.command import decodebench, here, refused

SERVICE_S = 0.05
FEW = ("--share", "0.9", "--requests", "30", "--max-probes", "6")
SERVER = {"name": "scripted", "capacity": 1, "ttft_s": SERVICE_S, "itl_s": 0.0, "tokens": 1}
QUICK = {**SERVER, "ttft_s": 0.008}


def experiment(folder: Path, **changes: Any) -> Path:
    asked = {"backends": [SERVER], "slo": {"e2e_ms": 3000 * SERVICE_S}, "repeats": 1, **changes}
    return write(folder, **asked)


def searched(file: Path, code: int = 0, error: str = "") -> tuple[Path, str]:
    """The folder and the output of a search that ends with this code and error, and in which the
    client was not late: that is no answer about a system, and is told as a skip where five had
    it."""
    late = "limited by the client, which was late at "
    for number in range(5):
        out = file.parent / f"g{number}"
        done = decodebench("goodput", file, "--out", out.name, *FEW, cwd=file.parent, ahead=True)
        assert error in done.stderr
        if late not in done.stdout + done.stderr:
            assert done.returncode == code, done.stderr
            return out, done.stdout
        assert done.returncode in (code, 2), done.stderr
    pytest.skip("this machine stalled the client in each of five searches")


def test_the_rate_is_near_the_queue_s_and_a_second_search_measures_nothing(tmp_path: Path) -> None:
    file = experiment(tmp_path)
    out, told = searched(file)
    assert "limited by end to end" in told
    answer = json.loads((out / "goodput.json").read_text())
    (one,) = answer["systems"]
    truth = capacity(3.0, 0.9) / SERVICE_S
    assert one["low_per_s"] <= one["rate_per_s"] <= one["high_per_s"]
    # 30 requests on a busy machine: near, not exact
    assert truth / 2 < one["rate_per_s"] < truth * 1.5
    assert 3 <= len(one["probes"]) <= 6
    assert one["ended"] in ("narrow enough", "probes used up")
    assert all(p["low"] <= p["share"] <= p["high"] for p in one["probes"])
    assert sorted(one["keys"]) == answer["trials"], "the idle one too"
    assert len(one["keys"]) > len(one["probes"])
    stored = {path.name: path.stat().st_mtime_ns for path in (out / "trials").iterdir()}
    again = decodebench(
        "goodput", file, "--out", out.name, *FEW, "--json", cwd=tmp_path, ahead=True
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == answer
    assert stored == {p.name: p.stat().st_mtime_ns for p in (out / "trials").iterdir()}
    shown = here("show", out.name, "--json", cwd=tmp_path)
    loads = [json.loads(line)["load"] for line in shown.stdout.splitlines()]
    # a probe in which the client was late is stored, and is none of those that count
    assert sum("poisson" in str(load) for load in loads) == len(one["keys"]) - 1


def test_an_objective_that_nobody_meets_is_said(tmp_path: Path) -> None:
    file = experiment(tmp_path, slo={"ttft_ms": 1})
    done = decodebench("goodput", file, "--out", "g", *FEW, cwd=tmp_path)
    assert done.returncode == 2
    assert "even one request at a time meets the slo in 0.0% of the cases only (TTFT)" in (
        done.stderr
    )


def test_a_system_that_fails_costs_itself_alone(tmp_path: Path) -> None:
    both = [{**QUICK, "label": "broken", "fault": "start"}, {**QUICK, "label": "sound"}]
    file = experiment(tmp_path, backends=both, slo={"e2e_ms": 24})
    out, told = searched(file, 4, "scripted | gsm8k | closed c=1 | repeat 0: failed: ")
    broken, sound, *_ = told.splitlines()
    assert broken.startswith("broken, gsm8k: no rate found: a trial failed: scripted: ")
    assert sound.startswith("sound, gsm8k: ")
    assert re.search(r" in \d+ probes( \(\d+ of them disturbed\))?; limited by ", sound)
    found = json.loads((out / "goodput.json").read_text())["systems"]
    assert [one["ended"] == "a trial failed" for one in found] == [True, False]
    page = here("report", out.name, cwd=tmp_path)
    assert page.returncode == 0, page.stderr


def test_a_server_is_searched_like_any_other(tmp_path: Path) -> None:
    """One that answers one request at a time; others wait for it."""
    turn = threading.Lock()

    def play(reply: FakeReply) -> None:
        with turn:
            time.sleep(SERVICE_S)
        good(reply)

    server = FakeServer(play)
    backend = {"name": "http", "base_url": server.url, "prefix_caching": "none"}
    file = experiment(tmp_path, backends=[backend], reference="http", max_new_tokens=3)
    try:
        out, _ = searched(file)
    finally:
        server.close()
    (one,) = json.loads((out / "goodput.json").read_text())["systems"]
    truth = capacity(3.0, 0.9) / SERVICE_S
    # threads of this process serve, beside other tests
    assert truth / 2.5 < one["rate_per_s"] < truth * 1.6
    assert one["limit"] == "end to end"


def test_what_a_search_says_before_it_begins(tmp_path: Path) -> None:
    """Of what it will not judge, or not soon."""
    backend = {**SERVER, "fail_fraction": 1.0}
    file = experiment(tmp_path, backends=[backend], slo={"e2e_ms": 60_000})
    told = here("goodput", file, "--out", "g", *FEW, cwd=tmp_path).stderr
    assert "warning: slo: each probe lasts 20 minutes or longer, 20 times the longest of" in told
    short = {"name": "synthetic", "max_new_tokens": 1}
    file = experiment(tmp_path, backends=[QUICK], workloads=[short], slo={"e2e_ms": 24})
    asked = ("--share", "0.9", "--requests", "30", "--max-probes", "3", "--least-score", "0.9")
    told = here("goodput", file, "--out", "h", *asked, cwd=tmp_path).stderr
    assert "warning: scripted, synthetic: --least-score: no answer has a score" in told
    assert told.count("'max_new_tokens', 1, cuts ") == 1, "not for each probe"


@pytest.mark.parametrize(
    ("changes", "asked", "words"),
    [
        (
            {
                "backends": [{"name": "http", "base_url": "http://127.0.0.1:9/v1", "api": "chat"}],
                "reference": "http",
                "workloads": [{"name": "gsm8k", "chat": {"template": "none"}}],
            },
            [],
            "template none needs 'api: completions', not chat",
        ),
        ({"slo": {}}, [], "slo: is missing; expected ttft_ms"),
        ({}, ["--share", "1"], "--share: is 1; expected more than 0, less than 1"),
        ({}, ["--requests", "100"], "--requests: is 100; expected at least 200"),
        ({}, ["--max-probes", "2"], "--max-probes: is 2; expected at least 3"),
        ({}, ["--least-score", "80"], "--least-score: is 80; expected 0 to 1, as 0.8"),
        ({}, ["--least-score", "nan"], "--least-score: is nan; expected 0 to 1"),
        ({}, ["--only", "scriptd"], "no backend 'scriptd'; did you mean 'scripted'"),
        ({}, ["--out", "file"], "expected a folder for the run, found a file"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path,
    changes: dict[str, Any],
    asked: list[str],
    words: str,
) -> None:
    (tmp_path / "file").write_text("")
    file = experiment(tmp_path, **changes)
    told = refused("goodput", file, *asked, cwd=tmp_path)
    assert words in told
    assert len([line for line in told.splitlines() if "warning" not in line]) == 1
