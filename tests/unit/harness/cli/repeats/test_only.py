"""``--only``: a backend's trials, or those of one label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from harness.cli import wiring
from harness.cli.repeats.only import named_by
from harness.core.errors import UserError
from harness.experiment.config import Experiment, parse_experiment

SLOW = {"name": "scripted", "itl_s": 0.5, "label": "slow"}
BACKENDS: Sequence[Mapping[str, Any] | str] = [
    SLOW, {"name": "scripted", "itl_s": [0.1, 0.2], "label": "every {itl_s} s"}, "autoregressive"
]  # fmt: skip


def experiment(*loads: Mapping[str, Any]) -> Experiment:
    base = {"name": "a", "model": "demo", "workloads": ["gsm8k"], "requests": 2}
    load = list(loads or [{"kind": "closed", "concurrency": 1}])
    return parse_experiment({**base, "backends": BACKENDS, "load": load}, "f", wiring.known())


@pytest.mark.parametrize(
    ("only", "times"),
    [
        (None, [0.5, 0.1, 0.2, None]),
        ("scripted", [0.5, 0.1, 0.2]),
        ("autoregressive", [None]),
        ("slow", [0.5]),
        ("every 0.2 s", [0.2]),
    ],
)
def test_a_backend_or_a_label_is_named(only: str | None, times: list[float | None]) -> None:
    wanted = named_by(only, experiment())
    assert [t.options.get("itl_s") for t in experiment().trials() if wanted(t)] == times


def test_other_names_are_one_line() -> None:
    with pytest.raises(UserError, match="--only: no backend 'slw'; did you mean 'slow'"):
        named_by("slw", experiment())
    with pytest.raises(UserError, match="beside a sweep expected the backend 'scripted'"):
        named_by("slow", experiment({"kind": "sweep"}))
