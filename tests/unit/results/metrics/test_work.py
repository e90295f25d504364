from __future__ import annotations

import pytest

from backends.early_exit.plugin.telemetry import DecodedStep
from results.metrics import work
from results.metrics.arrays import from_record
from tests.support.results.make_trials import decoded, generation, record, trial


def rates(*telemetry: dict[str, float]) -> dict[str, float | None]:
    generations = [
        generation(f"r{i}", [1, 2, 3], [1, 3, 2], telemetry=t) for i, t in enumerate(telemetry)
    ]
    lost = generation("lost", [1], finished="error", telemetry=dict.fromkeys(telemetry[0], 1000.0))
    found = from_record(record(trial(), [*generations, lost]))
    return work.rates(work.totals(found))


def test_rates_are_quotients_of_sums_over_completed_requests() -> None:
    found = rates(
        {"drafted": 8.0, "accepted": 3.0, "steps": 2.0},
        {"drafted": 4.0, "accepted": 3.0, "steps": 3.0},
    )
    assert found["acceptance_rate"] == 0.5
    assert found["rejection_rate"] == 0.5
    assert found["drafts_per_step"] == 12 / 5
    assert found["tokens_per_step"] == 10 / 5
    assert found["early_exit_rate"] is None
    assert found["early_prediction_rate"] is None
    assert found["full_passes_per_token"] is None


def test_step_tokens_win_over_the_count_of_later_tokens() -> None:
    assert rates({"steps": 2.0, "step_tokens": 7.0})["tokens_per_step"] == 3.5


def test_early_exit_and_full_passes() -> None:
    found = rates({"layers_run": 30.0, "layers_skipped": 10.0, "layers_total": 40.0})
    assert found["early_exit_rate"] == 0.25
    assert found["full_passes_per_token"] == 0.75


def test_early_predictions_share_the_steps_with_full_passes() -> None:
    found = rates({"early_predictions": 5.0, "steps": 1.0, "drafted": 5.0, "accepted": 4.0})
    assert found["early_prediction_rate"] == pytest.approx(5 / 6)
    assert found["rejection_rate"] == pytest.approx(1 / 5)


def test_zero_drafts_are_undefined_not_zero() -> None:
    found = rates({"drafted": 0.0, "accepted": 0.0, "steps": 5.0})
    assert found["acceptance_rate"] is None
    assert found["rejection_rate"] is None
    assert found["drafts_per_step"] == 0
    assert found["tokens_per_step"] == 1.0


def test_no_telemetry_gives_every_name_with_none() -> None:
    found = from_record(record(trial(), [generation("a", [1, 2])]))
    assert set(work.rates(work.totals(found)).values()) == {None}


def test_margins_are_not_counts() -> None:
    told = {"steps": 1.0, "top2_margin@3": 0.1}
    found = from_record(record(trial(), [generation("a", [1, 2], telemetry=told)]))
    assert work.totals(found) == {"steps": 1.0, "step_tokens": 1.0}


def test_exits_by_layer_are_sums_in_the_order_of_the_layers() -> None:
    one = {"checks_layer_4": 9.0, "exits_layer_4": 3.0, "accepted_layer_4": 2.0}
    two = {"checks_layer_10": 5.0, "checks_layer_4": 1.0, "exits_layer_x": 7.0}
    generations = [generation(f"r{i}", [1, 2], telemetry=t) for i, t in enumerate((one, two))]
    found = work.exits_by_layer(work.totals(from_record(record(trial(), generations))))
    assert found == {
        "4": {"checks": 10.0, "exits": 3.0, "accepted": 2.0},
        "10": {"checks": 5.0, "exits": 0.0, "accepted": 0.0},
    }
    assert found is not None
    assert list(found) == ["4", "10"]
    assert work.exits_by_layer({"steps": 3.0}) is None


def test_trials_add_up_by_layer() -> None:
    part = {"4": {"checks": 2.0, "exits": 1.0, "accepted": 1.0}}
    other = {"8": {"checks": 1.0, "exits": 1.0, "accepted": 0.0}}
    found = work.added([part, None, part, other])
    assert found == {"4": {"checks": 4.0, "exits": 2.0, "accepted": 2.0}, **other}
    assert work.added([None]) is None


def batch_rates(*steps: DecodedStep) -> tuple[dict[str, float | None], dict[str, float]]:
    sums = work.totals(from_record(record(trial(), decoded(steps))))
    return work.rates(sums), sums


def test_a_batch_that_leaves_together_is_counted_once_for_each_sequence() -> None:
    """Steps of 3 and 1 sequences, and one of 2 that also reads a prompt, of a model of 8 layers."""
    found, sums = batch_rates(
        DecodedStep(["a", "b", "c"], 8, 6, [2, 6, 4], (2, 4, 6)),
        DecodedStep(["a"], 8, 2, [2], (2,)),
        DecodedStep(["a", "b"], 8, 8, [8, 8], mixed=True),
    )
    assert found["model_layers"] == 8
    assert found["mean_exit_layer"] == (3 * 6 + 2 + 2 * 8) / 6
    assert found["early_exit_rate"] == pytest.approx((3 * 2 + 6) / 48)
    assert found["early_exit_rate_own"] == pytest.approx((6 + 2 + 4 + 6) / 48)
    assert found["full_passes_per_token"] == pytest.approx(1 - (3 * 2 + 6) / 48)
    assert found["mean_decode_batch"] == (3 * 3 + 1 + 2 * 2) / 6
    assert found["mixed_step_share"] == pytest.approx(2 / 6)
    assert found["tokens_per_step"] == 1
    assert found["early_prediction_rate"] is None
    assert (found["check_time_share"], found["fill_time_share"]) == (None, None)
    assert work.exits_by_layer(sums) == {
        "2": {"checks": 4, "exits": 1, "own_exits": 2},
        "4": {"checks": 3, "exits": 0, "own_exits": 1},
        "6": {"checks": 3, "exits": 3, "own_exits": 1},
    }
    assert work.exits_by_batch(sums) == {
        "1": {"steps": 1, "layers": 2},
        "3": {"steps": 1, "layers": 6},
    }


def test_static_half_skips_half_as_the_paper_counts_it() -> None:
    found, _ = batch_rates(*(DecodedStep(["a", "b"], 8, 4, [4, 4]) for _ in range(5)))
    assert found["early_exit_rate"] == 0.5
    assert found["early_exit_rate_own"] == 0.5


def test_times_of_steps_are_shares_of_the_forward_pass() -> None:
    steps = [
        DecodedStep(["a", "b"], 8, 4, [4, 4], (4,), check_ns=300, fill_ns=100, forward_ns=1000),
        DecodedStep(["b"], 8, 8, [8], (4,), check_ns=200, fill_ns=0, forward_ns=1000),
    ]
    found, sums = batch_rates(*steps)
    assert sums["forward_us"] == pytest.approx(2.0), "a step's time is shared among its sequences"
    assert found["check_time_share"] == pytest.approx(0.25)
    assert found["fill_time_share"] == pytest.approx(0.05)


def test_other_backends_have_no_batch_metrics() -> None:
    found = rates({"steps": 4.0, "layers_run": 32.0, "layers_total": 32.0})
    for name in ("model_layers", "mean_exit_layer", "early_exit_rate_own", "mean_decode_batch"):
        assert found[name] is None
    assert found["mixed_step_share"] is None
    assert work.exits_by_batch({"steps": 4.0}) is None


def test_a_count_that_only_failed_requests_have_is_no_zero() -> None:
    """Else a backend that drafts nothing would have an acceptance rate of its failures."""
    fine = generation("a", [1, 2], telemetry={"steps": 1.0})
    lost = generation("b", [1], finished="error", telemetry={"drafted": 4.0, "steps": 9.0})
    assert work.totals(from_record(record(trial(), [fine, lost]))) == {
        "steps": 1.0,
        "step_tokens": 1.0,
    }
