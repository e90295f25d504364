"""When an iteration ends early: thresholds, decays, layers, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from backends.early_exit.policy import CONFIDENT, ExitPolicy, default_layers, make_policy
from harness.core.errors import UserError


def made(measure: str = "softmax", layers: Any = (2, 4), thresholds: Any = 0.9, **more: Any) -> Any:
    return make_policy(
        measure, layers, thresholds, more.get("decay", "none"), more.get("tau", 4.0), 8
    )


def test_one_threshold_holds_for_all_layers_and_a_list_for_each() -> None:
    assert made().thresholds == (0.9, 0.9)
    assert made(thresholds=[0.5, 0.7]).thresholds == (0.5, 0.7)


def test_layers_are_sorted_together_with_their_thresholds() -> None:
    policy = made(layers=[4, 1, 2], thresholds=[0.4, 0.1, 0.2])
    assert policy.layers == (1, 2, 4)
    assert policy.thresholds == (0.1, 0.2, 0.4)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("no exit after layer 8; expected numbers from 1 to 7", {"layers": [8]}),
        ("no exit after layer 0", {"layers": [0]}),
        ("expected numbers from 1 to 7, got True", {"layers": [True]}),
        ("expected numbers from 1 to 7, got '2'", {"layers": ["2"]}),
        ("no exit after layer 9; expected numbers from 1 to 8",
         {"measure": "schedule", "layers": [9]}),
        ("an empty list", {"layers": []}),
        ("names a layer twice", {"layers": [3, 3]}),
        ("leaves at one layer", {"measure": "static", "layers": [2, 3]}),
        ("3 for 2 layers [2, 4]", {"thresholds": [0.1, 0.2, 0.3]}),
    ],
)  # fmt: skip
def test_what_makes_no_policy_is_refused_in_one_line(words: str, given: dict[str, Any]) -> None:
    with pytest.raises(UserError) as refusal:
        made(**given)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_schedule_may_repeat_layers_and_run_whole() -> None:
    policy = made("schedule", [3, 8, 3, 5])
    assert policy.boundaries(8) == (3, 5)
    assert [policy.forced_layer(step, 8) for step in range(6)] == [3, 8, 3, 5, 3, 8]
    assert policy.checks() == {}


def test_static_leaves_at_its_layer_and_never_at_none() -> None:
    assert made("static", [4]).forced_layer(17, 8) == 4
    assert made("never", []).forced_layer(0, 8) == 8
    assert made("never", []).boundaries(8) == ()


@pytest.mark.parametrize("measure", CONFIDENT)
def test_a_layer_that_none_can_pass_is_not_checked_and_told(measure: str) -> None:
    policy = made(measure, thresholds=[1.0, 0.5])
    assert policy.checks() == {4: 0.5}
    assert [w for w in policy.warnings() if "layer 2 can never be passed" in w]


def test_under_a_decay_a_threshold_of_1_can_be_passed() -> None:
    policy = made(thresholds=1.0, decay="calm")
    assert policy.checks() == {2: 1.0, 4: 1.0}
    assert policy.warnings() == []


def test_warnings_go_by_what_a_decay_leaves_of_a_threshold() -> None:
    assert made(thresholds=0.0, decay="calm").warnings() == []
    assert "passed by all but ties" in made(thresholds=0.0, decay="t5x").warnings()[0]
    assert "never be passed" in made(thresholds=1.0, decay="calm", tau=0.0).warnings()[0]


def test_a_threshold_that_all_pass_is_told_but_a_cosine_may_be_below_0() -> None:
    assert "layers 2, 4 is passed by all but ties" in made(thresholds=0.0).warnings()[0]
    assert made("state", thresholds=0.0).warnings() == []


@pytest.mark.parametrize("token", [0, 1, 31, 63])
def test_decays_are_the_two_known_formulas(token: int) -> None:
    fading = math.exp(-4 * token / 64)
    calm, t5x = made(decay="calm"), made(decay="t5x")
    assert calm.threshold(0.8, token, 64) == pytest.approx(min(1, 0.72 + 0.1 * fading))
    assert t5x.threshold(0.8, token, 64) == pytest.approx(0.72 + 0.08 * fading)
    assert made().threshold(0.8, token, 64) == 0.8


def test_calm_is_clipped_and_both_fall() -> None:
    policy = ExitPolicy("softmax", (2,), (1.0,), "calm")
    found = [policy.threshold(1.0, token, 32) for token in range(32)]
    assert found[0] == 1.0
    assert found == sorted(found, reverse=True)
    assert found[-1] > 0.9
    assert policy.threshold(1.2, 0, 32) == 1.0
    assert policy.threshold(-1.0, 0, 32) == 0.0


@pytest.mark.parametrize(
    ("measure", "depth", "layers"),
    [("softmax", 8, (2, 4, 6)), ("static", 8, (4,)), ("static", 2, (1,)), ("state", 2, (1,)),
     ("softmax", 3, (1, 2)), ("softmax", 32, (8, 16, 24))],
)  # fmt: skip
def test_default_layers(measure: str, depth: int, layers: tuple[int, ...]) -> None:
    assert default_layers(measure, depth) == layers
    assert make_policy(measure, layers, 0.5, "none", 4.0, depth).boundaries(depth) == layers
