"""The search on one system: at the objective itself, and at others of its shape."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from harness.cli.goodput.probing import (
    FailedProbeError,
    ProbedLoad,
    ProbedSystem,
    Prober,
    RefusedProbeError,
    described,
)
from harness.core.names import BUNDLED
from harness.core.nouns import Load, Slo, Trial
from harness.experiment.limits import Limits
from results.goodput.answers import ProbedAnswers, answers_about, is_right_enough
from results.goodput.search import FoundRate, Probe, RateSearch, limited_by
from results.goodput.shares import share_interval
from results.metrics import latency

IDLE_REQUESTS = 20
START = 2.0
"""The first rate, in requests that an idle system answers one after the other in that time."""
SPANS = 20.0
"""At a rate that is 1/SPANS too high the queue reaches the bound just when the probe ends."""
MOST_LATE = 2
"""Probes in a row in which the client was late: then it is what limits."""
LATE = "the client was late"
FAILED = "a trial failed"
TOO_MANY = "more requests were needed than may be"
IDLE_MISSES = "misses the slo idle"
IDLE = 4.0
"""So many requests could be answered one after the other in the time between two: who misses then
misses idle."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What is searched for, and how long."""

    slo: Slo
    share: float
    confidence: float
    tolerance: float
    requests: int
    """Of a probe."""
    most: int
    """Probes, of each search."""
    most_requests: int = Limits().prompts
    """Of a probe."""
    most_bundled: int = Limits().bundled_rows
    """Likewise, of bundled prompts."""
    scales: tuple[float, ...] = ()
    """Other objectives: every bound of the first one times so much."""
    least_score: float | None = None
    """A system that answers worse has no rate."""


@dataclass(frozen=True, slots=True)
class FoundGoodput:
    """What came of one search."""

    probes: list[Probe]
    found: FoundRate | None
    limit: str
    """What keeps it from more, or why there is no rate."""
    ended: str
    """Why no more rates were tried."""


@dataclass(frozen=True, slots=True)
class SearchedGoodput:
    """What came of one system."""

    system: ProbedSystem
    first: FoundGoodput
    answers: ProbedAnswers | None
    scales: dict[float, FoundGoodput] = field(default_factory=dict)
    failed: bool = False
    """Whether a probe did not end well, so that the search was broken off."""
    refusal: str = ""
    """What its engine says of input that it does not take."""

    def plain(self, confidence: float) -> dict[str, Any]:
        """As goodput.json has it."""
        one = self.first
        return {
            **described(self.system),
            **_rates(one),
            "limit": one.limit,
            "ended": one.ended,
            "answers": self.answers._asdict() if self.answers else None,
            "scales": [
                {"scale": scale, **_rates(found), "limit": found.limit, "ended": found.ended}
                for scale, found in sorted(self.scales.items())
            ],
            "probes": [
                {
                    "rate": p.asked,
                    "rate_came_about": p.rate,
                    "share": p.share,
                    **dict(zip(("low", "high"), share_interval(p.met, confidence), strict=True)),
                    "judged": len(p.met),
                }
                for p in one.probes
            ],
        }


class SystemSearch:
    """Searches on one loaded engine. What was probed for one objective counts for the next: the
    same requests meet it or not."""

    def __init__(self, prober: Prober, system: ProbedSystem, settings: SearchSettings) -> None:
        self._prober, self._system, self._settings = prober, system, settings
        self._loads: list[tuple[float, ProbedLoad]] = []
        self._late, self._needs, self._number = "", "", 0
        self._error: FailedProbeError | RefusedProbeError | None = None
        self._idle = self._run(
            prober.trial(system, Load("closed", concurrency=1), 0, IDLE_REQUESTS)
        )

    def searched(self) -> SearchedGoodput:
        """The rate at the objective, what the answers are worth there, and the other rates. A probe
        that fails, or that the engine refuses, ends the search; what was found before it stays."""
        settings = self._settings
        first = self._found(settings.slo)
        own = [(rate, load.requests) for rate, load in self._loads]
        answers = answers_about(own, settings.slo, first.found)
        if first.found and not is_right_enough(answers, settings.least_score):
            assert answers is not None
            told = f"answers: {answers.words()}, expected {settings.least_score:g}"
            first = FoundGoodput(first.probes, None, told, first.ended)
        scales = {
            scale: self._found(latency.scaled(settings.slo, scale))
            for scale in settings.scales
            if self._error is None
        }
        refusal = str(self._error) if isinstance(self._error, RefusedProbeError) else ""
        failed = self._error is not None
        return SearchedGoodput(self._system, first, answers, scales, failed, refusal)

    def _run(self, trial: Trial) -> ProbedLoad | None:
        """None where the probe does not end well."""
        try:
            return self._prober.run(trial)
        except (FailedProbeError, RefusedProbeError) as error:
            self._error = error
            return None

    def _found(self, slo: Slo) -> FoundGoodput:
        settings = self._settings
        if self._idle is None:
            return FoundGoodput([], None, f"{FAILED}: {self._error}", FAILED)
        idle = self._idle.probe(1.0, slo)
        if share_interval(idle.met, settings.confidence)[1] < settings.share:
            return FoundGoodput([], None, self._idle_misses(slo, idle.share), IDLE_MISSES)
        alone_s = float(latency.e2e_s(self._idle.requests).mean())
        before = len(self._loads)
        most = before + settings.most
        search = RateSearch(
            settings.share, START / alone_s, settings.tolerance, most, settings.confidence
        )
        for rate, load in self._loads:
            search.add(load.probe(rate, slo))
        ended = self._probe(search, slo, 1 / (IDLE * alone_s))
        ended = ended or ("probes used up" if len(search.probes) >= most else "narrow enough")
        return FoundGoodput(search.probes, search.found(), self._limit(search, slo, ended), ended)

    def _idle_misses(self, slo: Slo, share: float) -> str:
        assert self._idle is not None
        return (
            f"even one request at a time meets the slo in {share:.1%} of the cases only "
            f"({limited_by(self._idle.shares(slo))}); expected {self._settings.share:.1%}"
        )

    def _most_requests(self) -> tuple[int, str]:
        """Of a probe, and the limit that says so."""
        settings, source = self._settings, self._system.workload.workload.source
        if source == BUNDLED and settings.most_bundled < settings.most_requests:
            return settings.most_bundled, "bundled_rows"
        return settings.most_requests, "prompts"

    def _probe(self, search: RateSearch, slo: Slo, least: float) -> str:
        """Probe until the search is over; why it was broken off, or nothing. Below the rate `least`
        nothing is tried."""
        late, (most, limit) = 0, self._most_requests()
        longest = rate_of(most, slo)
        while (rate := search.next_rate()) is not None:
            if search.probes and rate < least and search.bracket()[0] is None:
                return IDLE_MISSES
            if rate > longest > max((one.asked for one in search.probes), default=0.0):
                rate = longest  # the highest that may be tried
            rate = float(f"{rate:.4g}")
            self._number += 1
            load = Load("poisson", rate=rate)
            requests = enough_requests(rate, slo, self._settings.requests)
            if requests > most:
                self._needs = (
                    f"{rate:g}/s needs {requests:,} requests; 'limits: {limit}' is {most:,}"
                )
                return TOO_MANY
            trial = self._prober.trial(self._system, load, self._number, requests)
            if (probed := self._run(trial)) is None:
                return FAILED
            if probed.is_late:
                late += 1
                if late >= MOST_LATE:
                    self._late = f"the client, which was late at {rate:g}/s: more cannot be asked"
                    return LATE
                continue
            late = 0
            self._loads.append((rate, probed))
            search.add(probed.probe(rate, slo))
        return ""

    def _limit(self, search: RateSearch, slo: Slo, ended: str) -> str:
        if ended == LATE:
            return f"{self._late} here"
        if ended == FAILED:
            return f"{FAILED}: {self._error}"
        if ended == TOO_MANY:
            return self._needs
        if ended == IDLE_MISSES:
            lowest = min(search.probes, key=lambda one: one.asked)
            return self._idle_misses(slo, lowest.share)
        low, high = search.bracket()
        if high is None:
            return f"nothing up to {low:g}/s; more --max-probes may" if low else "nothing was seen"
        limit = limited_by(next(load.shares(slo) for rate, load in self._loads if rate == high))
        if low is None:
            return (
                f"missed at {high:g}/s, the lowest rate tried ({limit}); more --max-probes may find"
            )
        return limit


def enough_requests(rate: float, slo: Slo, wished: int) -> int:
    """So many that they arrive over `SPANS` times the objective's longest bound: a load that ends
    before its queue is as long as the objective allows finds rates that nobody can sustain."""
    return max(wished, math.ceil(rate * SPANS * _longest_s(slo)))


def rate_of(requests: int, slo: Slo) -> float:
    """The highest rate at which no more than so many are enough."""
    longest_s = _longest_s(slo)
    # four digits are asked for
    return requests / (SPANS * longest_s) * (1 - 1e-3) if longest_s else math.inf


def _longest_s(slo: Slo) -> float:
    return max(slo.ttft_ms or 0.0, slo.e2e_ms or 0.0) / 1e3


def _rates(one: FoundGoodput) -> dict[str, float | None]:
    found = one.found
    return {
        "rate_per_s": found.rate if found else None,
        "low_per_s": found.low if found else None,
        "high_per_s": found.high if found else None,
    }
