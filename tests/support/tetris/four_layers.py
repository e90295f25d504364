"""A model of four layers on devices whose times are easy to reckon with."""

from __future__ import annotations

from typing import Any

import numpy as np

from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.profile import StageProfile, profile_from


def profile(**changed: Any) -> StageProfile:
    """At a batch of 2, half of which leaves behind the second layer."""
    told: dict[str, Any] = {
        "layers": 4,
        "batch": 2,
        "survival": [1, 1, 0.5, 0.5, 0.5],
        "layer_ms": {"V100": [1, 1, 1, 1]},
        "ramp_ms": {"V100": 0.5},
        "transfer_ms": 0.2,
        "time_share": {"V100": {"1": 0.75, "2": 1}},
    }
    return profile_from({**told, **changed}, "p")


def served_profile() -> StageProfile:
    """On cores, where nobody has been seen to leave."""
    return profile(
        survival=[1.0] * 5,
        layer_ms={"core": [1, 1, 1, 1]},
        ramp_ms={"core": 0},
        transfer_ms=0.01,
        time_share={"core": {"1": 0.75, "2": 1}},
        ramps=[1, 2, 3],
    )


def depths(*layers: int) -> LeaveDecisions:
    """Inputs of a model of four layers, each sure for the first time behind so many."""
    return LeaveDecisions(np.array([[n <= behind for behind in (1, 2, 3)] for n in layers]))
