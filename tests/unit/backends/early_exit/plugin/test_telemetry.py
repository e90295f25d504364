"""What of a step each of its requests is told."""

from __future__ import annotations

from backends.early_exit.plugin.telemetry import DecodedStep, StepLog, summed


def test_each_sequence_learns_where_the_batch_and_it_alone_would_leave() -> None:
    step = DecodedStep(["a", "b"], 8, 5, [2, 5], (2, 5))
    first, second = (summed([part]) for part in step.parts())
    assert first == {
        "steps": 1,
        "layers_run": 5,
        "layers_skipped": 3,
        "layers_total": 8,
        "layers_needed": 2,
        "batch_rows": 2,
        "checks_layer_2": 1,
        "checks_layer_5": 1,
        "exits_layer_5": 1,
        "own_exits_layer_2": 1,
        "decode_steps_batch_2": 1,
        "decode_layers_batch_2": 5,
    }
    assert second["layers_needed"] == 5
    assert "own_exits_layer_2" not in second


def test_full_depth_is_no_exit_and_a_mixed_step_no_decode_step() -> None:
    counts = summed(DecodedStep(["a"], 8, 8, [8], mixed=True).parts())
    assert counts["mixed_steps"] == 1
    assert not [name for name in counts if name.startswith(("exits_", "own_", "decode_"))]


def test_the_times_of_the_requests_add_up_to_the_step() -> None:
    step = DecodedStep(
        ["a", "b", "c"], 8, 4, [4] * 3, check_ns=3000, fill_ns=6000, forward_ns=90_000
    )
    sums = {name: sum(summed([part])[name] for part in step.parts())
            for name in ("check_us", "fill_us", "forward_us")}  # fmt: skip
    assert sums == {"check_us": 3.0, "fill_us": 6.0, "forward_us": 90.0}


def test_a_request_has_the_counts_of_its_own_steps_added_up() -> None:
    log = StepLog()
    log.note(DecodedStep(["a", "b"], 8, 5, [2, 5], (2, 5), forward_ns=8000), ["a", "b"])
    log.note(DecodedStep(["b"], 8, 8, [8], mixed=True, forward_ns=6000), ["b"])
    log.note(DecodedStep(["b", "a"], 8, 5, [5, 5], (2, 5), forward_ns=4000), ["a"])
    found = log.take("b", 2)
    assert (found["steps"], found["layers_run"], found["mixed_steps"]) == (2, 13, 1)
    assert (found["decode_steps_batch_2"], found["forward_us"]) == (1, 10.0)
    assert (found["exits_layer_5"], found["own_exits_layer_5"]) == (1, 1)
    found = log.take("a", 2)
    assert (found["steps"], found["layers_needed"], found["forward_us"]) == (2, 7, 6.0)


def test_what_was_decoded_behind_the_last_token_is_not_counted() -> None:
    log = StepLog()
    for layer in (2, 4, 6):
        log.note(DecodedStep(["a"], 8, layer, [layer]), ["a"])
    assert log.take("a", 2)["layers_run"] == 6
    assert log.take("a", 2) == {}


def test_without_times_none_are_told() -> None:
    assert not [
        name for name in summed(DecodedStep(["a"], 8, 8, [8]).parts()) if name.endswith("_us")
    ]
