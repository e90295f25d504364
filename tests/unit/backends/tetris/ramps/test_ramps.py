"""Which ramps are asked and who leaves where, on cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backends.tetris.ramps.readings import RampReading, read
from backends.tetris.ramps.rules import EntropyRule, PatienceRule, RampMemory, SoftmaxRule
from backends.tetris.ramps.wrapper import ExitWrapper

SURE, UNSURE = [4.0, 0.0], [0.1, 0.0]
EVERY = (1, 2, 3, 4, 5)


def said(label: int) -> list[float]:
    """Logits of a ramp that says this label, and is not sure."""
    return [0.1, 0.0] if label == 0 else [0.0, 0.1]


def walk(wrapper: ExitWrapper, rows: dict[int, list[float]]) -> tuple[list[int], RampMemory, int]:
    """One input through five ramps that say these logits: the ramps asked, what is remembered, and
    where it leaves (0: nowhere)."""
    memory, asked = RampMemory(), []
    for layer in EVERY:
        if wrapper.asks(layer) and memory.answer is None:
            asked.append(layer)
            wrapper.judge(layer, [memory], np.array([rows[layer]]))
        if wrapper.leaves(layer, memory):
            return asked, memory, layer
    return asked, memory, 0


def test_a_reading_is_the_softmax_and_its_entropy_in_nats() -> None:
    even, sure, far = read(np.array([[2.0, 2.0], [0.0, math.log(3)], [1000.0, -1000.0]]))
    assert (even.label, even.probability) == (0, 0.5)
    assert even.entropy == pytest.approx(math.log(2))
    assert sure.label == 1
    assert sure.probability == pytest.approx(0.75)
    assert sure.entropy == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert (far.label, far.probability, far.entropy) == (0, 1.0, 0.0)


def test_eight_even_labels_have_ln_8_nats() -> None:
    (even,) = read(np.zeros((1, 8)))
    assert even.entropy == pytest.approx(math.log(8))


def test_entropy_must_be_below_and_a_probability_may_equal_the_threshold() -> None:
    reading, memory = RampReading(0, 0.9, 0.3), RampMemory()
    assert not EntropyRule(0.3).sure(reading, memory)
    assert EntropyRule(0.31).sure(reading, memory)
    assert SoftmaxRule(0.9).sure(reading, memory)
    assert not SoftmaxRule(0.91).sure(reading, memory)
    assert memory == RampMemory()


@pytest.mark.parametrize(
    ("labels", "patience", "at"),
    [
        ([1, 1, 1, 1], 1, 2),
        ([1, 1, 1, 1], 3, 4),
        ([1, 1, 0, 0], 2, None),
        ([0, 1, 1, 1], 2, 4),
        ([1, 0, 1, 0], 1, None),
    ],
    ids=str,
)
def test_patience_counts_repeats_in_a_row(labels: list[int], patience: int, at: int | None) -> None:
    """PABEE's counter: 0 at the first ramp and after each change, one more at each repeat."""
    rule, memory = PatienceRule(patience), RampMemory()
    found = [n for n, label in enumerate(labels, 1) if rule.sure(RampReading(label, 1, 0), memory)]
    assert found[:1] == ([] if at is None else [at])


def test_independent_ramps_inside_a_stage_are_switched_off() -> None:
    rows = {1: SURE, 2: UNSURE, 3: UNSURE, 4: SURE, 5: SURE}
    asked, memory, left = walk(ExitWrapper(EntropyRule(0.2), EVERY, (2, 4)), rows)
    assert (asked, memory.sure_after, left) == ([2, 4], 4, 4)


def test_a_black_box_asks_all_and_keeps_the_first_sure_label() -> None:
    rows = {1: UNSURE, 2: UNSURE, 3: SURE, 4: [0.0, 9.0], 5: SURE}
    wrapper = ExitWrapper(EntropyRule(0.2), EVERY, (2, 4), black_box=True)
    asked, memory, left = walk(wrapper, rows)
    assert (asked, memory.sure_after, left) == ([1, 2, 3], 3, 4)
    assert memory.answer is not None
    assert memory.answer.label == 0


def test_dependent_ramps_run_everywhere_and_the_exit_waits_for_the_stages_end() -> None:
    rows = {layer: said(label) for layer, label in zip(EVERY, (0, 1, 1, 1, 0), strict=True)}
    asked, memory, left = walk(ExitWrapper(PatienceRule(2), EVERY, (2, 5)), rows)
    assert (asked, memory.sure_after, left) == ([1, 2, 3, 4], 4, 5)
    assert memory.answer is not None
    assert memory.answer.label == 1


@pytest.mark.parametrize("ends", [(1, 2, 3, 4, 5), (2, 4), (3,), (5,), ()], ids=str)
def test_labels_of_dependent_ramps_do_not_depend_on_the_cuts(ends: tuple[int, ...]) -> None:
    for number in range(32):
        labels = [number >> bit & 1 for bit in range(5)]
        rows = {layer: said(label) for layer, label in zip(EVERY, labels, strict=True)}
        _, whole, _ = walk(ExitWrapper(PatienceRule(2), EVERY, EVERY), rows)
        _, cut, left = walk(ExitWrapper(PatienceRule(2), EVERY, ends), rows)
        assert (cut.answer, cut.sure_after) == (whole.answer, whole.sure_after)
        later = [end for end in ends if end >= whole.sure_after > 0]
        assert left == (min(later) if later else 0)


def test_counters_travel_so_that_each_input_has_its_own() -> None:
    wrapper, memories = ExitWrapper(PatienceRule(1), (1, 2), (2,)), [RampMemory(), RampMemory()]
    wrapper.judge(1, memories, np.array([said(0), said(1)]))
    wrapper.judge(2, memories, np.array([said(0), said(0)]))
    assert [wrapper.leaves(2, memory) for memory in memories] == [True, False]
    assert [memory.agreed for memory in memories] == [1, 0]


def test_without_a_rule_nothing_is_asked_and_nobody_leaves() -> None:
    wrapper = ExitWrapper(None, EVERY, EVERY, black_box=True)
    assert not any(wrapper.asks(layer) for layer in EVERY)
    assert not wrapper.leaves(2, RampMemory())


def test_a_stage_cannot_end_where_no_ramp_stands() -> None:
    with pytest.raises(ValueError, match="no ramp stands behind layer 4"):
        ExitWrapper(EntropyRule(0.1), (1, 2), (2, 4))
