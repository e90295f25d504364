"""What a sweep makes of a client that limits, and of a system that is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli.first.quick import _loads
from harness.cli.goodput import sweeping
from harness.cli.goodput.probing import RefusedProbeError
from harness.cli.goodput.sweeping import SweptSystem
from harness.core.nouns import Workload
from harness.experiment.choices import WorkloadChoice
from harness.experiment.limits import Limits

FASTEST = 30.0
"""Requests per second that the client can send."""
EXPERIMENT: Any = SimpleNamespace(
    sweep=SimpleNamespace(points=8, redraw=None), requests=8, limits=Limits(prompts=10_000)
)


class LateProber:
    """Each answer takes 100 ms; the client is late beyond `FASTEST`, and then a queue is left."""

    def trial(self, system: Any, load: Any, number: int, requests: int, repeat: int) -> Any:
        return load

    def run(self, load: Any) -> Any:
        # the one request of the arrays stands for its rate
        requests = SimpleNamespace(scheduled_ns=load.rate, commit_ns=[None], last_commit=int)
        record = SimpleNamespace(key=f"k{load.rate}")
        late = (load.rate or 0.0) > FASTEST
        return SimpleNamespace(record=record, requests=requests, was_stored=False, is_late=late)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sweeping, "kept_up", lambda rate, _: rate <= FASTEST)
    monkeypatch.setattr("harness.cli.goodput.sweeping.latency.e2e_s", lambda _: [0.1])
    monkeypatch.setattr(
        "harness.cli.goodput.sweeping.latency.arrival_rate_per_s", lambda found: found.scheduled_ns
    )
    choice = WorkloadChoice(Workload("gsm8k", "bundled", options={"mix": "1:1"}), 8)
    return SimpleNamespace(label=lambda: "fast, gsm8k", workload=choice)


def test_a_late_client_is_no_saturation_of_the_system(system: Any) -> None:
    prober: Any = LateProber()
    points: list[Any] = []
    ended = sweeping._search(prober, system, EXPERIMENT, points)
    assert ended == "the client was late at 40/s: more cannot be asked here"
    swept = SweptSystem(system, points, ended)
    assert swept.line().startswith("fast, gsm8k: kept up with 20/s and less; ")


@pytest.mark.parametrize("redraw", [False, True])
def test_a_quick_sweep_draws_each_repeat_anew(redraw: bool) -> None:
    """Also with `--duration`, with which rates do not, and which is none of a sweep's."""
    assert list(_loads(None, None, True, redraw)) == [{"kind": "sweep", "redraw": True}]


@pytest.mark.parametrize(
    ("repeats", "kept"),
    [("+", True), ("-+", False), ("+-", True), ("-++", True), ("--++", False), ("+--", False)],
)
def test_repeats_that_are_even_say_what_the_search_went_by(repeats: str, kept: bool) -> None:
    """Each has a rate of its own where arrivals are drawn anew: a tie is no rare thing."""
    one = sweeping._Loaded(sweeping.IDLE, 8, kept_up=[repeat == "+" for repeat in repeats])
    assert one.is_kept is kept


def test_a_sweep_makes_no_more_bundled_rows_than_may_be(system: Any) -> None:
    prober: Any = LateProber()
    few: Any = SimpleNamespace(
        sweep=EXPERIMENT.sweep, requests=200, limits=Limits(bundled_rows=400)
    )
    ended = sweeping._search(prober, system, few, [])
    assert ended.endswith("'limits: bundled_rows' allows 100"), ended


def test_a_refusal_costs_its_own_system_alone(system: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise RefusedProbeError("backend 'fast': too long")

    prober: Any = LateProber()
    monkeypatch.setattr(prober, "run", refuse)
    swept = sweeping._swept(prober, system, EXPERIMENT)
    assert (swept.failed, swept.refusal, swept.measured) == (True, "backend 'fast': too long", 0)
    assert swept.line() == "fast, gsm8k: 0 loads; refused: backend 'fast': too long"
