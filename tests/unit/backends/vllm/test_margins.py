"""The margins that the `vllm` backend records, from log-probabilities as vLLM gives them."""

from __future__ import annotations

import math

from backends.vllm.margins import margins


def test_a_margin_is_named_by_its_token() -> None:
    assert margins(3, [(-0.5, -0.5, -2.0), (-3.0, -1.0, -3.0)]) == {
        "top2_margin@3": 1.5,
        "top2_margin@4": 2.0,
    }


def test_a_margin_that_is_no_number_is_left_out() -> None:
    """`show --json` prints the margin at a divergence, and JSON knows neither NaN nor infinity."""
    nan, ruled_out = (math.nan,) * 3, (0.0, 0.0, -math.inf)
    assert margins(0, [nan, ruled_out, (-0.5, -0.5, -1.0)]) == {"top2_margin@2": 0.5}
