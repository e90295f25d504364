"""What is compared, what is refused, and what fails without a test."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from harness.cli.gate.shown import notes_of
from harness.core.errors import UserError
from results.compare.gate.comparison import compare_runs
from results.compare.gate.identity import check_allowed, identity
from results.compare.gate.margins import DEFAULTS, GateRules, MarginRule
from results.compare.gate.quantities import quantities
from results.compare.gate.reduced import ReducedRun
from results.compare.gate.verdicts import holm
from tests.support.results.make_trials import trial
from tests.support.results.reduced_runs import IDENTITY, a_run, cell, changed, everywhere, joined

TPOT = GateRules((MarginRule("tpot_s", 0.05),))


def test_holm_s_adjusted_values_never_fall() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_slower_run_fails_and_says_by_how_much() -> None:
    decision = compare_runs(a_run(), a_run("NEW", slower=0.2, seed=1), TPOT)
    (row,) = decision.rows
    assert decision.verdict == row.verdict == "fail"
    assert row.worse_by == pytest.approx(0.2, abs=0.03)
    assert row.low is not None
    assert row.detectable is not None
    assert 0.05 < row.detectable < 0.2


def test_a_faster_run_passes() -> None:
    assert compare_runs(a_run(), a_run("NEW", slower=-0.2, seed=1), TPOT).verdict == "pass"


def test_the_better_direction_can_be_given() -> None:
    rules = GateRules((MarginRule("tpot_s", 0.05, direction="larger"),))
    assert compare_runs(a_run(), a_run("NEW", slower=-0.2, seed=1), rules).verdict == "fail"


def test_one_repeat_is_inconclusive() -> None:
    decision = compare_runs(a_run(repeats=1), a_run("NEW", slower=0.5, repeats=1), TPOT)
    assert decision.verdict == "inconclusive"
    assert decision.rows[0].note == "one repeat: noise between repeats unknown"


def test_unsound_repeats_are_left_out_and_too_few_sound_ones_say_nothing() -> None:
    base, slow = a_run(), a_run("NEW", slower=0.2, seed=1)
    one = compare_runs(base, changed(slow, 2, doubt="machine-noisy"), TPOT)
    assert (one.verdict, one.rows[0].note) == ("fail", "1 unsound trials left out")
    noisy = everywhere(slow, doubt="machine-noisy")
    none = compare_runs(base, noisy, TPOT)
    assert none.verdict == "inconclusive"
    assert none.rows[0].note == "fewer than two sound repeats (machine-noisy)"
    assert compare_runs(base, noisy, TPOT, ["unsound"]).verdict == "fail"


def test_missing_cells_metrics_and_failed_trials_fail_by_name() -> None:
    other = everywhere(a_run(), cell=cell("slow"))
    both = joined("BASE", [a_run(), other])
    missing = compare_runs(both, a_run("NEW"), TPOT)
    assert missing.verdict == "fail"
    assert missing.missing == ["cell missing in NEW: gsm8k, closed c=8, demo: slow"]
    gone = compare_runs(a_run(), everywhere(a_run("NEW"), values={}), TPOT)
    assert gone.missing == ["metric tpot_s missing in NEW: gsm8k, closed c=8, demo: fast"]
    ended = compare_runs(a_run(), changed(a_run("NEW"), 1, status="timeout"), TPOT)
    assert ended.missing == ["1 of 4 trials ended as timeout: gsm8k, closed c=8, demo: fast"]
    assert ended.verdict == "fail"
    assert [*missing.doubtful, *gone.doubtful, *ended.doubtful] == [cell("slow"), cell(), cell()]
    assert "lacking" not in ended.to_json()


def test_what_failed_in_base_says_nothing_of_new() -> None:
    """A baseline with a broken backend would hide it for ever."""
    both = joined("BASE", [everywhere(a_run(), status="oom"), everywhere(a_run(), cell=cell("b"))])
    again = joined("NEW", [a_run("NEW"), everywhere(a_run("NEW"), cell=cell("b"))])
    decision = compare_runs(both, again, TPOT)
    assert decision.verdict == "inconclusive"
    failed, sound = decision.rows
    assert (failed.verdict, failed.note) == ("inconclusive", "no trial of BASE ended well")
    assert sound.verdict == "pass"
    assert json.loads(json.dumps(decision.to_json(), allow_nan=False))["rows"][0]["low"] is None
    assert failed.worse_by is None


def test_a_metric_that_base_lost_is_told() -> None:
    decision = compare_runs(everywhere(a_run(), values={}), a_run("NEW"), DEFAULTS)
    assert decision.notes == ["no tpot_s in BASE, not gated: gsm8k, closed c=8, demo: fast"]


@pytest.mark.parametrize(("failed", "verdict"), [(15, "fail"), (1, "pass")])
def test_requests_that_fail_are_no_improvement(failed: int, verdict: str) -> None:
    """The longest ones: those that are left are quicker, and their scores better. One of 120 is
    within what may happen."""
    slow = a_run("NEW")
    answers, times = np.array(slow.trials[0].answers), np.array(slow.trials[0].values["tpot_s"])
    answers[:failed], times[:failed] = 1, np.nan
    values = {**slow.trials[0].values, "tpot_s": times}
    changed_one = changed(slow, 0, answers=answers, values=values, doubt="failures")
    decision = compare_runs(a_run(), changed_one, TPOT)
    assert decision.verdict == verdict
    told = ["12.5% of the requests failed, 0.0% in BASE: gsm8k, closed c=8, demo: fast"]
    assert decision.missing == (told if verdict == "fail" else [])


@pytest.mark.parametrize(
    ("score", "note"),
    [
        (1.0, "no prompt's score differs, which shows nothing of other prompts"),
        (0.0, "BASE scores no more than the margin: nothing to lose"),
    ],
)
def test_scores_that_no_repeat_changes_are_of_these_prompts_alone(score: float, note: str) -> None:
    rules = GateRules((MarginRule("quality", 0.01),))
    scores = {"exact_match": np.full(8, score)}
    ids, answers = [f"r{n}" for n in range(8)], np.arange(8) + 10
    base = everywhere(a_run(), values=scores, ids=ids, answers=answers)
    both = joined("BASE", [base, everywhere(base, cell=cell("b"))])
    decision = compare_runs(both, both, rules)
    assert [(row.verdict, row.note) for row in decision.rows] == [("pass", note)] * 2
    assert notes_of(decision) == [
        f"gsm8k, closed c=8, demo: fast, exact_match, and 1 more that pass: {note}"
    ]
    for differing in (1, 8):
        others = {"exact_match": np.array([1.0 - score] * differing + [score] * (8 - differing))}
        other = compare_runs(base, everywhere(base, values=others), rules)
        assert [row.note for row in other.rows] == [""]


def test_times_of_a_step_are_measured_by_the_clock() -> None:
    timed = {name for name, one in quantities().items() if one.by_the_clock}
    assert {"step_s", "overhead_share", "tpot_s", "output_tok_per_s"} <= timed
    assert not timed & {"exact_match", "consistency", "acceptance_rate", "output_tokens"}


def test_another_trace_is_another_work() -> None:
    options = {"replay": "traces/mine.parquet"}
    parts = {"a.py": "1", "traces/mine.parquet": "2", "heads/x.safetensors": "3"}
    asked = trial("fast", options=options)
    assert identity(asked, {}, parts)["replay"] == ["2"]
    assert identity(trial("fast"), {}, parts)["replay"] == []
    one, other = ({**IDENTITY, "replay": [digest]} for digest in "ab")
    base, new = (everywhere(a_run(n), identity=i) for n, i in (("BASE", one), ("NEW", other)))
    with pytest.raises(UserError, match="they differ in replay"):
        compare_runs(base, new, TPOT)
    older = {name: value for name, value in IDENTITY.items() if name != "replay"}
    compare_runs(everywhere(a_run(), identity=older), new, TPOT)


def test_another_duration_is_another_work() -> None:
    asked = dataclasses.replace(trial("fast"), duration_s=60.0)
    assert identity(asked, {}, {})["duration_s"] == 60.0
    base, new = (everywhere(a_run(), identity={**IDENTITY, "duration_s": s}) for s in (60.0, None))
    with pytest.raises(UserError, match="they differ in duration_s"):
        compare_runs(base, new, TPOT)
    assert compare_runs(base, new, TPOT, check_allowed(["duration_s"])).verdict == "pass"
    older = {name: value for name, value in IDENTITY.items() if name != "duration_s"}
    assert compare_runs(everywhere(a_run(), identity=older), new, TPOT).verdict == "pass"


def test_what_differs_is_refused_by_name_unless_it_is_allowed() -> None:
    differing = {**IDENTITY, "gpu_driver": "550", "model.checksum": "c0ffee"}
    new = everywhere(a_run("NEW", seed=1), identity=differing)
    with pytest.raises(UserError, match=r"differ in gpu_driver \(some gpu_driver / 550\), model"):
        compare_runs(a_run(), new, TPOT)
    allowed = check_allowed(["machine", "model.checksum"])
    decision = compare_runs(a_run(), new, TPOT, allowed)
    assert not decision.paired
    assert decision.notes == ["allowed to differ: gpu_driver, model.checksum"]
    with pytest.raises(UserError, match="unknown field 'gpu_drivers'; did you mean 'gpu_driver'"):
        check_allowed(["gpu_drivers"])


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (["cpu"], "'--allow cpu'"),
        (["cpu", "seed"], "'--allow cpu --allow seed'"),
        (["cpu", "niceness", "packages.vllm"], "'--allow machine'"),
        (["cpu", "niceness", "seed"], "'--allow machine --allow seed'"),
    ],
)
def test_the_advice_of_a_refusal_is_enough(names: list[str], advice: str) -> None:
    """It named the first field, and then the next one."""
    new = everywhere(a_run("NEW", seed=1), identity={**IDENTITY, **dict.fromkeys(names, "other")})
    with pytest.raises(UserError, match=f"{advice} compares them all the same"):
        compare_runs(a_run(), new, TPOT)
    told = advice.strip("'").replace("--allow", "").split()
    compare_runs(a_run(), new, TPOT, check_allowed(told))


def test_other_machines_are_compared_by_cell() -> None:
    new = everywhere(a_run("NEW", slower=0.0, seed=1), identity={**IDENTITY, "cpu": "other"})
    (row,) = compare_runs(a_run(), new, TPOT, ["cpu"]).rows
    assert row.verdict != "fail"
    paired = compare_runs(a_run(), a_run("NEW", seed=1), TPOT).rows[0]
    assert row.high is not None
    assert paired.high is not None
    assert row.high > paired.high


@pytest.mark.parametrize(("errors", "verdict"), [(0.0, "pass"), (2.0, "fail")])
def test_counts_of_nothing_are_compared_on_other_machines_too(errors: float, verdict: str) -> None:
    rules = GateRules((MarginRule("n_errors", 0.0),))
    base = everywhere(a_run(), numbers={"n_errors": 0.0})
    other = {**IDENTITY, "gpu_driver": "550"}
    new = everywhere(a_run("NEW"), numbers={"n_errors": errors}, identity=other)
    decision = compare_runs(base, new, rules, check_allowed(["machine"]))
    assert not decision.paired
    assert decision.verdict == verdict
    assert (decision.rows[0].base, decision.rows[0].new) == (0.0, errors)


def test_a_backend_that_no_longer_promises_the_same_text_fails() -> None:
    base, rules = a_run(), GateRules((MarginRule("consistency", 0.01),))
    (row,) = compare_runs(base, everywhere(base, lossless=False), rules).rows
    assert (row.verdict, row.note) == ("fail", "no longer says that it is lossless")
    broken = changed(base, 1, broken_promise="not-lossless: 1 of 30 requests differ")
    (row,) = compare_runs(base, broken, rules).rows
    assert (row.verdict, row.note) == ("fail", "not-lossless: 1 of 30 requests differ")


def test_changed_answers_of_a_lossy_backend_are_set_against_base_s_own_noise() -> None:
    rules = GateRules((MarginRule("consistency", 0.2),))
    base = everywhere(a_run(), lossless=False)
    noisy = []
    for one in base.trials:
        answers = np.array(one.answers)
        answers[one.repeat :: 8] += 1000 + one.repeat
        noisy.append(dataclasses.replace(one, answers=answers))
    run = ReducedRun("BASE", noisy)
    again = [dataclasses.replace(t, answers=np.roll(t.answers, 0) + 0) for t in noisy]
    assert compare_runs(run, ReducedRun("NEW", again), rules).verdict == "pass"
    other = [dataclasses.replace(t, answers=t.answers + 5000) for t in noisy]
    assert compare_runs(run, ReducedRun("NEW", other), rules).verdict == "fail"


def test_lossless_answers_may_change_where_that_is_allowed() -> None:
    base = a_run()
    answers = np.array(base.trials[0].answers)
    answers[3] += 1
    new = changed(base, 0, answers=answers)
    rules = GateRules((MarginRule("consistency", 0.2),))
    assert compare_runs(base, new, rules).verdict == "fail"
    assert compare_runs(base, new, rules, ["answers"]).verdict == "pass"


def test_a_request_that_no_longer_completes_is_a_changed_answer() -> None:
    base = a_run()
    answers = np.array(base.trials[0].answers)
    answers[3] = 1
    new = changed(base, 0, answers=answers)
    assert compare_runs(base, new, GateRules((MarginRule("consistency", 0.2),))).verdict == "fail"


def test_replayed_answers_are_not_compared() -> None:
    decision = compare_runs(
        everywhere(a_run(), replayed=True), everywhere(a_run(), replayed=True), DEFAULTS
    )
    assert [row.metric for row in decision.rows] == ["tpot_s"]


def test_rules_about_nothing_are_refused() -> None:
    for rule, words in (
        (MarginRule("tpot_s", 0.1, workload="gsm9k"), "no cell has the workload 'gsm9k'; did you"),
        (MarginRule("ttft_s", 0.1), "no trial of BASE has the metric 'ttft_s'"),
        (MarginRule("quality", 0.1), "no trial of BASE has the metric 'quality'"),
    ):
        with pytest.raises(UserError, match=words):
            compare_runs(a_run(), a_run(), GateRules((rule,), where="gate.yaml"))


def test_a_rule_whose_cells_lack_its_metric_is_refused() -> None:
    """Though others have it."""
    bare = everywhere(a_run(), cell=cell("bare"), values={})
    rule = MarginRule("tpot_s", 0.1, backend="bare")
    words = "no trial of BASE has the metric 'tpot_s' in the cells of its rule"
    both = joined("BASE", [a_run(), bare])
    with pytest.raises(UserError, match=words):
        compare_runs(both, both, GateRules((rule,), where="gate.yaml"))


def test_the_later_rule_holds() -> None:
    rules = GateRules((MarginRule("tpot_s", 0.05), MarginRule("tpot_s", 0.5, backend="fast")))
    assert compare_runs(a_run(), a_run("NEW", slower=0.2, seed=1), rules).verdict == "pass"


def test_a_trial_that_is_there_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"repeat 0 of .* is there twice"):
        compare_runs(joined("BASE", [a_run(), a_run()]), a_run(), TPOT)
