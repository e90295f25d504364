"""``decodebench history`` as people call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.harness.command import decodebench, here, refused
from tests.support.results.history_runs import write_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    write_runs(folder / "runs", 20, lambda n, b: 1.1 if b == "vllm" and n >= 10 else 1.0)
    return folder


def test_the_steps_are_printed_and_the_page_is_named(runs: Path) -> None:
    done = here("history", "runs", "--metric", "tpot_s_p50", cwd=runs)
    assert done.returncode == 0, done.stderr
    assert "+10." in done.stdout or "+9." in done.stdout
    assert "c009 .. c010" in done.stdout
    assert done.stdout.rstrip().endswith("history: runs/history.html")
    assert (runs / "runs/history.html").is_file()


def test_a_job_can_fail_for_what_is_worse(runs: Path) -> None:
    asked = ("history", "runs", "--metric", "tpot_s_p50", "--json", "--fail-on-worse")
    done = decodebench(*asked, cwd=runs)
    assert done.returncode == 1
    assert json.loads(done.stdout)["changes"]


def test_json_has_everything_and_no_page(runs: Path) -> None:
    folders = [str(path.relative_to(runs)) for path in (runs / "runs").glob("run-*")]
    done = here("history", *folders, "--json", cwd=runs)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["runs"]) == 20
    assert {change["metric"] for change in found["changes"]} == {
        "output_tok_per_s", "tpot_s_p50", "ttft_s_p50",
    }  # fmt: skip
    (tpot,) = [one for one in found["changes"] if one["metric"] == "tpot_s_p50"]
    assert tpot["verdict"] == "worse"
    assert tpot["last_before"]["commit"] == "c009"
    assert tpot["first_after"]["commit"] == "c010"
    assert tpot["backend"] == "vllm"
    assert all(len(one["points"]) == 20 for one in found["series"])
    assert not (runs / "history.html").exists()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["none"], "none"),
        (["runs", "--metric", "tpot_p50"], "unknown metric 'tpot_p50'; did you mean 'tpot_s_p50'"),
        (["runs", "--significance", "2"], "--significance: is 2.0; expected more than 0"),
        (["runs", "--allow", "unsond"], "--allow: unknown 'unsond'; did you mean 'unsound'"),
        (["runs", "--out", "none/here.html"], "none"),
    ],
)
def test_bad_input_is_one_line(
    runs: Path,
    asked: list[str],
    words: str,
) -> None:
    told = refused("history", *asked, cwd=runs)
    assert words in told
    assert len(told.splitlines()) == 1
