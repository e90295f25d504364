"""What of a step each of its requests is told."""

from __future__ import annotations

from backends.early_exit.telemetry import Step


def test_each_sequence_learns_where_the_batch_and_it_alone_would_leave() -> None:
    step = Step(["a", "b"], 8, 5, [2, 5], (2, 5))
    first, second = step.counts()
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
    (counts,) = Step(["a"], 8, 8, [8], mixed=True).counts()
    assert counts["mixed_steps"] == 1
    assert not [name for name in counts if name.startswith(("exits_", "own_", "decode_"))]


def test_the_times_of_the_requests_add_up_to_the_step() -> None:
    step = Step(["a", "b", "c"], 8, 4, [4] * 3, check_ns=3000, fill_ns=6000, forward_ns=90_000)
    sums = {name: sum(counts[name] for counts in step.counts())
            for name in ("check_us", "fill_us", "forward_us")}  # fmt: skip
    assert sums == {"check_us": 3.0, "fill_us": 6.0, "forward_us": 90.0}
