"""The rules of a pipeline: who waits, who leaves and who is slow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from backends.tetris.pipeline.fusion import FusionQueue
from backends.tetris.pipeline.leaving import LeaveDecisions, drawn, log_from, logged
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import BatchClocks, kind_of
from backends.tetris.profile import profile_from
from harness.core.errors import UserError

PROFILE: dict[str, Any] = {
    "layers": 4,
    "batch": 4,
    "survival": [1, 1, 0.5, 0.5, 0.25],
    "layer_ms": {"V100": [1, 2, 3, 4]},
    "ramp_ms": {"V100": 0.5},
    "transfer_ms": 0.4,
    "fill_ms": [0.1, 0.1, 0.2, 0.2],
    "time_share": {"V100": {"1": 0.4, "3": 0.8, "4": 1.0}},
}


def test_a_queue_fuses_whole_batches_in_order() -> None:
    queue = FusionQueue(3, ahead_ms=10)
    queue.push([5, 6], [100, 101], now_ms=0)
    assert not queue.ready(0)
    queue.push([7, 8], [102, 103], now_ms=1)
    assert queue.ready(1)
    assert queue.take(1) == [5, 6, 7]
    assert len(queue) == 1
    assert not queue.ready(1)
    assert queue.flush_ms == 93


def test_the_oldest_deadline_flushes_a_queue_in_time() -> None:
    queue = FusionQueue(8, ahead_ms=10)
    queue.push([1, 2], [60, 50], now_ms=0)
    assert queue.flush_ms == 40
    assert not queue.ready(39)
    assert queue.ready(40)
    assert queue.ready(45)  # no device was free before
    assert queue.take(45) == [1, 2]
    assert not queue.ready(45)


def test_who_is_late_already_hurries_nobody() -> None:
    queue = FusionQueue(8, ahead_ms=10)
    queue.push([1], [15], now_ms=6)
    assert queue.flush_ms == math.inf
    queue.push([2], [100], now_ms=6)
    assert queue.flush_ms == 90
    assert not queue.ready(7)


def test_nobody_waits_longer_than_a_queue_has_patience() -> None:
    """However much time the deadlines would leave; one of them that is near still hurries it."""
    queue = FusionQueue(8, ahead_ms=10, wait_ms=20)
    queue.push([1], [1e9], now_ms=5)
    assert queue.flush_ms == 25
    queue.push([2], [30], now_ms=6)
    assert queue.flush_ms == 20
    assert not queue.ready(19)
    assert queue.ready(20)
    assert queue.take(20) == [1, 2]
    queue.push([3], [1e9], now_ms=40)
    assert (queue.flush_ms, queue.ready(59), queue.ready(60)) == (60, False, True)


def test_who_is_left_behind_a_whole_batch_keeps_its_patience() -> None:
    """Ten waited 20 ms while their device was at work; the two that are left go at once."""
    queue = FusionQueue(8, ahead_ms=10, wait_ms=20)
    queue.push(range(10), [1e9] * 10, now_ms=0)
    assert queue.take(50) == list(range(8))
    assert queue.flush_ms == 20
    assert queue.ready(50)
    assert queue.take(50) == [8, 9]
    assert not queue.ready(1e9)


def test_who_is_late_has_patience_like_everybody() -> None:
    queue = FusionQueue(8, ahead_ms=10, wait_ms=20)
    queue.push([1], [5], now_ms=100)
    assert (queue.flush_ms, queue.ready(119), queue.ready(120)) == (120, False, True)
    assert queue.remove_all() == [1]
    queue.push([2], [1e9], now_ms=200)
    assert queue.flush_ms == 220


def test_ramps_and_what_is_before_the_first_layer_have_curves_of_their_own() -> None:
    told = {
        "ramp_share": {"V100": {"1": 0.8, "4": 1}},
        "stage_ms": {"V100": {"1": 2, "4": 5}},
        "enter_ms": {"V100": {"1": 10, "4": 40}},
        "batch_ms": {"V100": {"4": 100}},
    }
    times = StageTimes(profile_from({**PROFILE, **told}, "p"))
    assert times.ramp_ms("V100", 4) == pytest.approx(0.5)
    assert times.ramp_ms("V100", 1) == pytest.approx(0.4)
    assert times.layers_ms("V100", 0, 2, 1) == pytest.approx(0.4 * 3 + 0.4)
    assert times.layers_ms("V100", 2, 4, 1) == pytest.approx(0.4 * 7)
    assert times.stage_ms("V100", 0, 2, 1) == pytest.approx(0.4 * 3 + 0.4 + 2 + 10)
    assert times.stage_ms("V100", 2, 4, 4) == pytest.approx(7 + 5)
    # what a whole process has before the first layer is in `batch_ms`
    assert times.stage_ms("V100", 0, 4, 4) == pytest.approx(10 + 100)


def test_a_stage_takes_its_share_of_a_whole_batch() -> None:
    times = StageTimes(profile_from(PROFILE, "p"))
    assert times.stage_ms("V100", 0, 2, 4) == pytest.approx(3.5)
    assert times.stage_ms("V100", 2, 4, 4) == pytest.approx(7)
    assert times.stage_ms("V100", 2, 4, 2) == pytest.approx(0.6 * 7)
    assert times.fill_ms("V100", 2, 4, 2) == pytest.approx(0.2)
    unlike = {**PROFILE, "transfer_ms": [8, 4, 0]}
    survivors = StageTimes(profile_from({k: v for k, v in unlike.items() if k != "fill_ms"}, "p"))
    assert [survivors.transfer_ms(cut, 2) for cut in (1, 2, 3)] == pytest.approx([4, 2, 0])


def test_who_has_left_crosses_a_cut_behind_which_it_is_filled() -> None:
    times = StageTimes(profile_from({**PROFILE, "transfer_ms": [8, 4, 2]}, "p"))
    alive = times.profile.survival
    everyone = [ms * 2 / 4 / alive[cut] for cut, ms in ((1, 8), (2, 4), (3, 2))]
    assert [times.transfer_ms(cut, 2) for cut in (1, 2, 3)] == pytest.approx(everyone)
    early = {**PROFILE, "transfer_ms": [8, 4, 2], "fill_ms": [0, 0.5, 0, 0]}
    times = StageTimes(profile_from(early, "p"))
    assert times.transfer_ms(1, 2) == pytest.approx(4 / alive[1])
    assert times.transfer_ms(2, 2) == pytest.approx(2), "nothing is filled behind this cut"


def test_fewer_inputs_must_have_been_measured() -> None:
    told = {key: value for key, value in PROFILE.items() if key != "time_share"}
    with pytest.raises(UserError, match=r"^p\.json: the key 'time_share' is missing"):
        StageTimes(profile_from(told, "p"), "p.json")


@pytest.mark.parametrize(
    ("share", "told"),
    [
        ({"1": 0.4, "3": 1.0}, "expected to end with 1 at the batch of 4, found 1 at 3"),
        ({"1": 0.4, "4": 0.9}, "expected to end with 1 at the batch of 4, found 0.9 at 4"),
        ({"1": 0.4, "2": 0.3, "4": 1}, "more inputs never take less time, found 0.4 at 1 and 0.3"),
        ({"one": 1}, "expected a mapping of numbers of inputs to shares of time"),
        ({"9" * 5_000: 1}, "expected a mapping of numbers of inputs to shares of time"),
        ({"0": 1, "4": 1}, "expected different numbers of inputs of 1 or more"),
    ],
)
def test_shares_that_cannot_be_are_refused(share: dict[str, float], told: str) -> None:
    with pytest.raises(UserError, match=r"^p: time_share of 'V100': ") as raised:
        profile_from({**PROFILE, "time_share": {"V100": share}}, "p")
    assert told in str(raised.value)


def test_drawn_inputs_leave_as_survival_says_whatever_the_cuts() -> None:
    decisions = drawn(PROFILE["survival"], 20_000, seed=1)
    assert decisions.alive() == pytest.approx([1, 1, 0.5, 0.5, 0.5], abs=0.02)
    assert set(decisions.depths().tolist()) == {2, 4}
    cut = decisions.depths([3])
    assert set(cut.tolist()) == {3, 4}
    assert (cut == 3).mean() == pytest.approx(0.5, abs=0.02)
    assert set(decisions.depths([]).tolist()) == {4}


def test_a_log_is_replayed_with_the_ramps_that_are_on() -> None:
    told = {
        "after": [1, 2, 3],
        "confidence": [[0.9, 0.2, 0.3], [0.1, 0.8, None], [0.1, 0.1, 0.1]],
        "leaves": [[True, False, False], [False, True, False], [False, False, False]],
    }
    decisions = logged(log_from(told, "t", 4), 4, 4)
    assert decisions.depths().tolist() == [1, 2, 4, 1]
    assert decisions.depths([2]).tolist() == [4, 2, 4, 4]
    assert decisions.depths([3]).tolist() == [4, 3, 4, 4]


@pytest.mark.parametrize(
    "told",
    [
        [],
        {"after": [1], "confidence": [[0.5]]},
        {"after": [2, 1], "confidence": [[0.5, 0.5]], "leaves": [[False, False]]},
        {"after": [1], "confidence": [], "leaves": []},
        {"after": [9], "confidence": [[0.5]], "leaves": [[False]]},
        {"after": [1], "confidence": [["x"]], "leaves": [[False]]},
    ],
)
def test_what_is_no_log_is_refused(told: Any) -> None:
    with pytest.raises(UserError, match=r"^t: "):
        log_from(told, "t", 4)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"after": [], "confidence": [[]], "leaves": [[]]}, "after: expected a list of layers"),
        ({"after": [1e400]}, "after: expected a list of layers"),
        ({"after": [1.9]}, "after: expected a list of layers"),
        ({"after": ["3"]}, "after: expected a list of layers"),
        ({"after": [True]}, "after: expected a list of layers"),
        ({"after": [0]}, "after: expected ascending ramps behind 1 to 4"),
        ({"after": [5]}, "after: expected ascending ramps behind 1 to 4"),
        ({"after": 3}, "after: expected a list of layers"),
        ({"leaves": [["false"]]}, "leaves[0]: expected a list of 1 true or false"),
        ({"leaves": [[0.2]]}, "leaves[0]: expected a list of 1 true or false"),
        ({"leaves": [[False, False]]}, "leaves[0]: expected a list of 1 true or false"),
        ({"leaves": [[False], [False]]}, "found 1 rows of confidence and 2 of leaves"),
        ({"leaves": {}}, "leaves: expected a list of rows"),
        ({"confidence": [0.5]}, "confidence[0]: expected a list of 1 numbers or null"),
        ({"confidence": [["0.5"]]}, "confidence[0]: expected a list of 1 numbers or null"),
        ({"confidence": [[True]]}, "confidence[0]: expected a list of 1 numbers or null"),
        ({"confidence": [[math.nan]], "leaves": [[True]]}, "NaN is no confidence"),
        ({"confidence": [[10**400]]}, "no log of ramps: int too large"),
        ({"confidence": [[None]]}, "a ramp was not asked about an input that had not left"),
    ],
)
def test_a_log_of_other_types_is_refused(changed: dict[str, Any], told: str) -> None:
    log = {"after": [1], "confidence": [[0.5]], "leaves": [[False]], **changed}
    with pytest.raises(UserError, match=r"^t: ") as raised:
        log_from(log, "t", 4)
    assert told in str(raised.value)


def test_parts_of_a_workload_are_its_inputs() -> None:
    easy, hard = LeaveDecisions(np.ones((3, 3), bool)), LeaveDecisions(np.zeros((2, 3), bool))
    both = easy.then(hard)
    assert both.depths().tolist() == [1, 1, 1, 4, 4]
    assert both.first(2).depths().tolist() == [1, 1]
    assert [part.depths().tolist() for part in both.dealt(2)] == [[1, 1, 4], [1, 4]]


def test_a_device_above_its_stages_median_is_a_straggler() -> None:
    clocks = BatchClocks()
    for _ in range(5):
        for device, ratio in (("A-0", 1.1), ("A-1", 1.0), ("A-2", 1.8), ("B-0", 1.4), ("C-0", 1.7)):
            clocks.add(device, 10 * ratio, 10)
    clocks.add("A-3", 100, 10)  # one batch proves nothing
    stages = {"A-0": 0, "A-1": 0, "A-2": 0, "A-3": 0, "B-0": 1, "C-0": 2}
    assert clocks.stragglers(stages) == {"A-2", "C-0"}
    assert clocks.stragglers({"B-0": 0, "C-0": 0}) == set()
    assert kind_of("A100-80GB-3") == "A100-80GB"


def test_a_slow_batch_is_forgotten_again() -> None:
    clocks = BatchClocks()
    for took in (10, 10, 10, 90, *[10] * 20):
        clocks.add("A-0", took, 10)
    assert clocks.stragglers({"A-0": 0}) == set()
