"""What counts as a measurement: counts, loads of an engine, exact rows, requests that fail."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from harness.cli.gate.calibrate import _rules, calibrate_gate
from harness.cli.gate.compare import _unsound
from harness.cli.gate.gate_file import read_rules, rules_text
from harness.core.errors import UserError
from results.compare.gate.calibration import calibrated
from results.compare.gate.comparison import compare_runs
from results.compare.gate.margins import GateRules, MarginRule
from results.compare.gate.record_file import write_record
from results.compare.gate.reduced import ReducedRun
from tests.support.results.reduced_runs import (
    a_run,
    cell,
    changed,
    everywhere,
    joined,
    reduced_trial,
    timed_run,
)

TPOT = GateRules((MarginRule("tpot_s", 0.05),))


@pytest.mark.parametrize("errors", [[0.0, 0, 0, 3], [3.0, 0, 0, 0]])
def test_counts_are_told_as_they_are(errors: list[float]) -> None:
    """As ratios to nothing they were "31 times worse", and a mean left zeros out."""
    rules = GateRules((MarginRule("n_errors", 0.0),))
    base = everywhere(a_run(), numbers={"n_errors": 0.0})
    trials = [
        dataclasses.replace(t, numbers={"n_errors": errors[t.repeat]}) for t in a_run("NEW").trials
    ]
    (row,) = compare_runs(base, ReducedRun("NEW", trials), rules).rows
    assert (row.base, row.new, row.worse_by) == (0.0, 0.75, 0.75)
    assert row.verdict == "inconclusive"


def test_a_load_of_an_engine_is_one_measurement() -> None:
    """Counted once a repeat its error was 0: 8% of noise between loads failed one in five."""
    rules = GateRules((MarginRule("setup_s", 0.1),))
    base = everywhere(a_run(), numbers={"setup_s": 20.0})
    new = everywhere(a_run("NEW"), numbers={"setup_s": 23.0})
    (row,) = compare_runs(base, new, rules).rows
    assert (row.verdict, row.repeats) == ("inconclusive", 1)
    assert row.note == "one load of the engine: noise between repeats unknown"
    loads = [20.0, 20.4, 20.2, 19.9]
    sides = [
        ReducedRun(
            "run",
            [dataclasses.replace(t, numbers={"setup_s": k * loads[t.repeat]}) for t in base.trials],
        )
        for k in (1.0, 1.3)
    ]
    (row,) = compare_runs(sides[0], sides[1], rules).rows
    assert (row.verdict, row.repeats) == ("fail", 4)


def test_what_is_known_exactly_takes_nothing_from_the_times() -> None:
    """A file of many scores that no repeat changes finds a slow-down as one without them."""
    base, slow = a_run(), a_run("NEW", slower=0.07, seed=1)
    alone = compare_runs(base, slow, TPOT).rows[0]
    scored = [
        everywhere(run, values={**run.trials[0].values, "exact_match": np.ones(30)})
        for run in (base, slow)
    ]
    both = [
        ReducedRun(
            "run",
            [
                dataclasses.replace(t, values={**t.values, **own.values})
                for t, own in zip(scored[k].trials, run.trials, strict=True)
            ],
        )
        for k, run in enumerate((base, slow))
    ]
    rules = GateRules((*TPOT.rules, MarginRule("quality", 0.01), MarginRule("consistency", 0.01)))
    found = {row.metric: row for row in compare_runs(both[0], both[1], rules).rows}
    assert set(found) >= {"tpot_s", "exact_match", "consistency"}
    assert found["tpot_s"].p_beyond == alone.p_beyond
    assert found["tpot_s"].detectable == alone.detectable
    assert found["exact_match"].verdict == found["consistency"].verdict == "pass"


@pytest.mark.parametrize("doubt", ["failures", "failures, too-few-samples, prompts-repeated"])
def test_few_requests_that_fail_in_every_repeat_leave_the_other_times(doubt: str) -> None:
    """A cell with one such request in both runs was inconclusive for ever; with fewer than 100
    answers, of which every trial says so, it still was."""
    sides = []
    for run in (a_run(), a_run("NEW", seed=1)):
        trials = []
        for one in run.trials:
            answers, times = np.array(one.answers), np.array(one.values["tpot_s"])
            answers[0], times[0] = 1, np.nan
            values = {"tpot_s": times}
            trials.append(dataclasses.replace(one, answers=answers, values=values, doubt=doubt))
        sides.append(ReducedRun(run.where, trials))
    assert compare_runs(sides[0], sides[1], TPOT).verdict == "pass"
    late = [everywhere(run, doubt=f"client-late, {doubt}") for run in sides]
    assert compare_runs(late[0], late[1], TPOT).verdict == "inconclusive"


def test_what_is_compared_can_be_stored_and_calibrated_too() -> None:
    """One request that fails in every repeat; and a rule on what an engine's loads share."""
    trials = []
    for one in a_run(repeats=4).trials:
        answers, times = np.array(one.answers), np.array(one.values["tpot_s"])
        answers[0], times[0] = 1, np.nan
        trials.append(
            dataclasses.replace(
                one,
                answers=answers,
                values={"tpot_s": times},
                numbers={"setup_s": 20.0},
                doubt="failures",
            )
        )
    run = ReducedRun("run", trials)
    assert not [*_unsound(run)]
    (told,) = _unsound(everywhere(run, doubt="client-late"))
    assert told.startswith("1 of 1 cells")
    rules = GateRules((*TPOT.rules, MarginRule("setup_s", 0.1)))
    assert [one.metric for one in calibrated(run, rules, 0.05)] == ["tpot_s"]


def test_calibrated_margins_can_be_read(tmp_path: Path) -> None:
    """Few requests with noisy scores hold no margin below 1, which no score can be worse by."""
    trials = [
        dataclasses.replace(one, values={**one.values, "exact_match": score})
        for one, score in zip(
            a_run(repeats=4).trials,
            np.random.default_rng(3).integers(0, 2, (4, 30)).astype(float),
            strict=True,
        )
    ]
    few = [
        dataclasses.replace(
            one,
            ids=one.ids[:3],
            answers=one.answers[:3],
            values={name: values[:3] for name, values in one.values.items()},
        )
        for one in trials
    ]
    rules = GateRules((*TPOT.rules, MarginRule("exact_match", 0.01)))
    for run in (ReducedRun("run", trials), ReducedRun("run", few)):
        held = calibrated(run, rules, 0.05)
        file = tmp_path / "gate.yaml"
        written, beyond = _rules(held, rules)
        assert not beyond
        file.write_text(rules_text(written, 0.05, "of a test"))
        assert {rule.metric for rule in read_rules(file).rules} == {"tpot_s", "exact_match"}


def test_a_calibrated_margin_keeps_its_direction(tmp_path: Path) -> None:
    """Without it the file that was written could not be read."""
    rule = MarginRule("mean_decode_batch", 0.05, direction="larger")
    run = ReducedRun(
        "run",
        [
            dataclasses.replace(t, numbers={"mean_decode_batch": 4 + 0.1 * t.repeat})
            for t in a_run().trials
        ],
    )
    (written,), _ = _rules(calibrated(run, GateRules((rule,)), 0.05), GateRules((rule,)))
    (tmp_path / "gate.yaml").write_text(rules_text([written], 0.05, "of a test"))
    (found,) = read_rules(tmp_path / "gate.yaml").rules
    assert found.direction == "larger"


def test_what_holds_no_margin_is_left_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Margins of 1000% and more were written, and refused as soon as the file was read."""
    wild = timed_run("run", np.repeat([[0.01], [0.03], [0.09]], 20, axis=1))
    monkeypatch.chdir(tmp_path)
    write_record(Path("run"), joined("run", [a_run(), everywhere(wild, cell=cell("wild"))]))
    calibrate_gate(Path("run"))
    assert [rule.backend for rule in read_rules(Path("gate.yaml")).rules if rule.load] == ["fast"]
    told = capsys.readouterr().err
    assert told.startswith("warning: left out: tpot_s of gsm8k, closed c=8, demo: wild holds no")
    write_record(Path("wild"), wild)
    clocked = Path("clocked.yaml")
    clocked.write_text("margins: [{metric: tpot_s, margin: 5%}]")
    with pytest.raises(UserError, match="wild: no margin below 1000% is held"):
        calibrate_gate(Path("wild"), gate_file=clocked)


@pytest.mark.parametrize("slower", [-0.4, 0.6])
def test_answers_of_another_length_are_no_speed_up(slower: float) -> None:
    """Half the answer took half the time, and passed where the time of a token had no rule."""
    rules = GateRules((*TPOT.rules, MarginRule("e2e_s", 0.05), MarginRule("request_per_s", 0.05)))
    base, new = (whole_answers(factor) for factor in (1.0, 1 + slower))
    time, *whole = compare_runs(base, new, rules).rows
    assert time.verdict == "pass"
    assert [row.verdict for row in whole] == ["inconclusive"] * 2
    told = f"NEW's answers are {abs(slower):.1%} {'longer' if slower > 0 else 'shorter'}"
    assert {row.note for row in whole} == {f"{told}: unequal work"}
    few = changed(base, 0, lengths=np.full(30, 101))
    assert compare_runs(base, few, rules).verdict == "pass"
    older = everywhere(base, lengths=None)
    assert {row.note for row in compare_runs(older, new, rules).rows} == {""}


def test_what_is_slower_by_more_than_its_answers_are_longer_fails() -> None:
    rules = GateRules((MarginRule("e2e_s", 0.05),))
    base, longer = whole_answers(1.0), whole_answers(1.03)
    slower = everywhere(longer, values={"e2e_s": 1.5 * longer.trials[0].values["e2e_s"]})
    (row,) = compare_runs(base, slower, rules).rows
    assert row.verdict == "fail"
    assert row.note == "NEW's answers are 3.0% longer: unequal work"


def test_answers_that_flip_now_and_then_are_no_unequal_work() -> None:
    """Their lengths in all differ by over 1% in every other such comparison."""
    draw, verdicts = np.random.default_rng(5), []
    rules = GateRules((MarginRule("e2e_s", 0.2),))
    for _ in range(40):
        told = np.repeat(draw.integers(20, 300, 64)[None], 8, axis=0)
        flipped = draw.random(told.shape) < 0.05
        told[flipped] = draw.integers(20, 300, flipped.sum())
        times = 0.01 * told * draw.lognormal(0, 0.01, told.shape)
        base, new = (
            ReducedRun(
                "run",
                [
                    reduced_trial(n, {"e2e_s": times[n + 4 * side]}, lengths=told[n + 4 * side])
                    for n in range(4)
                ],
            )
            for side in range(2)
        )
        (row,) = compare_runs(base, new, rules).rows
        verdicts.append(row.verdict)
    assert verdicts.count("pass") >= 36


def whole_answers(factor: float) -> ReducedRun:
    """A lossy backend that takes as long as its answers are: 100 tokens times a factor."""
    return ReducedRun(
        "run",
        [
            dataclasses.replace(
                trial,
                lossless=False,
                lengths=np.full(30, round(100 * factor)),
                values={**trial.values, "e2e_s": factor * trial.values["tpot_s"]},
                numbers={"request_per_s": 1 / factor + 1e-3 * trial.repeat},
            )
            for trial in a_run().trials
        ],
    )


def test_repeats_that_only_one_side_has_are_told() -> None:
    few = ReducedRun("NEW", a_run("NEW").trials[:2])
    assert "4 repeats in BASE, 2 in NEW: " in compare_runs(a_run(), few, TPOT).notes[0]
    lost = changed(a_run(), 1, status="oom")
    assert "1 of 4 trials of BASE did not end well: " in compare_runs(lost, a_run(), TPOT).notes[0]
