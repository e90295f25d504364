"""Runs of real folders, files of record, and what cannot be read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import results
from harness.core.errors import UserError
from harness.core.names import STAND_IN
from harness.core.nouns import Load, TrialRecord, Validity
from harness.measure.checks import check_trial
from results.compare.gate import record_file
from results.compare.gate.calibration import calibrated, margin_held, repeats_needed
from results.compare.gate.comparison import compare_runs
from results.compare.gate.extraction import reduce_run
from results.compare.gate.margins import DEFAULTS, GateRules, MarginRule
from results.compare.gate.quantities import quantities
from results.compare.gate.record_file import read_record, write_record
from results.compare.intervals.crossed import crossed_mean
from results.compare.intervals.student import t_quantile
from tests.support.results.make_trials import generation, record, told, trial
from tests.support.results.reduced_runs import cell, timed_run, wandering
from tests.support.results.stored_runs import run_of


def made(repeat: int, step_ms: float = 10, last: int = 3) -> TrialRecord:
    generations = [
        generation("a", [5, 5 + step_ms, 5 + 2 * step_ms], ids=[1, 2, last]),
        generation("b", [7, 7 + step_ms], ids=[4, 5]),
        generation("c", [9], finished="error"),
    ]
    scores = {"a": {"exact_match": 1.0}, "b": {"exact_match": 0.0}}
    own = trial(repeat=repeat, options={"kernels": "torch"})
    return record(own, generations, scores=scores)


def stored(folder: Path, **how: int) -> results.Run:
    return run_of(folder, *(made(n, **how) for n in range(3)), repeats=3)


def test_a_run_s_values_are_those_of_its_requests(tmp_path: Path) -> None:
    run = reduce_run(stored(tmp_path), quantities())
    first = run.trials[0]
    np.testing.assert_allclose(first.values["tpot_s"], [0.01, 0.01, np.nan])
    np.testing.assert_allclose(first.values["ttft_s"], [0.005, 0.007, np.nan])
    np.testing.assert_allclose(first.values["exact_match"], [1, 0, np.nan])
    assert first.numbers["n_errors"] == 1
    assert first.numbers["ttft_s_mean"] == pytest.approx(0.006)
    assert first.answers[2] == 1
    assert len(set(first.answers.tolist())) == 3


def test_a_record_gives_back_what_was_written(tmp_path: Path) -> None:
    run = reduce_run(stored(tmp_path / "run"), quantities())
    write_record(tmp_path / "kept/run.parquet", run)
    found = read_record(tmp_path / "kept/run.parquet")
    for one, other in zip(run.trials, found.trials, strict=True):
        assert (one.cell, one.repeat, one.numbers) == (other.cell, other.repeat, other.numbers)
        assert list(one.ids) == list(other.ids)
        np.testing.assert_array_equal(one.answers, other.answers)
        np.testing.assert_array_equal(one.lengths, [3, 2, 1])
        np.testing.assert_array_equal(one.lengths, other.lengths)
        assert one.values.keys() == other.values.keys()
        for name, values in one.values.items():
            np.testing.assert_array_equal(values, other.values[name])
    assert compare_runs(found, run, DEFAULTS).verdict == "pass"
    untold = [dataclasses.replace(one, lengths=None) for one in run.trials]
    write_record(tmp_path / "older.parquet", dataclasses.replace(run, trials=untold))
    older = read_record(tmp_path / "older.parquet")
    assert {one.lengths for one in older.trials} == {None}
    assert compare_runs(older, run, DEFAULTS).verdict == "pass"


def test_one_other_token_is_found_in_a_folder(tmp_path: Path) -> None:
    base = reduce_run(stored(tmp_path / "base"), ["consistency"])
    new = reduce_run(stored(tmp_path / "new", last=9), ["consistency"])
    decision = compare_runs(base, new, GateRules((MarginRule("consistency", 0.5),)))
    assert decision.verdict == "fail"
    assert "3 of 9 answers are not BASE's, first a of repeat 0" in decision.rows[0].note


def test_a_disturbed_repeat_is_the_one_that_was_measured_in_its_place(tmp_path: Path) -> None:
    noisy = dataclasses.replace(
        made(1, step_ms=30), validity=Validity(False, ("machine-noisy: others used 30%",))
    )
    again = made(STAND_IN + 1, step_ms=12)
    folder = run_of(tmp_path, made(0), noisy, made(2), again, repeats=3)
    run = reduce_run(folder, ["tpot_s"])
    assert [one.repeat for one in run.trials] == [0, 1, 2]
    assert not any(one.doubt for one in run.trials)
    np.testing.assert_allclose(run.trials[1].values["tpot_s"][:2], 0.012)


def test_one_failed_request_of_twenty_leaves_a_trial_usable(tmp_path: Path) -> None:
    """As a run tells it, with the remark that so few answers have no p99."""
    many = [generation(f"r{n}", [5, 15]) for n in range(19)]
    asked = trial(requests=20)
    lost = [*many, generation("r19", [9], finished="error")]
    found = check_trial(asked, lost, told("vllm", {}))
    (only,) = reduce_run(run_of(tmp_path, record(asked, lost, validity=found)), ["tpot_s"]).trials
    assert only.doubt == "failures, too-few-samples"
    assert only.is_usable


def test_half_a_run_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    half = run_of(tmp_path / "half", made(0), repeats=3)
    with pytest.raises(UserError, match="half a run: 1 of 1 cells have fewer than 3 repeats"):
        reduce_run(half, ["tpot_s"])
    with pytest.raises(UserError, match="no trials in it"):
        reduce_run(run_of(tmp_path / "empty"), ["tpot_s"])


@pytest.mark.parametrize("name", ["goodput.json", "sweep.json"])
def test_probes_of_rates_are_not_compared(tmp_path: Path, name: str) -> None:
    """Their rates differ from run to run, so that every cell of them would be missing."""
    run = stored(tmp_path)
    probe = made(0)
    load = Load("poisson", rate=3.7)
    own = dataclasses.replace(probe.trial, load=load)
    run.store.write(dataclasses.replace(probe, key="probe", trial=own))
    told = {"share": 0.9, "confidence": 0.95, "systems": [], "trials": ["probe"]}
    (tmp_path / name).write_text(json.dumps(told))
    kept = reduce_run(results.load(tmp_path), ["tpot_s"])
    assert len(kept.trials) == len(run.stored)
    told["trials"] = [one.record.key for one in results.load(tmp_path).stored]
    (tmp_path / name).write_text(json.dumps(told))
    with pytest.raises(UserError, match="holds a search or a sweep alone"):
        reduce_run(results.load(tmp_path), ["tpot_s"])


def test_other_files_are_no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, foreign, other = (tmp_path / name for name in ("text", "foreign", "other"))
    text.write_text("no parquet")
    pq.write_table(pa.table({"x": [1]}), foreign)
    monkeypatch.setattr(record_file, "VERSION", 3)
    write_record(other, timed_run("run", wandering(np.random.default_rng(0), 2)))
    monkeypatch.undo()
    for path, words in (
        (text, "not a file of record"),
        (foreign, "a Parquet file of something else"),
        (other, "a record of version 3, expected 2"),
        (tmp_path / "absent", "no such file or folder"),
    ):
        with pytest.raises(UserError, match=words):
            read_record(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("identity", None), ("identity", []), ("repeat", None), ("repeat", {}), ("commit", 5),
        ("started", 5), ("doubt", 5), ("status", "done"), ("status", []), ("lossless", None),
        ("numbers", {"n_errors": "none"}), ("numbers", {"n_errors": float("inf")}),
        ("cell", {"model": 1, "workload": "", "load": "", "backend": "", "options": "{}"}),
        ("cell", {"model": "", "workload": "", "load": "", "backend": "", "options": "x"}),
    ],
)  # fmt: skip
def test_a_damaged_record_is_told_in_a_line(tmp_path: Path, name: str, value: Any) -> None:
    """Anybody may have written it; each was a traceback somewhere behind the reading."""
    said = told_of(tmp_path / "good")
    for one in said["trials"]:
        one[name] = value
    with pytest.raises(UserError, match="a damaged record") as caught:
        damaged(tmp_path, json.dumps(said).encode())
    assert "\n" not in str(caught.value)


def test_damaged_columns_are_told_in_a_line_too(tmp_path: Path) -> None:
    said = json.dumps(told_of(tmp_path / "good")).encode()
    with pytest.raises(UserError, match="a damaged record"):
        damaged(tmp_path, b"[" * 100_000)
    rows = pq.read_table(tmp_path / "good").num_rows
    for column, values in (
        ("value.tpot_s", pa.array([float("inf")] * rows)),
        ("answer", pa.array([None] * rows, pa.int64())),
        ("answer", pa.array(["a"] * rows)),
        ("trial", pa.array([None] * rows, pa.int32())),
        ("trial", pa.array(range(rows, 0, -1))),
        ("request_id", pa.array([None] * rows, pa.string())),
    ):
        with pytest.raises(UserError, match="a damaged record"):
            damaged(tmp_path, said, **{column: values})


def told_of(path: Path) -> dict[str, Any]:
    write_record(path, timed_run("run", wandering(np.random.default_rng(0), 2)))
    found: dict[str, Any] = json.loads(pq.read_schema(path).metadata[record_file._KEY])
    return found


def damaged(folder: Path, said: bytes, **columns: pa.Array) -> None:
    """Read the record `good` with this in the place of what it tells, and other columns."""
    table = pq.read_table(folder / "good")
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    pq.write_table(table.replace_schema_metadata({record_file._KEY: said}), folder / "bad")
    read_record(folder / "bad")


def test_margins_that_a_machine_holds() -> None:
    run = timed_run("run", wandering(np.random.default_rng(3), 6, wander=0.01))
    (held,) = calibrated(run, DEFAULTS, wished=0.02)
    assert held.margin == pytest.approx(margin_held(held.spread, 6, 0.05, 1, seen=6))
    needed = held.repeats_for_wish
    assert needed is not None
    assert needed == repeats_needed(held.spread, 0.02, 0.05, 1, seen=6)
    assert margin_held(held.spread, needed, 0.05, 1, seen=6) <= 0.02
    assert needed == 3 or margin_held(held.spread, needed - 1, 0.05, 1, seen=6) > 0.02
    assert repeats_needed(1.0, 0.001, 0.05, 1) is None


def test_two_repeats_are_too_few_to_calibrate() -> None:
    run = timed_run("run", wandering(np.random.default_rng(3), 2))
    with pytest.raises(UserError, match="expected at least 3"):
        calibrated(run, DEFAULTS, wished=0.05)


def test_how_repeats_with_arrivals_of_their_own_differ_is_no_spread_of_versions() -> None:
    load = Load("poisson", rate=3.0, redraw=True).label()
    run = timed_run("run", wandering(np.random.default_rng(3), 4), cell=cell(load=load))
    with pytest.raises(UserError, match=r"^run: poisson 3/s redrawn: how repeats with arrivals of"):
        calibrated(run, DEFAULTS, wished=0.05)


def test_a_held_margin_is_of_the_error_that_a_comparison_finds() -> None:
    repeats, alpha = 5, 0.05
    differences = 0.03 * np.random.default_rng(9).standard_normal(repeats)
    found = crossed_mean(np.repeat(differences[:, None], 40, axis=1))
    assert found is not None
    spread = float(differences.std(ddof=1)) / 2**0.5
    needed = t_quantile(alpha, repeats - 1) + t_quantile(0.2, repeats - 1)
    wanted = float(np.expm1(needed * found.variance**0.5))
    assert margin_held(spread, repeats, alpha, 1) == pytest.approx(wanted)


def test_a_held_margin_passes_in_four_of_five() -> None:
    """With the true spread, and repeats that wander independently."""
    spread, repeats = 0.02, 5
    margin = margin_held(float(np.hypot(spread, 0.02 / 30**0.5)), repeats, 0.05, 1)
    rules, passed = GateRules((MarginRule("tpot_s", margin),)), 0
    for seed in range(200):
        chance = np.random.default_rng([8, seed])
        base = timed_run("A", wandering(chance, repeats, wander=spread))
        new = timed_run("B", wandering(chance, repeats, wander=spread))
        passed += compare_runs(base, new, rules).verdict == "pass"
    assert 0.68 <= passed / 200 <= 0.97


@pytest.mark.parametrize(("repeats", "rows"), [(3, 1), (3, 8), (10, 8)])
def test_a_held_margin_allows_for_what_its_repeats_show_of_the_spread(
    repeats: int, rows: int
) -> None:
    """Equal versions of a spread of 1 that the repeats show by chance: all rows pass in 4 of 5
    cases. As if it were known they did in 0.64, 0.27 and 0.6."""
    chance, df, files = np.random.default_rng(4), repeats - 1, 20_000
    error = margin_held(1.0, repeats, 0.05, 1, relative=False) / (
        t_quantile(0.05, df) + t_quantile(0.2, df)
    )
    own, shown = np.sqrt(chance.chisquare(df, (2, files, rows)) / df)
    worse = error * (chance.standard_normal((files, rows)) + t_quantile(0.05, df) * own)
    margin = margin_held(1.0, repeats, 0.05, rows, seen=repeats, relative=False)
    assert (worse <= margin * shown).all(axis=1).mean() == pytest.approx(0.8, abs=0.01)


def test_a_calibration_s_margins_pass_in_four_of_five() -> None:
    """In about 0.65 of these where the spread counts as known."""
    passed = 0
    for seed in range(150):
        chance = np.random.default_rng([9, seed])
        run, base, new = (timed_run(name, wandering(chance, 4, wander=0.02)) for name in "CAB")
        (held,) = calibrated(run, DEFAULTS, wished=0.05)
        rules = GateRules((MarginRule("tpot_s", held.margin),))
        passed += compare_runs(base, new, rules).verdict == "pass"
    assert 0.73 <= passed / 150 <= 0.92
