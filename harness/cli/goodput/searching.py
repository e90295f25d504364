"""The search on one system: at the objective itself, and at others of its shape."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from harness.cli.goodput.probe_lengths import IdleSystem
from harness.cli.goodput.probing import (
    IDLE_REQUESTS,
    MOST_LATE,
    FailedProbeError,
    ProbedLoad,
    ProbedSystem,
    Prober,
    RefusedProbeError,
    described,
    most_requests,
    told_probe,
)
from harness.core.nouns import Load, Slo, Trial
from harness.experiment.limits import Limits
from results.goodput.answers import ProbedAnswers, answers_about, is_right_enough
from results.goodput.search import FoundRate, Probe, RateSearch, limited_by
from results.goodput.shares import share_interval
from results.metrics import latency

LATE_NEAR = 1.25
"""Within this factor of a rate that held nothing is tried below one at which the client is late."""
LATE = "the client was late"
CLIENT = "the client, which was late"
FAILED = "a trial failed"
TOO_MANY = "more requests were needed than may be"
USED_UP = "probes used up"
IDLE_MISSES = "misses the slo idle"
HIGHEST = "the highest rate tried; more --max-probes finds its limit"
"""What limits an answer whose search saw no limit."""
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
    """Rows that the bundled generators make for a probe."""
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
    disturbed: int = 0
    """Of the probes, those in which something else on the machine took part."""
    held: float | None = None
    """The highest rate asked for that held."""

    @property
    def sustained(self) -> FoundRate | None:
        """The rate; where the system held at all rates that count, the highest of them, which it
        sustains at least. None where it sustains none."""
        if self.found is None and self.held is not None:
            return FoundRate(self.held, self.held, self.held)
        return self.found


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
            "disturbed": one.disturbed,
            "answers": self.answers._asdict() if self.answers else None,
            "scales": [
                {"scale": scale, **_rates(found), "limit": found.limit, "ended": found.ended}
                for scale, found in sorted(self.scales.items())
            ],
            "probes": [told_probe(probe, confidence) for probe in one.probes],
        }


class SystemSearch:
    """Searches on one loaded engine. What was probed for one objective counts for the next: the
    same requests meet it or not."""

    def __init__(self, prober: Prober, system: ProbedSystem, settings: SearchSettings) -> None:
        self._prober, self._system, self._settings = prober, system, settings
        self._loads: list[tuple[float, ProbedLoad]] = []
        self._held: list[tuple[Slo, float]] = []
        """What was searched for before, and the highest rate asked for that held."""
        self._ceiling, self._needs, self._number = math.inf, "", 0
        self._error: FailedProbeError | RefusedProbeError | None = None
        self._idle = self._run(
            prober.trial(system, Load("closed", concurrency=1), 0, IDLE_REQUESTS)
        )

    def searched(self) -> SearchedGoodput:
        """The rate at the objective, what the answers are worth there, and the other rates. A probe
        that fails, or that the engine refuses, ends the search; what was found before it stays."""
        settings = self._settings
        first, answers = self._with_answers(settings.slo)
        scales = {
            scale: self._with_answers(latency.scaled(settings.slo, scale))[0]
            for scale in settings.scales
            if self._error is None
        }
        refusal = str(self._error) if isinstance(self._error, RefusedProbeError) else ""
        failed = self._error is not None
        return SearchedGoodput(self._system, first, answers, scales, failed, refusal)

    def _with_answers(self, slo: Slo) -> tuple[FoundGoodput, ProbedAnswers | None]:
        """The rate, withdrawn where the answers about it are shown to be worth too little, and what
        they are worth."""
        found, least = self._found(slo), self._settings.least_score
        own = [(rate, load.requests) for rate, load in self._loads]
        answers = answers_about(own, slo, found.sustained)
        if not is_right_enough(answers, least):
            assert answers is not None
            told = f"answers: {answers.words()}, expected {least:g}"
            answers = answers._replace(right_per_s=None)
            found = replace(found, found=None, held=None, limit=told)
        return found, answers

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
        if share_interval(idle.met, settings.confidence, idle.waits)[1] < settings.share:
            return FoundGoodput([], None, self._idle_misses(slo, idle.share), IDLE_MISSES)
        alone = IdleSystem.of(self._idle.requests)
        # a probe that was long enough for another objective may be too short for this one
        known = [
            (rate, load)
            for rate, load in self._loads
            if len(load.requests) >= alone.enough_requests(rate, slo, settings.requests)
        ]
        most = len(known) + settings.most
        start = alone.first_rate(settings.requests)
        search = RateSearch(settings.share, start, settings.tolerance, most, settings.confidence)
        for rate, load in known:
            search.add(load.probe(rate, slo))
        before = len(self._loads)
        ended = self._probe(search, slo, alone)
        ended = ended or ("narrow enough" if search.is_narrow else USED_UP)
        own = search.bracket()[0]
        # who meets an objective meets a wider one
        held = max([own or 0.0, *(rate for one, rate in self._held if latency.is_within(one, slo))])
        self._held += [(slo, held)] if held else []
        return FoundGoodput(
            search.probes,
            search.found(),
            self._limit(search, slo, ended, is_taken_over=bool(held and not own)),
            ended,
            sum(load.is_disturbed for _, load in known + self._loads[before:]),
            held or None,
        )

    def _idle_misses(self, slo: Slo, share: float) -> str:
        assert self._idle is not None
        wanted = self._settings.share
        digits = 3 if f"{share:.1%}" == f"{wanted:.1%}" else 1
        return (
            f"even one request at a time meets the slo in {share:.{digits}%} of the cases only "
            f"({limited_by(self._idle.shares(slo))}); expected {wanted:.{digits}%}"
        )

    def _probe(self, search: RateSearch, slo: Slo, alone: IdleSystem) -> str:
        """Probe until the search is over; why it was broken off, or nothing."""
        settings = self._settings
        most, limit = most_requests(self._system, settings.most_requests, settings.most_bundled)
        longest, late, disturbed = alone.highest_rate(most, slo), 0, 0.0
        self._ceiling = math.inf
        while (rate := search.next_rate()) is not None:
            held, idle = search.bracket()[0], 1 / (IDLE * alone.e2e_s)
            if search.probes and rate < idle and held is None:
                return IDLE_MISSES
            if rate > longest > max((one.asked for one in search.probes), default=0.0):
                rate = longest  # the highest that may be tried
            if _asked(rate) >= self._ceiling:
                if self._ceiling < (LATE_NEAR * held if held else idle):
                    return LATE
                rate = math.sqrt(held * self._ceiling) if held else self._ceiling / 2
            rate = _asked(rate)
            self._number += 1
            requests = alone.enough_requests(rate, slo, settings.requests)
            if requests > most:
                self._needs = (
                    f"{rate:g}/s needs {requests:,} requests; 'limits: {limit}' allows {most:,}"
                )
                return TOO_MANY
            load = Load("poisson", rate=rate)
            trial = self._prober.trial(self._system, load, self._number, requests)
            if (probed := self._run(trial)) is None:
                return FAILED
            if probed.is_late:
                late += 1
                if late >= MOST_LATE:
                    self._ceiling, late = rate, 0
                continue
            late = 0
            probe = probed.probe(rate, slo)
            if probed.is_disturbed and probe.share < settings.share and rate != disturbed:
                disturbed = rate  # others may have made it miss: it is asked once more
                continue
            self._loads.append((rate, probed))
            search.add(probe)
        return ""

    def _limit(self, search: RateSearch, slo: Slo, ended: str, *, is_taken_over: bool) -> str:
        if ended == LATE:
            return f"{CLIENT} at {self._ceiling:g}/s: more cannot be asked here"
        if ended == FAILED:
            return f"{FAILED}: {self._error}"
        if ended == TOO_MANY:
            return self._needs
        if ended == IDLE_MISSES:
            lowest = min(search.probes, key=lambda one: one.asked)
            return self._idle_misses(slo, lowest.share)
        low, high = search.bracket()
        if high is None:
            return HIGHEST if low else "nothing was seen"
        limit = limited_by(next(load.shares(slo) for rate, load in self._loads if rate == high))
        if low is None:
            whose = "that is of a narrower slo, and this one " * is_taken_over
            told = f"{whose}missed at {high:g}/s, the lowest rate tried ({limit})"
            return f"{told}; more --max-probes may find"
        return limit


def _asked(rate: float) -> float:
    """Of four digits."""
    return float(f"{rate:.4g}")


def _rates(one: FoundGoodput) -> dict[str, float | None]:
    found = one.found
    return {
        "rate_per_s": found.rate if found else None,
        "low_per_s": found.low if found else one.held,
        "high_per_s": found.high if found else None,
    }
