"""Loads whose every time is known: scripts for the `scripted` backend, and what they come to.

The times and the metrics are worked out from the script alone, with code that shares nothing with
the load loop, the backend or `results`: `harness.cli.selftest` compares.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, islice, pairwise
from typing import Any

from harness.core.nouns import Slo

TOKENS = 24
"""In each answer."""
CLEAR_GAP_S = 0.004
"""TTFTs this far apart are told apart by an objective between them, even on a noisy machine."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A script, and the load that is put on it. Open loop when there are arrivals (seconds)."""

    name: str
    requests: int
    ttft_s: float
    gaps_s: tuple[float, ...]
    """Between commits, repeated."""
    concurrency: int = 0
    arrivals_s: tuple[float, ...] = ()
    capacity: int | None = None
    tokens_per_commit: int = 1
    accepted: tuple[int, ...] = ()
    stalls_s: tuple[tuple[float, float], ...] = ()
    """(begin, duration), ascending."""
    failing: tuple[int, ...] = ()
    """Requests, by number, whose second commit is an error instead."""

    def options(self) -> dict[str, Any]:
        """The script, for the backend."""
        return {
            "ttft_s": self.ttft_s,
            "itl_schedule_s": list(self.gaps_s),
            "capacity": self.capacity,
            "tokens_per_commit": self.tokens_per_commit,
            "accepted": list(self.accepted),
            "drafted": max(self.accepted, default=0),
            "stalls": [{"at_s": at, "for_s": duration} for at, duration in self.stalls_s],
            "fail_ids": [request_id(number) for number in self.failing],
        }

    def commit_sizes(self) -> list[int]:
        """Tokens in each commit of an answer."""
        if self.accepted:
            plan = [1, *islice(cycle(count + 1 for count in self.accepted), TOKENS)]
        else:
            plan = [self.tokens_per_commit] * TOKENS
        before = list(accumulate(plan, initial=0))
        pairs = zip(plan, before, strict=False)
        return [min(size, TOKENS - done) for size, done in pairs if done < TOKENS]


def request_id(number: int) -> str:
    """The id of a scenario's request."""
    return f"r{number}"


@dataclass(frozen=True, slots=True)
class Truth:
    """What happens to one request, in seconds after the start of the load."""

    scheduled_s: float
    commits_s: list[float]
    sizes: list[int]
    """Tokens in each commit."""
    failed: bool = False
    """It delivered nothing, whatever came before the error."""


def expected(scenario: Scenario) -> list[Truth]:
    """Every request's times on a perfect clock: first come, first served, by free places."""
    places = scenario.capacity if scenario.arrivals_s else scenario.concurrency
    free = [0.0] * places if places else []
    sizes = scenario.commit_sizes()
    gaps = list(islice(cycle(scenario.gaps_s), len(sizes) - 1))
    found = []
    for number in range(scenario.requests):
        if scenario.arrivals_s:
            scheduled = scenario.arrivals_s[number]
            begin = max(scheduled, heapq.heappop(free)) if free else scheduled
        else:
            scheduled = begin = heapq.heappop(free)
        failed = number in scenario.failing
        events = [_pass(begin, scenario.ttft_s, scenario.stalls_s)]
        for gap in gaps[:1] if failed else gaps:
            events.append(_pass(events[-1], gap, scenario.stalls_s))
        if places:
            heapq.heappush(free, events[-1])
        count = 1 if failed else len(sizes)
        found.append(Truth(scheduled, events[:count], sizes[:count], failed))
    return found


def _pass(begin_s: float, work_s: float, stalls: Sequence[tuple[float, float]]) -> float:
    """When `work_s` of work that begins at `begin_s` is done, nothing happening during stalls."""
    now, left = begin_s, work_s
    for at, duration in stalls:
        if at + duration <= now:
            continue
        before = max(at - now, 0.0)
        if left <= before:
            break
        left -= before
        now = at + duration
    return now + left


def true_metrics(truth: Sequence[Truth], slo: Slo) -> dict[str, float]:
    """The definitions of design section 7, spelled out over the true times. A failed request is no
    sample and delivers nothing; its time counts in the window of the whole."""
    whole = [t for t in truth if not t.failed]
    ttft = [t.commits_s[0] - t.scheduled_s for t in whole]
    e2e = [t.commits_s[-1] - t.scheduled_s for t in whole]
    decode = [t.commits_s[-1] - t.commits_s[0] for t in whole]
    later = [TOKENS - t.sizes[0] for t in whole]
    itl = [
        (t.commits_s[i] - t.commits_s[i - 1]) / t.sizes[i]
        for t in whole
        for i in range(1, len(t.sizes))
        for _ in range(t.sizes[i])
    ]
    first_submit = min(t.scheduled_s for t in truth)
    window = max(t.commits_s[-1] for t in truth) - first_submit
    good = sum(value * 1e3 <= (slo.ttft_ms or 0.0) for value in ttft)
    return {
        **_percentiles("ttft_s", ttft),
        **_percentiles("tpot_s", [d / n for d, n in zip(decode, later, strict=True)]),
        **_percentiles("itl_s", itl),
        **_percentiles("e2e_s", e2e),
        **_percentiles("submit_lag_s", [0.0] * len(truth)),
        "inner_token_latency_s": sum(decode) / (TOKENS * len(whole)),
        "output_tok_per_s": TOKENS * len(whole) / window,
        "request_per_s": len(whole) / window,
        "decode_tok_per_s_mean": statistics.fmean(
            n / d for d, n in zip(decode, later, strict=True)
        ),
        "goodput_req_per_s": good / window,
        "goodput_tok_per_s": good * TOKENS / window,
    }


def true_work(scenario: Scenario) -> dict[str, float]:
    """The scripted drafts: how many were accepted, and what a step yielded."""
    if not scenario.accepted:
        return {}
    steps = len(scenario.commit_sizes()) - 1
    kept = sum(islice(cycle(scenario.accepted), steps))
    share = kept / (steps * max(scenario.accepted))
    return {
        "acceptance_rate": share,
        "rejection_rate": 1 - share,
        "tokens_per_step": (TOKENS - 1) / steps,
    }


def _percentiles(name: str, values: Sequence[float]) -> dict[str, float]:
    points = statistics.quantiles(values, n=100, method="inclusive")
    return {
        f"{name}_p50": points[49],
        f"{name}_p95": points[94],
        f"{name}_p99": points[98],
        f"{name}_mean": statistics.fmean(values),
    }


def dividing_slo(truth: Sequence[Truth]) -> Slo:
    """A TTFT bound in the widest gap between two true values, so that it tells requests apart
    without hanging on microseconds; above all of them when there is no gap."""
    values = sorted(t.commits_s[0] - t.scheduled_s for t in truth if not t.failed)
    gap, low = max((b - a, a) for a, b in pairwise(values))
    bound = low + gap / 2 if gap > CLEAR_GAP_S else values[-1] * 2
    return Slo(ttft_ms=bound * 1e3)


def _poisson(rate: float, count: int) -> tuple[float, ...]:
    draw = random.Random(0)
    return tuple(accumulate((draw.expovariate(rate) for _ in range(count - 1)), initial=0.0))


SCENARIOS = (
    Scenario("closed loop, one at a time", 5, 0.02, (0.005,), concurrency=1),
    Scenario(
        "closed loop, 8 at once, 4 tokens per commit",
        32,
        0.03,
        (0.02,),
        concurrency=8,
        tokens_per_commit=4,
    ),
    Scenario(
        "closed loop, drafts, stalls",
        16,
        0.02,
        (0.012,),
        concurrency=4,
        accepted=(2, 0, 4, 1),
        stalls_s=((0.1, 0.15), (0.5, 0.05)),
    ),
    Scenario(
        "open loop, Poisson, queue",
        40,
        0.02,
        (0.004, 0.006),
        arrivals_s=_poisson(50, 40),
        capacity=6,
    ),
    Scenario(
        "open loop, bursts of 12",
        36,
        0.025,
        (0.002, 0.002, 0.02),
        arrivals_s=tuple(0.15 * (number // 12) for number in range(36)),
    ),
    Scenario(
        "open loop, steady, stalls",
        30,
        0.015,
        (0.007,),
        arrivals_s=tuple(0.02 * number for number in range(30)),
        stalls_s=((0.2035, 0.2), (0.6035, 0.1)),
    ),
    Scenario(
        "closed loop, every fourth request fails",
        16,
        0.02,
        (0.005,),
        concurrency=4,
        failing=(0, 5, 10, 15),
    ),
    Scenario(
        "open loop, queue, every fourth request fails",
        24,
        0.02,
        (0.004,),
        arrivals_s=tuple(0.015 * number for number in range(24)),
        capacity=4,
        failing=(1, 6, 11, 12, 17, 22),
    ),
)

HTTP_SCENARIOS = (
    Scenario(
        "http, closed loop, 8 at once, 2 tokens per event",
        32,
        0.03,
        (0.01,),
        concurrency=8,
        tokens_per_commit=2,
    ),
    Scenario("http, open loop, Poisson", 40, 0.02, (0.004, 0.006), arrivals_s=_poisson(50, 40)),
)
"""For the `http` client, against `harness.cli.truth.server`."""
