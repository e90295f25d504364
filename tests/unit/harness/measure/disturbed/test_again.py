"""What is measured again: with what it is compared with, once, within its share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from harness.core.names import DISTURBANCES, STAND_IN, repeat_label
from harness.core.nouns import Load, Model, Trial, TrialRecord, Validity, Workload
from harness.measure.again import AgainPlan, durations, plan, state
from results.compare.reasons import PASSING

NOISY = Validity(False, ("machine-noisy: others", "too-few-samples: 6 answers"))
CLIPPED = Validity(False, ("machine-noisy: others", "output-clipped: 1 of 2 answers"))
SOUND = Validity(True, ("too-few-samples: 6 answers say nothing about p99",))
NAMES = ("vllm", "autoregressive", "fast", "other")


def make(backend: str, repeat: int = 0, load: int = 1, **options: str) -> Trial:
    return Trial(
        backend=backend,
        options=options,
        model=Model("demo"),
        workload=Workload("gsm8k"),
        load=Load("closed", concurrency=load),
        requests=4,
        max_new_tokens=8,
        repeat=repeat,
    )


TRIALS = [make(name, repeat, load) for repeat in (0, 1) for load in (1, 8) for name in NAMES]


class Records:
    """A trial takes 10 s, and loading 1 s of it."""

    def __init__(self) -> None:
        self.by_key: dict[str, TrialRecord] = {}

    def add(self, trial: Trial, verdict: Validity = SOUND, status: str = "ok") -> None:
        begun = {"invocation": "a", "since_invocation_s": 10.0 * len(self.by_key)}
        key = trial.key("")
        self.by_key[key] = TrialRecord(key, trial, begun, status, validity=verdict, setup_s=1.0)  # type: ignore[arg-type]

    def of(self, trial: Trial) -> TrialRecord | None:
        return self.by_key.get(trial.key(""))


def planned(
    disturbed: Iterable[Trial], share: float = 1.0, verdict: Validity = NOISY
) -> tuple[AgainPlan, Records]:
    records, keys = Records(), {trial.key("") for trial in disturbed}
    for trial in TRIALS:
        records.add(trial, verdict if trial.key("") in keys else SOUND)
    return plan(TRIALS, records.of, ("vllm", "autoregressive"), share), records


def names(found: AgainPlan) -> list[tuple[str, int, str]]:
    return [(t.backend, t.repeat - STAND_IN, t.load.label()) for t in found.trials]


def test_a_disturbed_trial_goes_with_what_it_is_compared_with() -> None:
    found, _ = planned([make("fast", 1, 8)])
    load = make("fast", 1, 8).load.label()
    assert names(found) == [(name, 1, load) for name in ("vllm", "autoregressive", "fast")]
    assert (found.disturbed, found.chosen) == (1, 1)
    assert found.budget_s == pytest.approx(160)


@pytest.mark.parametrize("name", ["vllm", "autoregressive"])
def test_a_disturbed_reference_takes_its_whole_repeat_along(name: str) -> None:
    found, _ = planned([make(name, 0, 1)])
    assert [backend for backend, _, _ in names(found)] == list(NAMES)


def test_another_variant_of_the_reference_is_no_reference() -> None:
    records = Records()
    trials = [make("vllm"), make("vllm", block="8"), make("fast")]
    for trial, verdict in zip(trials, (SOUND, NOISY, SOUND), strict=True):
        records.add(trial, verdict)
    found = plan(trials, records.of, ("vllm",), 1.0)
    assert [dict(t.options) for t in found.trials] == [{}, {"block": "8"}]


def test_a_share_buys_the_cheapest_first() -> None:
    """16 trials of 10 s: a fifth is 32 s, and three trials with their engines cost 33."""
    hurt = [make("fast", 1, 1)]
    assert planned(hurt, share=0.2)[0].trials == ()
    assert planned(hurt, share=0.2)[0].disturbed == 1
    assert len(planned(hurt, share=0.21)[0].trials) == 3
    both = [make("vllm", 0, 1), make("fast", 1, 1)]
    assert {repeat for _, repeat, _ in names(planned(both, share=0.3)[0])} == {1}
    assert planned(both, share=0.3)[0].chosen == 1
    assert planned(hurt, share=0.0)[0].trials == ()


@pytest.mark.parametrize(
    ("reload", "repeat", "price_s"), [(None, 0, 30), (None, 1, 33), (True, 0, 30), (True, 1, 30)]
)
def test_loading_is_paid_for_once(reload: bool | None, repeat: int, price_s: int) -> None:
    """The first trial of an engine took 10 s with it; where engines are loaded anew each repeat has
    such trials."""
    trials, records = [replace(trial, reload=reload) for trial in TRIALS], Records()
    hurt = replace(make("fast", repeat), reload=reload)
    for trial in trials:
        records.add(trial, NOISY if trial == hurt else SOUND)
    for more_s, chosen in ((0.1, 1), (-0.1, 0)):
        share = (price_s + more_s) / 160
        assert plan(trials, records.of, ("vllm", "autoregressive"), share).chosen == chosen


def test_engines_that_are_loaded_cost_no_loading() -> None:
    """Three trials of 10 s each, and 1 s for each engine."""
    _, records = planned([make("fast", 1, 8)])
    compared = ("vllm", "autoregressive")
    loaded = {make(name).engine_key() for name in (*compared, "fast")}
    just = 30.0 / 160
    assert not plan(TRIALS, records.of, compared, just).trials
    assert len(plan(TRIALS, records.of, compared, just, loaded).trials) == 3
    assert not plan(TRIALS, records.of, compared, just, {make("other").engine_key()}).trials


def test_nothing_is_measured_a_third_time() -> None:
    found, records = planned([make("fast", 1, 8)])
    for trial in found.trials:
        records.add(trial, NOISY)
    again = plan(TRIALS, records.of, ("vllm", "autoregressive"), 1.0)
    assert (again.trials, again.disturbed) == ((), 0)
    assert again.budget_s == pytest.approx(160 - 30)


def test_what_will_not_pass_is_left_alone() -> None:
    assert planned([make("fast")], verdict=CLIPPED)[0].trials == ()
    assert planned([])[0].disturbed == 0
    lost = TrialRecord("k", make("fast"), {}, "failed", validity=NOISY)
    assert (state(lost), state(None)) == ("lost", "lost")


def test_a_failed_trial_does_not_go_along() -> None:
    records = Records()
    records.add(make("vllm"), NOISY)
    records.add(make("fast"), status="failed")
    records.add(make("other"))
    found = plan([make("vllm"), make("fast"), make("other")], records.of, ("vllm",), 1.0)
    assert [trial.backend for trial in found.trials] == ["vllm", "other"]


def test_durations_end_where_the_next_trial_begins() -> None:
    records = Records()
    for trial in TRIALS[:3]:
        records.add(trial)
    found = durations(list(records.by_key.values()))
    assert list(found.values()) == [10.0, 10.0, 10.0]
    assert durations([]) == {}


def test_reasons_that_pass_are_known_alike_to_both_sides() -> None:
    """The sweep measures again what results do without; pairs apart are no fault of a trial."""
    assert set(DISTURBANCES) == PASSING - {"pairs-apart", "native-pairs-apart"}


def test_the_number_of_a_repeat_in_words() -> None:
    assert [repeat_label(n) for n in (0, 2, STAND_IN, STAND_IN + 2)] == [
        *("0", "2", "0 again", "2 again")
    ]


def test_too_few_requests_for_a_median_are_not_measured_again() -> None:
    few = "too-few-samples: 4 answers say nothing about p50, p95, p99 (p50 needs 5)"
    records = Records()
    records.add(TRIALS[2], Validity(False, ("machine-noisy: others", few)))
    assert state(records.of(TRIALS[2])) == "lost"
    records.add(TRIALS[3], NOISY)
    assert state(records.of(TRIALS[3])) == "disturbed"
