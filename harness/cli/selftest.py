"""The harness against known truth: how far is each metric from what really happened?

The `scripted` backend emits tokens on a schedule that is known in advance
(`harness.cli.truth.loads`), and a server of known times (`harness.cli.truth.server`) answers the
`http` client. The same load is measured and evaluated as any trial is, and the difference is the
harness's own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from backends import open_backend
from backends.scripted import ScriptedBackend
from harness.cli.truth.loads import (
    HTTP_SCENARIOS,
    SCENARIOS,
    TOKENS,
    Scenario,
    Truth,
    dividing_slo,
    expected,
    request_id,
    true_metrics,
    true_work,
)
from harness.cli.truth.server import take_log, truth_server
from harness.core.nouns import Generation, Load, Model, Request, Slo, Trial, TrialRecord, Workload
from harness.measure.load_loop import run_load
from harness.measure.machine.noise import MAX_OTHERS_SHARE
from results import summary
from results.metrics import arrays
from results.registry import TrialInputs

LATENCY_LIMIT_S = 0.001
RATE_LIMIT = 0.005
"""Relative: 0.5%."""
FEWEST_PASSES = 3


@dataclass(frozen=True, slots=True)
class BiasRow:
    """One metric of one scenario: the median over the passes."""

    scenario: str
    metric: str
    kind: Literal["latency", "rate"]
    truth: float
    measured: float

    @property
    def bias(self) -> float:
        """Seconds too many for a latency, share too many for a rate."""
        difference = self.measured - self.truth
        return difference if self.kind == "latency" else difference / self.truth

    @property
    def ok(self) -> bool:
        """Whether the bias is within its bound."""
        return abs(self.bias) < self.bound

    @property
    def bound(self) -> float:
        """`LATENCY_LIMIT_S` or `RATE_LIMIT`."""
        return LATENCY_LIMIT_S if self.kind == "latency" else RATE_LIMIT

    def to_json(self) -> dict[str, Any]:
        """For ``selftest --json``: the fields, the bias, its bound and whether it is within."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**own, "bias": self.bias, "bound": self.bound, "within": self.ok}


def run_selftest(seconds: float = 20.0) -> list[BiasRow]:
    """Measure every scenario, over and over until about `seconds` have passed, at least 3 times.

    The median over the passes is what the harness adds; what another process on the machine adds to
    one pass is not the harness's bias.
    """
    begin = time.monotonic()
    found: dict[tuple[str, str], list[BiasRow]] = {}
    passes = 0
    while passes < FEWEST_PASSES or (time.monotonic() - begin) * (passes + 1) / passes < seconds:
        rows = [row for scenario in SCENARIOS for row in measure(scenario)]
        rows += [row for scenario in HTTP_SCENARIOS for row in measure_http(scenario)]
        for row in rows:
            found.setdefault((row.scenario, row.metric), []).append(row)
        passes += 1
    return [_median(rows) for rows in found.values()]


def verdict(rows: Sequence[BiasRow], others_share: float = 0.0) -> str:
    """The outcome in a line: whether each bias is within its bound, and the largest ones. Of a
    failure on a busy machine that it was: others used `others_share` of its processors."""
    doubted = [row for row in rows if not row.ok]
    parts = []
    for kind, factor, unit in (("latency", 1e3, "ms"), ("rate", 1e2, "%")):
        own = [row for row in rows if row.kind == kind]
        if own:
            worst = max(own, key=lambda row: abs(row.bias))
            told = f"{worst.bias * factor:+.3f} {unit} (bound {worst.bound * factor:g} {unit}"
            parts.append(f"largest bias of a {kind} {told}, {worst.scenario} {worst.metric})")
    scenarios = len({row.scenario for row in rows})
    outcome = f"selftest failed: {len(doubted)}" if doubted else "selftest passed: none"
    if doubted and others_share > MAX_OTHERS_SHARE:
        parts.append(
            f"other processes used {others_share:.0%} of this machine's processors meanwhile, "
            "which may be why: repeat it when it is quiet"
        )
    return f"{outcome} of {len(rows)} metrics in {scenarios} scenarios off; {'; '.join(parts)}"


def measure(scenario: Scenario) -> list[BiasRow]:
    """Run one scenario once."""
    load, requests = _load(scenario)
    generations = run_load(ScriptedBackend(scenario.options()), requests, load)
    rows = _compare(scenario, expected(scenario), load, generations)
    found = _metrics(load, generations, Slo())
    for metric, value in true_work(scenario).items():
        rows.append(BiasRow(scenario.name, metric, "rate", value, found[metric]))
    return rows


def measure_http(scenario: Scenario) -> list[BiasRow]:
    """Run one scenario once against a server on this machine. The truth is what the server really
    did: a request begins when it reaches the server, so that leaving late is a bias too."""
    load, requests = _load(scenario)
    gaps_s = list(scenario.gaps_s)
    with truth_server(scenario.ttft_s, gaps_s, scenario.tokens_per_commit) as url:
        backend = open_backend("http", None, Model("none"), {"base_url": url})
        take_log(url)
        generations = run_load(backend, requests, load)
        backend.close()
        log = {row.name: row for row in take_log(url)}
    answered = [log[number] for number in range(scenario.requests)]
    truth = [
        Truth(row.arrived_ns / 1e9, [ns / 1e9 for ns in row.sent_ns], row.sizes) for row in answered
    ]
    return _compare(scenario, truth, load, generations)


def _load(scenario: Scenario) -> tuple[Load, list[Request]]:
    """Each prompt begins with its request's number, by which the server's log names it."""
    kind: Literal["constant", "closed"] = "constant" if scenario.arrivals_s else "closed"
    arrivals = scenario.arrivals_s or (0.0,) * scenario.requests
    requests = [
        Request(request_id(number), (number, 2, 3), TOKENS, arrival_s=arrival)
        for number, arrival in enumerate(arrivals)
    ]
    return Load(kind, concurrency=scenario.concurrency or None), requests


def _compare(
    scenario: Scenario, truth: Sequence[Truth], load: Load, generations: Sequence[Generation]
) -> list[BiasRow]:
    slo = dividing_slo(truth)
    found = _metrics(load, generations, slo)
    rows = []
    for metric, value in true_metrics(truth, slo).items():
        kind: Literal["latency", "rate"] = "rate" if "per_s" in metric else "latency"
        rows.append(BiasRow(scenario.name, metric, kind, value, found[metric]))
    return rows


def _metrics(load: Load, generations: Sequence[Generation], slo: Slo) -> dict[str, Any]:
    """As `results` evaluates any trial."""
    trial = Trial(
        "scripted", {}, Model("none"), Workload("selftest"), load, len(generations), TOKENS, slo=slo
    )
    record = TrialRecord("selftest", trial, {}, "ok", generations=generations)
    return summary.metrics(TrialInputs(record, arrays.from_record(record)))


def _median(rows: list[BiasRow]) -> BiasRow:
    return sorted(rows, key=lambda row: row.bias)[(len(rows) - 1) // 2]
