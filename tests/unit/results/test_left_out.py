"""A broken record costs its own trial and no other, and one that a run replaces is not broken."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import results
from harness.cli.cells.outcome import tell_results
from harness.core.errors import UserError
from reports import page
from reports.collect import Samples, collect
from results.rows import cells
from tests.support.harness import command
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    for backend in ("fast", "slow"):
        run_of(run, record(trial(backend), [generation("r0", [10, 20])]))
    return run


def parquet_of(folder: Path, backend: str) -> Path:
    found = results.load(folder).stored
    (key,) = [one.record.key for one in found if one.record.trial.backend == backend]
    return folder / "trials" / f"{key}.parquet"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
def test_others_are_shown_without_it(folder: Path, harm: Callable[[Path], None]) -> None:
    broken = parquet_of(folder, "slow")
    harm(broken)
    for _ in range(2):
        told: list[UserError] = []
        run = results.load(folder, told.append)
        assert [cell["backend"] for cell in cells(run)] == ["fast"]
        assert list(run.requests["backend"]) == ["fast"]
        assert [one.record.trial.backend for one in run.stored] == ["fast"]
        assert [str(one).partition(": ")[0] for one in told] == [str(broken)]
        assert run.left_out == [str(one) for one in told]
    with pytest.raises(UserError, match=str(broken)):
        _ = results.load(folder).evaluated


def test_what_a_part_of_a_run_leaves_out_is_told(folder: Path) -> None:
    flip(parquet_of(folder, "slow"))
    told: list[UserError] = []
    whole = results.load(folder, told.append)
    for _ in range(2):
        assert list(whole.without({"other"}).requests["backend"]) == ["fast"]
    assert len(told) == len(whole.left_out) == 1


def test_the_table_at_the_end_of_a_run_is_of_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(parquet_of(folder, "slow"))
    tell_results(folder)
    out, err = capsys.readouterr()
    assert "fast" in out
    assert err.startswith("warning: left out: ")
    assert err.endswith("(its digest is another one); delete both and run the experiment again\n")


def drop(store: results.Store, key: str) -> None:
    store.remove(key)


def measure_again(store: results.Store, key: str) -> None:
    store.write(record(trial("slow"), [generation("r0", [10, 25])]))


@pytest.mark.parametrize("replace", [drop, measure_again])
def test_what_a_run_replaces_meanwhile_is_not_to_be_deleted(
    folder: Path, replace: Callable[[results.Store, str], None]
) -> None:
    key = parquet_of(folder, "slow").stem
    told: list[UserError] = []
    runs = [results.load(folder), results.load(folder, told.append)]
    replace(results.Store(folder), key)
    with pytest.raises(UserError, match=f"{key}.json: a run has replaced it just now; try again"):
        _ = runs[0].evaluated
    assert [cell["backend"] for cell in cells(runs[1])] == ["fast"]
    assert [str(one).partition(": ")[2] for one in told] == [
        "a run has replaced it just now; try again"
    ]


@pytest.mark.parametrize("warm", [False, True])
def test_the_page_says_what_it_is_without(
    folder: Path, warm: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if warm:
        assert results.load(folder).evaluated
    broken = parquet_of(folder, "slow")
    before = broken.stat()
    flip(broken)
    os.utime(broken, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert command.call(monkeypatch, "report", str(folder)) == 0
    assert capsys.readouterr().err.startswith(f"warning: left out: {broken}: not the bytes that")
    text = (folder / "report.html").read_text()
    assert f"Left out: 1 stored trial that cannot be read (why: trials/{broken.name}: not" in text
    assert str(folder) not in text
    flip(parquet_of(folder, "fast"))
    assert command.call(monkeypatch, "report", str(folder)) == 2
    assert "its digest is another one" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("victims", [["slow"], ["slow", "fast"]])
@pytest.mark.parametrize("warm", [False, True])
def test_a_page_is_of_the_same_trials_throughout(
    folder: Path, warm: bool, victims: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if warm:
        assert results.load(folder).evaluated
    keys = [parquet_of(folder, backend).stem for backend in victims]

    def removed(*arguments: Any) -> Samples:
        for key in keys:
            results.Store(folder).remove(key)
        return collect(*arguments)

    monkeypatch.setattr(page, "collect", removed)
    with pytest.raises(UserError, match=r"\.json: a run has replaced it just now"):
        page.write_report(folder)
    assert not (folder / "report.html").exists()


def test_an_index_says_why_a_run_has_no_page(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, tmp_path / "runs" / "whole")
    shutil.copytree(folder, tmp_path / "runs" / "broken")
    for backend in ("slow", "fast"):
        flip(parquet_of(tmp_path / "runs" / "broken", backend))
    assert command.call(monkeypatch, "report", str(tmp_path / "runs")) == 0
    text = (tmp_path / "runs" / "index.html").read_text()
    assert "its digest is another one" in text
    assert "whole/report.html" in text
