"""The costs that `adadecode` tells, and what it promises at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from backends import open_backend
from backends.checkpoints import models
from backends.engine.costs.exit_choice import ExitChoice
from backends.engine.executors.base import Executor
from harness.core.nouns import BackendInfo, Model
from harness.core.pass_costs import StepCosts

Asked = tuple[tuple[int, ...], tuple[float, ...], int]
COSTS = StepCosts((10.0, 20.0, 60.0), (2.0, 3.0), 4.0, (12.0, 22.0, 66.0), 5.0, 100.0)
TOLD: dict[str, Any] = {"exit_layers": [2, 4], "gamma": 0.8, "max_drafts": 3}


def told(**options: Any) -> BackendInfo:
    room = {"threads": 1, "max_num_seqs": 2, "max_model_len": 512}
    opened = open_backend("adadecode", models.BUNDLED["demo"], Model("demo"), {**room, **options})
    opened.close()
    return opened.info


def costs_are(found: StepCosts, monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What cycles are timed for, and found to cost this."""
    asked: list[Asked] = []

    def timed(executor: Executor, leaves: Sequence[float], max_drafts: int) -> StepCosts:
        asked.append((executor.exits, tuple(leaves), max_drafts))
        return found

    monkeypatch.setattr("backends.engine.costs.cycles.cycle_costs", timed)
    return asked


def test_costs_are_told_of_cycles_as_the_trace_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = costs_are(COSTS, monkeypatch)
    assert told(**TOLD).measured.costs == COSTS.to_json()
    ((exits, leaves, drafts),) = asked
    assert (exits, drafts) == ((2, 4), 3)
    assert all(0.2 < share < 1 and share != 0.5 for share in leaves), "those of the held-out trace"
    told(**{**TOLD, "gamma": 0.999})
    assert sum(asked[1][1]) < sum(leaves), "fewer leave where more is asked of them"


def test_nobody_knows_how_often_untrained_heads_are_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = costs_are(COSTS, monkeypatch)
    info = told(**TOLD, heads="original")
    assert asked == [((2, 4), (0.5, 0.5), 3)]
    assert info.measured.predicted_speedup is None


def test_what_is_promised_is_promised_at_the_costs_told(monkeypatch: pytest.MonkeyPatch) -> None:
    costs_are(COSTS, monkeypatch)
    once = told(**TOLD).measured.predicted_speedup
    costs_are(replace(COSTS, plain=200.0), monkeypatch)
    twice = told(**TOLD).measured.predicted_speedup
    assert once is not None
    assert twice == pytest.approx(2 * once)


def test_without_exits_plain_decoding_is_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = costs_are(COSTS, monkeypatch)
    monkeypatch.setattr(
        "backends.engine.costs.exit_choice.choose", lambda *_, **__: ExitChoice((), (), 1.0)
    )
    measured = told().measured
    assert asked == []
    assert measured.predicted_speedup == 1
    assert measured.costs is not None
    assert measured.costs["exit_head_us"] == []
    parts = measured.costs["segment_us"][0] + measured.costs["final_head_us"]
    assert measured.costs["plain_us"] == pytest.approx(parts)
