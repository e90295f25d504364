"""``--only``: a backend's trials, or those of one label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.cli import wiring
from harness.cli.repeats.only import named_by, one_load
from harness.core.errors import UserError
from harness.experiment.config import Experiment, parse_experiment
from harness.measure.machine import gpu, meters
from tests.support.small_shapes import small_shape

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


def test_what_only_the_others_load_has_not_to_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gpu, "memory_total", list)
    monkeypatch.setattr(meters, "total_memory", lambda: 2**20)
    backends = [
        {"name": "autoregressive", "replay": "demo"},
        {"name": "http", "base_url": "http://127.0.0.1:9"},
    ]
    model = {"shape": small_shape(tmp_path / "small").name}
    told = {"name": "a", "model": model, "workloads": ["gsm8k"], "requests": 2}
    load = [{"kind": "closed", "concurrency": 1}]
    both = parse_experiment({**told, "backends": backends, "load": load}, "f", wiring.known())
    asked = {only: one_load(both, named_by(only, both)) for only in ("http", "autoregressive")}
    assert wiring.resolve(both, asked["http"]).models[0].checksum
    for run in (None, asked["autoregressive"]):
        with pytest.raises(UserError, match="GiB for its weights"):
            wiring.resolve(both, run)
