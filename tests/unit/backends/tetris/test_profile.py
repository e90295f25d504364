"""Profiles and clusters that cannot be are refused, each in one line."""

from __future__ import annotations

from typing import Any

import pytest

from backends.tetris.profile import Wanted, cluster_from, profile_from
from harness.core.errors import UserError

PROFILE: dict[str, Any] = {
    "layers": 3,
    "batch": 8,
    "survival": [1, 0.5, 0.5, 0],
    "layer_ms": {"V100": [1, 2, 3], "K80": [4, 5, 6]},
    "ramp_ms": {"V100": 0.1, "K80": 0.2},
    "transfer_ms": 0.5,
}
CLUSTER: dict[str, Any] = {"devices": {"V100": 2}, "price": {"V100": 3.0}}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"layer": 3}, "p: unknown key 'layer'; did you mean 'layers'?"),
        ({"layers": 0}, "p: layers: expected a whole number of 1 to 1000, found 0"),
        ({"layers": True}, "p: layers: expected a whole number of 1 to 1000, found True"),
        ({"batch": 0}, "p: batch: expected a whole number of 1 to 2147483648, found 0"),
        ({"survival": [1, 1, 1]}, "p: survival: expected a list of 4 values, the share alive on "
         "entering each layer and after the last, found 3 values"),
        ({"survival": [1, 0.5, 0.6, 0]}, "p: survival[2]: survival never rises with depth, "
         "found 0.5 to 0.6"),
        ({"survival": [0.9, 0.5, 0.5, 0]}, "p: survival[0]: expected 1, all of a batch, found 0.9"),
        ({"survival": [1, 0.5, 0.5, -1]}, "p: survival[3]: expected a number of 0 to 1e+12, "
         "found -1"),
        ({"survival": [1.5, 0.5, 0.5, 0]}, "p: survival[0]: expected 1, all of a batch, found 1.5"),
        ({"layer_ms": {"V100": [1, 2]}}, "p: layer_ms of 'V100': expected a list of 3 values, "
         "one for each layer, found 2 values"),
        ({"layer_ms": {"V100": [1, 0, 2]}}, "p: layer_ms of 'V100': expected times above 0, "
         "found 0.0"),
        ({"layer_ms": {}}, "p: layer_ms: expected at least one device kind"),
        ({"layer_ms": [1, 2, 3]}, "p: layer_ms: expected a mapping of device kinds"),
        ({"ramp_ms": {"V100": 1}}, "p: ramp_ms: device kind 'K80' is missing"),
        ({"ramp_ms": {"V100": 1, "K80": 1, "K8": 1}}, "p: ramp_ms: unknown device kind 'K8'; did "
         "you mean 'K80'?"),
        ({"ramp_ms": {"V100": float("nan"), "K80": 1}}, "p: ramp_ms of 'V100': expected a number "
         "of 0 to 1e+12, found nan"),
        ({"transfer_ms": "1"}, "p: transfer_ms: expected a number of 0 to 1e+12, found '1'"),
        ({"transfer_ms": [1]}, "p: transfer_ms: expected a list of 2 values, one for each cut, "
         "found 1 values"),
        ({"transfer_ms": [1, -1]}, "p: transfer_ms[1]: expected a number of 0 to 1e+12, found -1"),
        ({"fill_ms": [1, 2]}, "p: fill_ms of 'V100': expected a list of 3 values, one for each "
         "layer, found 2 values"),
        ({"fill_ms": {"V100": [1, 2, 3]}}, "p: fill_ms: device kind 'K80' is missing"),
        ({"batch_ms": {"V100": {"8": 1}}}, "p: batch_ms: device kind 'K80' is missing"),
        ({"stage_ms": {"V100": {"4": 1}, "K80": {"8": 1}}}, "p: stage_ms of 'V100': expected to "
         "end at the batch of 8, found 4"),
        ({"stage_ms": {"V100": [1], "K80": {"8": 1}}}, "p: stage_ms of 'V100': expected a mapping "
         "of numbers of inputs to milliseconds"),
        ({"batch_ms": {"V100": {"8": -1}, "K80": {"8": 1}}}, "p: batch_ms of 'V100' at 8: expected "
         "a number of 0 to 1e+12, found -1"),
        ({"enter_ms": {"V100": {"8": 1}}}, "p: enter_ms: device kind 'K80' is missing"),
        ({"enter_ms": {"V100": {"4": 1}, "K80": {"8": 1}}}, "p: enter_ms of 'V100': expected to "
         "end at the batch of 8, found 4"),
        ({"ramp_share": {"V100": {"8": 0.5}, "K80": {"8": 1}}}, "p: ramp_share of 'V100': expected "
         "to end with 1 at the batch of 8, found 0.5 at 8"),
        ({"ramp_shares": {}}, "p: unknown key 'ramp_shares'; did you mean 'ramp_share'?"),
        ({"ramps": 1}, "p: ramps: expected a list of layers, found '1'"),
        ({"ramps": [1, 3]}, "p: ramps[1]: expected a whole number of 1 to 2, found 3"),
        ({"ramps": [2, 1]}, "p: ramps: expected ascending layers, found [2, 1]"),
        ({"survival": [1, 0.9, 0.5, 0.2], "ramps": [2]}, "p: survival[1]: expected 1 still, as no "
         "ramp stands behind layer 1, found 0.9"),
        ({"survival": [1, 1, 0.5, 0.2], "ramps": []}, "p: survival[2]: expected 1 still, as no "
         "ramp stands behind layer 2, found 0.5"),
    ],
)  # fmt: skip
def test_profiles_that_cannot_be(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as found:
        profile_from(PROFILE | changed, "p")
    assert str(found.value) == told


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"prices": {}}, "c: unknown key 'prices'; did you mean 'price'?"),
        ({"devices": {"V10": 1}, "price": {"V10": 1}}, "c: the profile has no times of device kind "
         "'V10'; did you mean 'V100'?"),
        ({"devices": {"V100": 0}}, "c: devices: not enough: a plan needs at least 1, found none"),
        ({"devices": {}, "price": {}}, "c: devices: not enough: a plan needs at least 1, found "
         "none"),
        ({"devices": {"V100": -1}}, "c: devices of 'V100': expected a whole number of 0 to "
         "2147483648, found -1"),
        ({"devices": {"V100": 1.5}}, "c: devices of 'V100': expected a whole number of 0 to "
         "2147483648, found 1.5"),
        ({"price": {"V100": -3}}, "c: price of 'V100': expected a number of 0 to 1e+12, found -3"),
        ({"price": {}}, "c: price: device kind 'V100' is missing"),
    ],
)  # fmt: skip
def test_clusters_that_cannot_be(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as found:
        cluster_from(CLUSTER | changed, "c", profile_from(PROFILE, "p"))
    assert str(found.value) == told


def test_what_is_no_mapping() -> None:
    with pytest.raises(UserError, match=r"^p: expected a mapping with the keys layers, batch"):
        profile_from([1], "p")
    with pytest.raises(UserError, match=r"^p: the key 'batch' is missing$"):
        profile_from({key: value for key, value in PROFILE.items() if key != "batch"}, "p")


def test_kinds_without_devices_are_left_out() -> None:
    told = {"devices": {"V100": 2, "K80": 0}, "price": {"V100": 3, "K80": 1}}
    found = cluster_from(told, "c", profile_from(PROFILE, "p"))
    assert (found.devices, found.price) == ({"V100": 2}, {"V100": 3.0})


def test_a_transfer_for_all_cuts_or_for_each() -> None:
    assert profile_from(PROFILE, "p").transfer_ms == (0, 0.5, 0.5)
    assert profile_from(PROFILE | {"transfer_ms": [4, 1]}, "p").transfer_ms == (0, 4, 1)


def test_a_model_without_ramps_has_none_before_any_layer() -> None:
    assert profile_from(PROFILE, "p").ramps_before(3) == [1, 2]
    nobody = {"survival": [1, 1, 1, 0], "ramps": []}
    assert profile_from(PROFILE | nobody, "p").ramps_before(3) == []


def test_fills_of_all_kinds_alike() -> None:
    found = profile_from(PROFILE | {"fill_ms": [1, 2, 0]}, "p")
    assert found.fill_ms == {"V100": (1, 2, 0), "K80": (1, 2, 0)}
    assert profile_from(PROFILE, "p").fill_ms["K80"] == (0, 0, 0)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"slo_ms": 0}, "--slo-ms: expected a number above 0, found 0"),
        ({"slo_ms": float("inf")}, "--slo-ms: expected a number above 0, found inf"),
        ({"slo_ms": 1, "slack_ms": -1}, "--slack-ms: expected a number 0 or more, found -1"),
        ({"slo_ms": 1, "rate": 0}, "--rate: expected a number above 0, found 0"),
        ({"slo_ms": 1, "rate": -2}, "--rate: expected a number above 0, found -2"),
        ({"slo_ms": 1, "budget": -2}, "--budget: expected a number 0 or more, found -2"),
        ({"slo_ms": 1, "target": 0}, "--target: expected a number above 0, found 0"),
    ],
)
def test_wishes_that_cannot_be(wanted: dict[str, float], told: str) -> None:
    with pytest.raises(UserError) as found:
        Wanted(**wanted)
    assert str(found.value) == told
