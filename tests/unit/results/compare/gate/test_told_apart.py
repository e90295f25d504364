"""Trials of one name: cells of an experiment that has a workload several times, or of two runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import results
from harness.cli.gate import confirm
from harness.core.errors import UserError
from harness.core.nouns import TrialRecord, Workload, to_json
from results.compare.gate.calibration import calibrated
from results.compare.gate.comparison import compare_runs
from results.compare.gate.decision import Decision
from results.compare.gate.extraction import reduce_run
from results.compare.gate.identity import MEASURED, check_two_runs
from results.compare.gate.margins import GateRules, MarginRule
from results.compare.gate.quantities import quantities
from results.compare.gate.record_file import read_record, write_record
from results.compare.gate.reduced import ReducedRun
from tests.support.harness import command
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.reduced_runs import a_run, cell, changed, everywhere, joined
from tests.support.results.stored_runs import run_of

TPOT = GateRules((MarginRule("tpot_s", 0.05),))
TTFT = GateRules((MarginRule(MEASURED, 0.05),))
GSM8K = Workload("gsm8k", checksum="sum")
OTHERS = dataclasses.replace(GSM8K, source="rows.jsonl", rows=6, checksum="others")


def measured(
    limit: int, repeat: int = 0, workload: Workload = GSM8K, step: float = 2, **environment: Any
) -> TrialRecord:
    own = trial("fast", workload=workload, max_new_tokens=limit, repeat=repeat)
    times = [(step + 0.01 * repeat) * (5 + token) for token in range(limit)]
    found = [generation(f"r{n}", times) for n in range(6)]
    return record(own, found, environment=environment)


def asked(*choices: tuple[Workload, int]) -> list[dict[str, Any]]:
    return [{"workload": to_json(workload), "max_new_tokens": limit} for workload, limit in choices]


def run_with(folder: Path, *choices: tuple[Workload, int], step: float = 2) -> results.Run:
    """An experiment of these workloads, with three repeats."""
    found = [measured(limit, n, workload, step) for workload, limit in choices for n in range(3)]
    return run_of(folder, *found, workloads=asked(*choices), repeats=3)


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ([(GSM8K, 8)], ["gsm8k"]),
        (
            [(GSM8K, 8), (GSM8K, 16)],
            ['gsm8k {"max_new_tokens":8}', 'gsm8k {"max_new_tokens":16}'],
        ),
        (
            [(GSM8K, 8), (OTHERS, 8)],
            [
                'gsm8k {"rows":null,"source":"bundled"}',
                'gsm8k {"rows":6,"source":"rows.jsonl"}',
            ],
        ),
        (
            [(GSM8K, 8), (dataclasses.replace(GSM8K, options={"chat": {}}), 16)],
            ["gsm8k", 'gsm8k {"chat":{}}'],
        ),
    ],
)
def test_what_an_experiment_has_several_times_can_be_gated(
    tmp_path: Path, choices: list[tuple[Workload, int]], told: list[str]
) -> None:
    """It ran, and was then called a folder of several versions."""
    run = reduce_run(run_with(tmp_path, *choices), quantities())
    assert {cell.workload for cell in run.cells()} == set(told)
    write_record(tmp_path / "kept.parquet", run)
    decision = compare_runs(read_record(tmp_path / "kept.parquet"), run, TPOT)
    assert (decision.verdict, len(decision.rows)) == ("pass", len(choices))
    assert len(calibrated(run, TPOT, 0.05)) == len(choices)


def test_a_folder_of_two_experiments_says_what_differs(tmp_path: Path) -> None:
    found = [measured(limit, n) for limit in (8, 16) for n in range(3)]
    edited = run_of(tmp_path, *found, workloads=asked((GSM8K, 16)), repeats=3)
    told = "repeat 0 of .*: fast is there twice: they differ in max_new_tokens; expected"
    with pytest.raises(UserError, match=told):
        reduce_run(edited, ["tpot_s"]).cells()


def test_a_folder_of_two_machines_says_what_differs(tmp_path: Path) -> None:
    here = [measured(8, n, cores=2, fingerprint="here") for n in range(2)]
    there = [
        dataclasses.replace(measured(8, n, cores=4, fingerprint="there"), key=f"there{n}")
        for n in range(2)
    ]
    both = reduce_run(run_of(tmp_path, *here, *there), ["tpot_s"])
    with pytest.raises(UserError, match="is there twice: they differ in cores; expected"):
        both.cells()


def begun(run: ReducedRun) -> ReducedRun:
    """All its trials in one second, with the times of `a_run`."""
    return ReducedRun(
        run.where,
        [
            dataclasses.replace(
                trial,
                started="2026-01-01T00:00:00+00:00",
                invocation="one",
                values={MEASURED: trial.values["tpot_s"]},
            )
            for trial in run.trials
        ],
    )


def test_a_run_is_not_compared_with_itself() -> None:
    """It passed, as run side by side."""
    base = begun(a_run())
    with pytest.raises(UserError, match=r"^kept: NEW is BASE: these trials are those of BASE; exp"):
        check_two_runs(base, dataclasses.replace(base, where="kept"))
    crashed = changed(base, 1, status="failed", values={})
    with pytest.raises(UserError, match="NEW is BASE"):
        check_two_runs(crashed, crashed)


def test_what_is_run_again_beside_shared_trials_is_compared() -> None:
    """Shared trials hid that the one backend that was run again crashed, or was gone."""
    kept, whole = everywhere(begun(a_run()), cell=cell("vllm")), begun(a_run())
    crashed = everywhere(whole, status="failed", values={})
    both, broken = joined("BASE", [kept, whole]), joined("NEW", [kept, crashed])
    for base, new in ((both, broken), (broken, both), (both, kept)):
        check_two_runs(base, new)
    assert compare_runs(both, broken, TTFT).verdict == "fail"
    for base in (kept, broken):
        with pytest.raises(UserError, match="NEW is BASE"):
            check_two_runs(base, joined("NEW", [base, everywhere(whole, cell=cell("more"))]))
    again = everywhere(crashed, started="2026-01-02T00:00:00+00:00")
    check_two_runs(broken, joined("NEW", [kept, again]))
    check_two_runs(crashed, crashed)


def test_two_versions_that_run_side_by_side_are_two_runs() -> None:
    """Short trials begin in the same second."""
    base, new = begun(a_run()), begun(a_run("NEW", seed=1))
    check_two_runs(base, new)
    check_two_runs(base, ReducedRun("NEW", [*new.trials[:1], *base.trials[1:]]))
    older = everywhere(base, started=None)
    check_two_runs(older, older)


BOTH = [(GSM8K, 8), (GSM8K, 16)]
TWICE = [(GSM8K, 8), (OTHERS, 8)]


@pytest.mark.parametrize(
    ("before", "after", "kept", "lost", "more"),
    [
        ([(GSM8K, 8)], BOTH, 'gsm8k {"max_new_tokens":8}', [], 'gsm8k {"max_new_tokens":16}'),
        (BOTH, [(GSM8K, 16)], "gsm8k", ['gsm8k {"max_new_tokens":8}'], ""),
        (
            TWICE,
            [(OTHERS, 8)],
            "gsm8k",
            ['gsm8k {"rows":null,"source":"bundled"}'],
            "",
        ),
        (
            [*TWICE, (GSM8K, 16)],
            BOTH,
            'gsm8k {"max_new_tokens":8}',
            ['gsm8k {"max_new_tokens":8,"rows":6,"source":"rows.jsonl"}'],
            "",
        ),
    ],
)
def test_an_entry_that_one_run_alone_has_makes_no_other_missing(
    tmp_path: Path,
    before: list[tuple[Workload, int]],
    after: list[tuple[Workload, int]],
    kept: str,
    lost: list[str],
    more: str,
) -> None:
    """Its name was another one beside others, so that it failed as missing."""
    base, new = (
        reduce_run(run_with(tmp_path / name, *choices), quantities())
        for name, choices in (("base", before), ("new", after))
    )
    write_record(tmp_path / "kept.parquet", base)
    decision = compare_runs(read_record(tmp_path / "kept.parquet"), new, TPOT)
    assert kept in {row.cell.workload for row in decision.rows}
    assert [told.partition(", closed")[0] for told in decision.missing] == [
        f"cell missing in NEW: {name}" for name in lost
    ]
    assert [told.partition(", closed")[0] for told in decision.notes] == [
        f"not in BASE, not gated: {name}" for name in [more] if name
    ]


def test_the_one_entry_of_a_workload_with_another_length_is_refused(tmp_path: Path) -> None:
    base, new = (
        reduce_run(run_with(tmp_path / str(limit), (GSM8K, limit)), ["tpot_s"]) for limit in (8, 16)
    )
    with pytest.raises(UserError, match=r"differ in max_new_tokens \(8 / 16\)"):
        compare_runs(base, new, TPOT)


def test_what_is_run_again_is_named_as_the_experiment_names_it_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else BASE's former trials would stay beside those that take their place."""
    run_with(tmp_path / "base", (GSM8K, 8))
    run_with(tmp_path / "new", *BOTH, step=3)
    seen: list[set[str]] = []

    def again(decision: Decision, sides: Sequence[ReducedRun], *_: Any) -> Any:
        seen.extend({cell.workload for cell in side.cells()} for side in sides)
        return *sides, ()

    monkeypatch.setattr(confirm, "confirm", again)
    command.call(monkeypatch, "compare", tmp_path / "base", tmp_path / "new", "--confirm")
    first, second = (f'gsm8k {{"max_new_tokens":{limit}}}' for limit in (8, 16))
    assert seen == [{first}, {first, second}]
