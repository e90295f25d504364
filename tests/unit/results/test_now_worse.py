"""Which steps a job fails by: those of what its experiment still runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import results
from harness.core.nouns import Load, Workload, to_json
from reports.history.words import remarks
from results.history.series import history
from tests.support.results.history_runs import Slower, write_runs
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of

TPOT = ["tpot_s_p50"]


def test_a_step_of_what_no_longer_runs_is_nobodys(tmp_path: Path) -> None:
    """Else a job that fails for it fails for ever."""
    folder = write_runs(tmp_path, 24, lambda n, b: 1.2 if n >= 12 else 1.0)
    assert len(history([folder], TPOT).now_worse) == 2
    asked = trial(
        "vllm", workload=Workload("gsm8k", checksum="sum"), load=Load("closed", concurrency=8)
    )
    found = [generation(f"r{i}", [12 * k for k in range(2, 12)]) for i in range(24)]
    later = record(asked, found, started_at="2026-09-01T10:00:00+00:00")
    run_of(folder / "later", later, backends=[{"name": "vllm", "options": {}}], reference="vllm")
    (one,) = history([folder], TPOT).now_worse
    assert one.series.cell.backend == "vllm"


def nightly(
    folder: Path,
    hour: int,
    backends: list[str],
    workload: str = "gsm8k",
    days: range = range(24),
    asked: int = 2,
) -> None:
    """A second experiment of the same machine, at this hour of days on which `write_runs` has the
    first one at 10."""
    for number in days:
        started = f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}T{hour}:00:00+00:00"
        records = []
        for name in backends:
            own = trial(
                name,
                workload=Workload(workload, checksum="sum"),
                load=Load("closed", concurrency=8),
                requests=asked,
            )
            found = [generation(f"r{i}", [12 * k for k in range(2, 12)]) for i in range(24)]
            records.append(record(own, found, started_at=started))
        listed = [{"name": name, "options": {}} for name in backends]
        run_of(folder / f"second-{number}", *records, backends=listed, reference=backends[0])


@pytest.mark.parametrize(
    ("backends", "workload"), [(["vllm"], "xsum"), (["tetris", "adadecode"], "gsm8k")]
)
def test_a_step_is_told_whichever_experiment_ran_last(
    tmp_path: Path, backends: list[str], workload: str
) -> None:
    """Of two nightly ones on a machine the first one's steps were nobody's."""
    folder = write_runs(tmp_path, 24, lambda n, b: 1.2 if n >= 12 else 1.0)
    nightly(folder, 11, backends, workload)
    assert len(history([folder], TPOT).now_worse) == 2


def test_a_step_is_told_though_another_experiment_shares_a_cell(tmp_path: Path) -> None:
    folder = write_runs(tmp_path, 24, lambda n, b: 1.2 if b == "vllm" and n >= 12 else 1.0)
    nightly(folder, 11, ["autoregressive", "tetris"])
    found = history([folder], TPOT)
    assert [one.series.cell.backend for one in found.now_worse] == ["vllm"]


def test_a_step_is_told_though_an_experiment_that_shares_a_cell_has_grown(tmp_path: Path) -> None:
    folder = write_runs(tmp_path, 24, lambda n, b: 1.2 if b == "vllm" and n >= 12 else 1.0)
    nightly(folder, 11, ["autoregressive", "tetris"], days=range(23))
    nightly(folder, 11, ["autoregressive", "tetris", "adadecode"], days=range(23, 24))
    assert len(history([folder], TPOT).now_worse) == 1


def test_a_step_is_told_though_another_experiment_has_its_cells_as_other_work(
    tmp_path: Path,
) -> None:
    folder = write_runs(tmp_path, 24, lambda n, b: 1.2 if n >= 12 else 1.0)
    nightly(folder, 11, ["vllm", "autoregressive"], asked=25)
    assert len(history([folder], TPOT).now_worse) == 2


def test_a_step_of_other_work_under_the_same_name_is_nobodys(tmp_path: Path) -> None:
    """Of a cell that has had other requests since: it was told for ever."""
    folder = write_runs(tmp_path, 24, lambda n, b: 1.2 if n >= 12 else 1.0)
    assert len(history([folder], TPOT).now_worse) == 2
    for path in write_runs(tmp_path / "since", 6).glob("*/trials/*.json"):
        told = json.loads(path.read_text().replace("2026-01-", "2026-03-"))
        told["trial"]["requests"] += 1
        path.write_text(json.dumps(told))
    found = history([folder, tmp_path / "since"], TPOT)
    assert len(found.series) == 4
    assert found.now_worse == []


def test_a_step_is_told_though_its_experiment_has_one_more_length(tmp_path: Path) -> None:
    """The longer name of the cell began a series of its own."""
    folder = write_runs(tmp_path, 24, lambda n, b: 1.2 if b == "vllm" and n >= 12 else 1.0)
    newest = max(folder.iterdir(), key=lambda one: int(one.name.rpartition("-")[2]))
    run = results.load(newest)
    own = [run.store.read(stored.record.key) for stored in run.stored]
    longer = [dataclasses.replace(o.trial, max_new_tokens=2 * o.trial.max_new_tokens) for o in own]
    more = [
        dataclasses.replace(one, key=asked.key("longer"), trial=asked)
        for one, asked in zip(own, longer, strict=True)
    ]
    entries = [
        {"workload": to_json(one.workload), "max_new_tokens": one.max_new_tokens}
        for one in (own[0].trial, longer[0])
    ]
    run_of(newest, *more, **{**run.experiment, "workloads": entries})
    found = history([folder], TPOT)
    (step,) = found.now_worse
    limits = [one["max_new_tokens"] for one in entries]
    assert [len(one.points) for one in found.series] == [24, 24, 1, 1]
    assert step.series.cell.workload == f'gsm8k {{"max_new_tokens":{limits[0]}}}'
    dropped = [dataclasses.replace(one, started_at="2026-09-01T10:00:00+00:00") for one in more]
    run_of(folder / "dropped", *dropped, **{**run.experiment, "workloads": entries[1:]})
    assert history([folder], TPOT).now_worse == []


def test_a_step_is_told_whichever_host_ran_last(tmp_path: Path) -> None:
    """Hosts with the same GPU have one name and are two machines."""
    gpus = [{"name": "NVIDIA H200", "memory_gib": 139}]
    slower: dict[str, Slower] = {"x": lambda n, b: 1.2 if n >= 12 else 1.0, "y": lambda n, b: 1.0}
    for cpu, factor in slower.items():
        machine = {"gpus": gpus, "cpu": cpu}
        write_runs(
            tmp_path / cpu, 24, factor, environment=dict.fromkeys(range(24), machine).__getitem__
        )
    for stored in (tmp_path / "y").glob("*/trials/*.json"):
        stored.write_text(stored.read_text().replace("T10:00:00", "T11:00:00"))
    found = history([tmp_path / "x", tmp_path / "y"], TPOT)
    assert {one.machine for one in found.series} == {"NVIDIA H200"}
    assert len(found.series) == 4
    assert len(found.now_worse) == 2


def test_a_step_is_told_though_the_newest_trials_are_not_sound(tmp_path: Path) -> None:
    folder = write_runs(tmp_path, 24, lambda n, b: 1.2 if n >= 12 else 1.0)
    newest = max(folder.iterdir(), key=lambda one: int(one.name.rpartition("-")[2]))
    for path in newest.glob("trials/*.json"):
        if '"autoregressive"' in path.read_text():
            told = json.loads(path.read_text())
            told["validity"] = {"valid": False, "reasons": ["machine-noisy: busy"]}
            path.write_text(json.dumps(told))
    found = history([folder], TPOT)
    assert sum(len(one.doubted) for one in found.series) == 1
    assert len(found.now_worse) == 2


def test_a_step_is_told_though_what_got_worse_has_crashed_since(tmp_path: Path) -> None:
    """It looked as if its experiment no longer had it."""
    folder = write_runs(tmp_path, 24, lambda n, b: 1.2 if b == "vllm" and n >= 12 else 1.0)
    newest = max(folder.iterdir(), key=lambda one: int(one.name.rpartition("-")[2]))
    run = results.load(newest)
    (stored,) = [one for one in run.stored if one.record.trial.backend == "vllm"]
    crashed = dataclasses.replace(stored.record, status="failed", backend=None, generations=())
    run.store.write(crashed)
    found = history([folder], TPOT)
    assert [one.series.cell.backend for one in found.now_worse] == ["vllm"]
    told = "gsm8k, closed c=8, demo: vllm: no tpot_s_p50 in its newest run, c023"
    assert told in list(remarks(found))


def test_a_step_is_told_though_the_newest_run_kept_the_trials_of_what_got_worse(
    tmp_path: Path,
) -> None:
    """A copy in which one backend was run again: it looked as if it no longer had the other."""
    folder = write_runs(tmp_path, 24, lambda n, b: 1.2 if b == "vllm" and n >= 12 else 1.0)
    run = results.load(max(folder.iterdir(), key=lambda one: int(one.name.rpartition("-")[2])))
    kept, again = (
        run.store.read(one.record.key)
        for one in sorted(run.stored, key=lambda one: one.record.trial.backend != "vllm")
    )
    again = dataclasses.replace(again, started_at="2026-09-01T10:00:00+00:00")
    run_of(folder / "again", kept, again, **run.experiment)
    found = history([folder], TPOT)
    assert [one.series.cell.backend for one in found.now_worse] == ["vllm"]
    assert [len(one.points) for one in found.series] == [24, 25]
    assert [told for told in remarks(found) if "newest run" in told] == []
