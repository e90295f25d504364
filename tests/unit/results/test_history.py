"""Series over runs, and the changes in them."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import results
from harness.core.errors import UserError
from reports.history.words import remarks
from results.compare.gate.extraction import reduce_run
from results.compare.gate.quantities import quantities
from results.compare.gate.record_file import write_record
from results.history.series import History, history
from tests.support.results.history_runs import write_runs

TPOT = ["tpot_s_p50"]


def five_percent(number: int, backend: str) -> float:
    return 1.05 if backend == "vllm" and number >= 12 else 1.0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(tmp_path_factory.mktemp("runs"), 24, five_percent)


def names(found: History) -> list[tuple[str, str, str]]:
    return [(one.series.cell.backend, one.series.key, one.verdict) for one in found.changes]


def test_the_step_is_found_with_its_commits_and_versions(runs: Path) -> None:
    found = history([runs])
    assert [mark.commit for mark in found.runs] == [f"c{n:03d}" for n in range(24)]
    assert sorted(names(found)) == [
        ("vllm", key, "worse") for key in ("output_tok_per_s", "tpot_s_p50", "ttft_s_p50")
    ]
    change = next(one for one in found.changes if one.series.key == "tpot_s_p50")
    assert change.ratio == pytest.approx(1.05, abs=0.01)
    assert [point.mark.commit for point in change.between] == ["c011", "c012"]
    assert change.versions == {"vllm": ("0.31", "0.32")}
    assert change.point.p <= found.level == pytest.approx(0.05 / 6)


def test_smaller_times_and_larger_rates_are_better(tmp_path: Path) -> None:
    found = history([write_runs(tmp_path, 24, lambda n, b: 1.0 if n < 12 else 0.9)])
    assert {verdict for _, _, verdict in names(found)} == {"better"}


def test_runs_may_be_named_one_by_one_and_twice(runs: Path) -> None:
    some = sorted(runs.iterdir())
    again = history([*some, runs, some[0]], TPOT)
    assert [mark.commit for mark in again.runs] == [f"c{n:03d}" for n in range(24)]


def test_another_machine_is_another_series(tmp_path: Path) -> None:
    """Else its speed would be a change."""
    folder = write_runs(
        tmp_path, 24, lambda n, b: 1.0 if n < 12 else 1.5,
        environment=lambda n: {"cpu": "old" if n < 12 else "new", "cores": 4},
    )  # fmt: skip
    found = history([folder], TPOT)
    assert found.changes == []
    machines = {(one.cell.backend, one.machine): len(one.points) for one in found.series}
    assert machines == {
        (b, f"{cpu}, 4 cores"): 12 for b in ("vllm", "autoregressive") for cpu in ("old", "new")
    }


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({"gpu_driver": "550"}, {"gpu_driver": "560"}, {"gpu driver": ("550", "560")}),
        (
            {"variables": {}},
            {"variables": {"VLLM_USE_V1": "1"}},
            {"$VLLM_USE_V1": ("none", "1")},
        ),
    ],
)
def test_a_step_at_a_new_driver_or_variable_is_found_and_says_so(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], told: dict[str, Any]
) -> None:
    """Each side was a series of its own, too short to show anything."""
    folder = write_runs(
        tmp_path, 20, lambda n, b: 1.2 if n >= 10 else 1.0,
        environment=lambda n: new if n >= 10 else old,
    )  # fmt: skip
    found = history([folder], TPOT)
    assert len(found.changes) == 2
    assert all(one.versions.items() >= told.items() for one in found.changes)


def test_a_copy_of_a_run_counts_once_and_a_broken_one_stops_nothing(tmp_path: Path) -> None:
    folder = write_runs(tmp_path, 20, five_percent)
    plain = history([folder], TPOT)
    some = sorted(folder.iterdir())
    shutil.copytree(some[0], folder / "copy")
    shutil.copytree(some[1], folder / "broken")
    next((folder / "broken/trials").glob("*.json")).write_text("{")
    found = history([folder], TPOT)
    assert [mark.commit for mark in found.runs] == [mark.commit for mark in plain.runs]
    broken, copy = sorted(found.left_out)
    assert copy in (
        f"left out: {some[0]} holds trials of {folder / 'copy'}",
        f"left out: {folder / 'copy'} holds trials of {some[0]}",
    )
    assert broken.startswith(f"left out: {folder / 'broken'}")
    assert broken in list(remarks(found))
    with pytest.raises(UserError, match="broken"):
        history([*some, folder / "broken"], TPOT)


def test_a_run_that_may_not_be_read_stops_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does what may not be looked at: a link into a folder that is shut."""
    folder = write_runs(tmp_path, 3)
    locked, load, stat = min(folder.iterdir()), results.load, Path.stat
    shut, link = tmp_path / "shut", tmp_path / "sky"
    for path in (shut, link):
        path.mkdir()

    def refusing(path: Path) -> results.Run:
        if path in (locked, shut, link):
            raise PermissionError(errno.EACCES, "Permission denied", str(path / "trials"))
        return load(path)

    def looked_at(path: Path, **how: bool) -> os.stat_result:
        if path == link or path.parent in (link, shut):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **how)

    monkeypatch.setattr(results, "load", refusing)
    monkeypatch.setattr(Path, "stat", looked_at)
    found = history([folder], TPOT)
    assert len(found.runs) == 2
    assert found.left_out == [
        f"left out: {path}/trials: Permission denied" for path in (locked, shut, link)
    ]
    with pytest.raises(PermissionError):
        history([locked, folder], TPOT)


def test_links_to_nowhere_and_to_themselves_stop_no_others(tmp_path: Path) -> None:
    folder = write_runs(tmp_path, 2)
    (folder / "nowhere").symlink_to(tmp_path / "gone")
    (folder / "itself").symlink_to(folder / "itself")
    found = history([folder], TPOT)
    assert len(found.runs) == 2
    assert [told.partition(": ")[2][: len(f"{folder}/itself")] for told in found.left_out] == [
        f"{folder}/itself"
    ]


def test_runs_that_two_machines_began_in_one_second_are_no_copies(tmp_path: Path) -> None:
    """Runners that one clock starts: a whole run was left out."""

    def began(name: str) -> Path:
        told = {"fingerprint": "same kind", "invocation": name}
        return write_runs(tmp_path / name, 2, environment=lambda number: told)

    both = [began("here"), began("there")]
    found = history(both, TPOT)
    assert (len(found.runs), found.left_out) == (4, [])
    first = next(both[0].iterdir())
    write_record(tmp_path / "kept.parquet", reduce_run(results.load(first), quantities()))
    again = history([*both, tmp_path / "kept.parquet"], TPOT)
    assert len(again.runs) == 4
    (copy,) = again.left_out
    assert f"{tmp_path / 'kept.parquet'}" in copy


def test_files_of_record_tell_the_same(runs: Path, tmp_path: Path) -> None:
    """What a gate keeps."""
    for place, folder in enumerate(sorted(runs.iterdir())):
        reduced = reduce_run(results.load(folder), quantities())
        write_record(tmp_path / f"{place}.parquet", reduced)
    metrics = ["tpot_s_p50", "output_tok_per_s"]
    kept, whole = history([tmp_path], metrics), history([runs], metrics)
    assert [mark.commit for mark in kept.runs] == [mark.commit for mark in whole.runs]
    assert sorted(names(kept)) == sorted(names(whole))
    for one, other in zip(kept.changes, whole.changes, strict=True):
        assert one.point.after == pytest.approx(other.point.after)
        assert one.series.machine == other.series.machine
    assert kept.now_worse == kept.changes
    (tmp_path / "text.parquet").write_text("no parquet")
    damaged = pq.read_table(tmp_path / "0.parquet")
    metadata = {b"decodebench.record": b'{"version": 2, "trials": [{"identity": 5}]}'}
    pq.write_table(damaged.replace_schema_metadata(metadata), tmp_path / "damaged.parquet")
    beside = history([tmp_path], metrics)
    assert [mark.commit for mark in beside.runs] == [mark.commit for mark in whole.runs]
    assert [told.split(": not a")[0].split(": a dam")[0] for told in sorted(beside.left_out)] == [
        f"left out: {tmp_path / name}.parquet" for name in ("damaged", "text")
    ]


def test_a_step_back_is_no_longer_worse(tmp_path: Path) -> None:
    folder = write_runs(tmp_path, 36, lambda n, b: 1.2 if b == "vllm" and 12 <= n < 24 else 1.0)
    found = history([folder], TPOT)
    assert [verdict for _, _, verdict in names(found)] == ["better", "worse"]
    assert found.now_worse == []


def test_what_is_not_sound_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    folder = write_runs(
        tmp_path, 24, lambda n, b: 1.3 if n >= 18 else 1.0, doubted=lambda n: n >= 18
    )
    found = history([folder], TPOT)
    assert found.changes == []
    assert {(len(one.points), len(one.doubted)) for one in found.series} == {(18, 6)}
    assert len(history([folder], TPOT, unsound=True).changes) == 2
    everything = write_runs(tmp_path / "all", 4, doubted=lambda n: True)
    assert {len(one.points) for one in history([everything], TPOT).series} == {0}


def test_few_runs_are_said_to_be_few(tmp_path: Path) -> None:
    found = history([write_runs(tmp_path, 5, lambda n, b: 1.0 if n < 3 else 2.0)], TPOT)
    assert found.changes == []
    assert found.fewest > 5


def test_the_runs_that_it_takes_do_not_become_more_with_runs(tmp_path: Path) -> None:
    """Of 3 runs it told 9, once there were 4 it was 12: the level falls with each series that is
    long enough, though all of them will be."""
    write_runs(tmp_path, 12)
    in_order = sorted(tmp_path.iterdir(), key=lambda run: int(run.name.rpartition("-")[2]))
    told = {count: history(in_order[:count]) for count in (2, 3, 4, 11, 12)}
    assert {found.fewest for found in told.values()} == {12}
    assert {count: len(found.short) for count, found in told.items()} == {
        **dict.fromkeys((2, 3, 4, 11), 6),
        12: 0,
    }


def test_series_that_ended_do_not_make_it_take_more_runs(tmp_path: Path) -> None:
    folder = write_runs(tmp_path, 14)
    for number in (0, 1):
        for path in folder.glob(f"run-*-{number}/trials/*.json"):
            told = json.loads(path.read_text())
            told["trial"]["requests"] += 1
            path.write_text(json.dumps(told))
    found = history([folder])
    assert (len(found.series), found.fewest) == (12, 12)
    (told,) = remarks(found)
    assert told.endswith("from 12 runs on, the longest has 2"), "of those that are short"


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (["tpot_p50"], "unknown metric 'tpot_p50'; did you mean 'tpot_s_p50'"),
        (["tpot"], "unknown metric 'tpot'; did you mean 'tpot_s_p50'"),
        (["tpot_s"], "unknown metric 'tpot_s'; did you mean 'tpot_s_p50'"),
        (["n_requests_"], "unknown metric 'n_requests_'"),
        (["pass_at_1"], "none of the runs has pass_at_1"),
    ],
)
def test_unknown_metrics_are_refused(runs: Path, metrics: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        history([runs], metrics)


def test_folders_without_runs_are_refused(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected at least 2"):
        history([next(iter(runs.iterdir()))])
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=folder.name):
            history([runs, folder])
