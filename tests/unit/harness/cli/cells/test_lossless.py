"""The command that says of each backend whether its text is the reference's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from harness.cli.cells.lossless import lossless
from harness.core.errors import UserError
from harness.core.nouns import REPLAYED
from tests.support.results.report_runs import MadeUpBackend, write_run

REFERENCE = MadeUpBackend("vllm", 0.01)


def run_with(folder: Path, *engines: MadeUpBackend, repeats: int = 2) -> Path:
    return write_run(
        folder, engines=(REFERENCE, *engines), workloads=["gsm8k"], repeats=repeats, requests=12
    )


def test_a_broken_promise_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_with(tmp_path, MadeUpBackend("adadecode", 0.01, changes=0.6))
    with pytest.raises(typer.Exit) as ended:
        lossless(folder)
    assert ended.value.exit_code == 1
    told = capsys.readouterr().out
    assert "lossy" in told
    assert "token " in told
    with pytest.raises(typer.Exit):
        lossless(folder, as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["backend"], row["verdict"]) for row in rows] == [
        ("vllm", "lossless"),
        ("adadecode", "lossy"),
    ]


def test_a_promise_that_cannot_be_told_ends_with_3(tmp_path: Path) -> None:
    doubtful = MadeUpBackend("adadecode", 0.01, changes=0.3)
    with pytest.raises(typer.Exit) as ended:
        lossless(run_with(tmp_path, doubtful, repeats=1))
    assert ended.value.exit_code == 3


def test_what_promised_nothing_breaks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lossy = MadeUpBackend("vllm-early-exit", 0.01, changes=0.3, lossless=False)
    lossless(run_with(tmp_path, lossy, MadeUpBackend("adadecode", 0.01)))
    told = capsys.readouterr().out
    assert "lossy" in told
    assert "all 72 pairs are equal" in told


def test_a_length_has_rows_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_with(tmp_path, MadeUpBackend("adadecode", 0.01))
    lossless(folder)
    assert "setting" not in capsys.readouterr().out
    for path in (folder / "trials").glob("*.json"):
        record = json.loads(path.read_text())
        if record["trial"]["repeat"] == 1:
            record["trial"]["max_new_tokens"] = 8
            path.write_text(json.dumps(record))
    lossless(folder)
    heading, *rows = [
        [cell.strip() for cell in line.split("  ") if cell.strip()]
        for line in capsys.readouterr().out.splitlines()
        if any(name in line for name in ("backend", "vllm", "adadecode"))
    ]
    assert heading[0] == "setting"
    assert sorted((row[1], row[0]) for row in rows) == [
        (name, f"max_new_tokens={most}") for name in ("adadecode", "vllm") for most in (64, 8)
    ]
    lossless(folder, as_json=True)
    told = [json.loads(line)["setting"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(one["max_new_tokens"] for one in told) == [8, 8, 64, 64]


def test_one_backend_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to compare: no two backends"):
        lossless(run_with(tmp_path))


@pytest.mark.parametrize("reference", [True, False])
def test_replays_are_said_to_have_no_text(reference: bool, tmp_path: Path) -> None:
    """Also where the reference decided for itself, which leaves it alone."""
    names = ["adadecode"] if reference else ["vllm", "adadecode"]
    engines = [
        MadeUpBackend(name, 0.01, {"replay": "demo"}, provenance=REPLAYED, lossless=False)
        for name in names
    ]
    folder = write_run(tmp_path, engines=[REFERENCE] * reference + engines, workloads=["gsm8k"])
    with pytest.raises(UserError, match="decisions were replayed: answers are chance"):
        lossless(folder)


def test_a_reference_that_was_not_run_is_told_beside_replays(tmp_path: Path) -> None:
    replay = MadeUpBackend("adadecode", 0.01, {"replay": "demo"}, provenance=REPLAYED)
    engines = [REFERENCE, MadeUpBackend("adadecode", 0.01), replay]
    folder = write_run(tmp_path, engines=engines, workloads=["gsm8k"])
    for path in (folder / "trials").glob("*.json"):
        if json.loads(path.read_text())["trial"]["backend"] == REFERENCE.name:
            path.unlink()
    with pytest.raises(UserError, match=r"nothing to compare: .* or no reference"):
        lossless(folder)
