"""One pass over the stored requests: what the plots and the list of answers need of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.core.names import QUALITY
from harness.core.nouns import Load, Slo, Trial, canonical_json, to_json
from reports.cells import Cell, Overview
from reports.sections.answers.requests import Answers
from reports.sections.exits.forecasts import LAST_VALUE, NextWindow
from results.compare.judged import Mean, add_scores
from results.compare.rivals import RequestTimes
from results.compare.stats import by_row
from results.goodput.saturation import kept_up
from results.metrics import latency
from results.metrics.arrays import Floats, RequestArrays
from results.metrics.latency import busy_share
from results.metrics.survival import SurvivalSeries, survival_series

if TYPE_CHECKING:
    from results import Run
    from results.store.records import StoredTrial

SCALES = tuple(float(s) for s in np.geomspace(0.5, 4.0, 25))
LATENCIES = {"ttft_s": latency.ttft_s, "tpot_s": latency.tpot_s, "e2e_s": latency.e2e_s}


class OpenRepeat(NamedTuple):
    """How a system stood up to an open load in one repeat."""

    busy: float
    """The share of the time in which any request was on its way."""
    kept_up: bool
    """Whether answers fell no further behind requests: `results.goodput.saturation.kept_up`."""


@dataclass(slots=True)
class Samples:
    """What one pass over the requests of a run leaves behind."""

    latencies: dict[str, dict[Cell, list[Floats]]] = field(
        default_factory=lambda: {name: defaultdict(list) for name in LATENCIES}
    )
    """Metric -> cell -> the values per request in seconds, one array per repeat."""
    goodput: dict[Cell, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    """Cell -> for each repeat, the goodput at each of `SCALES`."""
    scores: dict[tuple[int, str, str, str], dict[str, Mean]] = field(default_factory=dict)
    """(variant index, workload, `Cell.apart`, score name) -> prompt -> its mean score (see
    `add_scores`)."""
    times: dict[str, dict[Cell, dict[int, RequestTimes]]] = field(
        default_factory=lambda: {name: defaultdict(dict) for name in LATENCIES}
    )
    """Metric -> cell -> repeat -> its requests' times, of the repeats that the cell uses."""
    answers: dict[tuple[str, str], Answers] = field(default_factory=lambda: defaultdict(Answers))
    """(workload, `Cell.apart`) -> answers."""
    more_prompts: dict[str, int] = field(default_factory=dict)
    """Workload -> prompts beyond those of the loads, of which `scores` has the scores."""
    survival: dict[Cell, SurvivalSeries] = field(default_factory=dict)
    """Cell -> that of the first of the repeats that it uses."""
    open_repeats: dict[Cell, list[OpenRepeat]] = field(default_factory=lambda: defaultdict(list))
    """Cell of an open load -> for each repeat that it uses, how it stood up to the arrivals."""
    workers: dict[Cell, list[Sequence[Mapping[str, Any]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Cell -> for each repeat that it uses and that tells it, where each worker ran."""
    next_window: NextWindow = LAST_VALUE
    more_failed: int = 0
    """Trials of such prompts that did not end well."""

    def scores_of(self, cell: Cell, name: str) -> Mapping[str, Mean]:
        """Those of all answers to the cell's workload, under whatever load; empty without any."""
        return self.scores.get((cell.variant.index, cell.workload, cell.apart, name), {})


def collect(
    run: Run,
    overview: Overview,
    more: Run | None = None,
    next_window: NextWindow = LAST_VALUE,
    window_s: float | None = None,
) -> Samples:
    """Read every trial once, one comparison group at a time. `more`: trials of more prompts, of
    which the scores alone are read; a variant's are pooled with its others on the workload, as far
    as machine and settings are the same. `window_s`: see
    `results.metrics.survival.survival_series`."""
    samples = Samples(next_window=next_window)
    cells = overview.by_key()
    left_out = {row["key"] for row in overview.rows if row["left_out"]}
    for group in run.groups():
        for member in group:
            key, requests = member.stored.record.key, member.requests
            if requests is None:
                continue
            if not cells[key].variant.is_replay and member.answers_stand:
                _add_scores(samples, cells[key], requests)
                place = cells[key].workload, cells[key].apart
                samples.answers[place].add(cells[key].variant, requests)
            if key not in left_out:
                _add_times(samples, cells[key], requests)
                _add_open_repeat(samples, cells[key], member.trial, requests)
                _add_survival(samples, cells[key], requests, window_s)
                if workers := member.stored.record.environment.get("workers"):
                    samples.workers[cells[key]].append(workers)
                for name, values in LATENCIES.items():
                    times = RequestTimes(requests.ids, by_row(requests, values))
                    samples.times[name][cells[key]][member.trial.repeat] = times
    if more is not None:
        places: dict[str, dict[str, Cell]] = {}
        for stored in run.stored:
            cell = cells[stored.record.key]
            places.setdefault(_asked(stored), {})[cell.apart] = cell
        _add_more(samples, places, more)
    return samples


def _add_more(samples: Samples, places: Mapping[str, Mapping[str, Cell]], more: Run) -> None:
    """`places`: what was asked -> a cell of each part of the run that asked it, by `Cell.apart`."""
    for group in more.groups():
        for member in group:
            found = places.get(_asked(member.stored), {})
            if found and member.requests is None:
                samples.more_failed += 1
            if member.requests is None:
                continue
            for cell in found.values():
                if member.answers_stand:
                    _add_scores(samples, cell, member.requests)
                count = max(samples.more_prompts.get(cell.workload, 0), len(member.requests))
                samples.more_prompts[cell.workload] = count


def _asked(stored: StoredTrial) -> str:
    """Equal for trials of one engine and machine that ask a workload with the same settings,
    whichever of its prompts and under whatever load."""
    trial = stored.record.trial
    workload = replace(trial.workload, rows=None, checksum=None)
    load = Load(QUALITY)
    alike = replace(trial, workload=workload, load=load, requests=0, repeat=0, duration_s=None)
    return canonical_json([stored.record.environment.get("fingerprint"), to_json(alike)])


def _add_times(samples: Samples, cell: Cell, requests: RequestArrays) -> None:
    for name, values in LATENCIES.items():
        found = values(requests)
        samples.latencies[name][cell].append(found[~np.isnan(found)])
    if cell.has_slo:
        samples.goodput[cell].append(scaled_goodput(requests, cell.slo))


def _add_survival(
    samples: Samples, cell: Cell, requests: RequestArrays, window_s: float | None
) -> None:
    if cell not in samples.survival:
        series = survival_series(requests, window_s)
        if series is not None:
            samples.survival[cell] = series


def _add_open_repeat(samples: Samples, cell: Cell, trial: Trial, requests: RequestArrays) -> None:
    share = busy_share(requests) if trial.load.is_open else None
    if share is not None:
        left = requests.commit_ns[requests.last_commit()]
        found = OpenRepeat(share, kept_up(requests.scheduled_ns, left))
        samples.open_repeats[cell].append(found)


def _add_scores(samples: Samples, cell: Cell, requests: RequestArrays) -> None:
    place = cell.variant.index, cell.workload, cell.apart
    own = {name: samples.scores.setdefault((*place, name), {}) for name in requests.scores}
    add_scores(own, requests)


def scaled_goodput(requests: RequestArrays, slo: Slo) -> list[float]:
    """Goodput in requests per second with every bound of the objective multiplied by each of
    `SCALES`."""
    return [latency.goodput_req_per_s(requests, latency.scaled(slo, s)) or 0.0 for s in SCALES]


def pooled(arrays: Sequence[Floats]) -> Floats:
    """The repeats of a cell as one array."""
    return np.concatenate(arrays) if arrays else np.empty(0)
