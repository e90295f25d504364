"""Workers that options ask for."""

from __future__ import annotations

from typing import Any

import pytest

from backends import check_options
from backends.checkpoints import models
from backends.tetris.labels.options import first_replicas
from harness.core.errors import UserError


def test_earlier_stages_have_the_workers_that_are_left_over() -> None:
    assert first_replicas({"stages": 3, "workers": 5, "replicas": "auto"}) == [2, 2, 1]
    assert first_replicas({"stages": 2, "workers": None, "replicas": None}) == [1, 1]
    assert first_replicas({"stages": 2, "workers": None, "replicas": [1, 3]}) == [1, 3]


def refused(said: str, **options: Any) -> None:
    with pytest.raises(UserError, match=said) as raised:
        check_options("tetris-classifier", options, models.BUNDLED["demo-sentiment"])
    assert "\n" not in str(raised.value)


def test_workers_that_do_not_fit_the_stages_are_refused() -> None:
    refused(r"\[2, 1\] add up to 3; option 'workers' is 4", replicas=[2, 1], workers=4)
    refused("names workers of 3 stages; expected 2", replicas=[1, 1, 1])
    refused("'workers': is 1; 2 stages need one each", workers=1)
    refused("is 4 for 2 stages; expected option 'replicas'", workers=4)
    refused("auto: who leaves is seen only while it serves", replicas="auto")
    refused("'replicas': expected at least 1", replicas=[0, 2])
    refused("'replicas': expected whole numbers", replicas=[1.5, 2])
    refused("expected list or auto, got 'autp'", replicas="autp")
    refused("'replan_s': expected at least 0, got -1", replan_s=-1)
    refused("'replan_s': expected 0 or at least 0.1, got 1e-06", replan_s=1e-6)
    refused("'replicas': add up to 128 workers; expected at most 64", replicas=[64, 64])
    refused(r"'slo_ms': expected at most 1e\+09, got inf", slo_ms=float("inf"))
    refused("'replan_s': means nothing with measure 'never'", replan_s=5, measure="never")
    check_options(
        "tetris-classifier",
        {"replicas": "auto", "workers": 4, "replan_s": 5},
        models.BUNDLED["demo-sentiment"],
    )
