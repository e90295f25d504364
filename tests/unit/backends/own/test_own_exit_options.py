"""The backend `own-early-exit`: one line for what it cannot take, and what it warns of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends import check_options, warnings
from backends.checkpoints import models
from backends.own.exits.backend import OwnEarlyExit
from harness.core.errors import UserError
from harness.core.nouns import Model

NAME = "own-early-exit"
DEMO = models.BUNDLED["demo"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a measure of batches": (
        {"measure": "static"},
        "option 'measure': 'static': did you mean 'state'",
    ),
    "a layer beyond": ({"layers": [9]}, "option 'layers': no exit after layer 9; expected numbers"),
    "thresholds of others": (
        {"layers": [1, 2], "thresholds": [0.5]},
        r"option 'thresholds': 1 for 2 layers \[1, 2\]",
    ),
    "both": ({"threshold": 0.5, "thresholds": [0.5]}, "give 'threshold' or 'thresholds', not both"),
    "a tau for nothing": ({"decay_tau": 2.0}, "option 'decay_tau' needs a 'decay'"),
    "heads without softmax": (
        {"measure": "state", "heads": "auto"},
        "option 'heads' has no meaning with 'measure: state'",
    ),
    "batching": ({"batching": "both"}, "option 'batching'.*ready"),
    "a record of a replay": (
        {"record": True, "replay": "demo"},
        "option 'record' has no meaning with 'replay'",
    ),
    "a calibration of a replay": (
        {"calibration": "x.json", "replay": "demo"},
        "option 'calibration' has no meaning with 'replay'",
    ),
    "a trace that is none": ({"replay": "nothing"}, "option 'replay': no trace 'nothing'"),
    "a length beyond": ({"max_model_len": 100_000}, "max_model_len 100000 exceeds"),
    "another's heads": ({"heads": "/nowhere"}, "/nowhere"),
}


def _checked(options: dict[str, Any]) -> None:
    check_options(NAME, options)
    check_options(NAME, options, DEMO)


@pytest.mark.parametrize("case", REFUSED)
def test_one_line_for_what_it_cannot_take(case: str) -> None:
    options, said = REFUSED[case]
    with pytest.raises(UserError, match=said) as caught:
        _checked(options)
    assert "\n" not in str(caught.value)
    assert "vllm" not in str(caught.value)


def test_a_threshold_that_nothing_passes_is_told() -> None:
    found = warnings(NAME, Model("demo"), {"layers": [1, 2], "threshold": 1.0})
    assert found == [
        "backend 'own-early-exit': the threshold of layers 1, 2 can never be passed, so nothing is "
        "checked there"
    ]


def test_shapes_decide_nothing_by_themselves(tmp_path: Path) -> None:
    settings = {name: option.default for name, option in OwnEarlyExit.OPTIONS.items()}
    with pytest.raises(UserError, match="random weights decide nothing"):
        OwnEarlyExit.check_shape(DEMO, settings)
    OwnEarlyExit.check_shape(DEMO, {**settings, "replay": "demo"})
