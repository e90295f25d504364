"""The open loop of `workers.py`: the same Poisson arrivals for every system.

The rate is a share of the tokens a second that are predicted of the two stages, over the mean
length of the answers. A system of several workers is given the arrivals by turns. The objective is
a request's latency from its scheduled arrival: `--within` times the median that the model in each
worker needed in the closed loop at the same batch. Goodput is answers within it a second, from the
first arrival to the last answer (docs/metrics.md); `kept` is the share of requests that meet it, to
be held against the prediction that a rate below the planned one is met. Requests are few, so that
the end of the run, when none arrive any more, is a part of it: the same for all.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.support.turns import in_turns
from benchmarks.tetris.backend_process import BackendProcess, answers
from harness.core.nouns import Generation, Load, Request
from workloads.arrivals import arrival_times

SEED = 11
BASELINES = ("plain", "shrinking", "regrouping")


def at_rate(
    chosen: argparse.Namespace,
    workers: Mapping[str, Sequence[BackendProcess]],
    wanted: Sequence[Request],
    tokens_per_s: float,
    closed: Sequence[Generation],
) -> dict[str, Any]:
    """Goodput of every system under arrivals of so many tokens a second, and over the baselines'.

    Args:
        closed: answers of the closed loop, which tell how long they are and what one takes.
    """
    rate = tokens_per_s / statistics.mean(len(one.token_ids) for one in closed)
    limit_s = chosen.within * statistics.median(map(latency_s, closed))
    load = Load("poisson", rate=rate)
    times = arrival_times(load, len(wanted), SEED)
    arriving = [replace(one, arrival_s=at) for one, at in zip(wanted, times, strict=True)]
    kept: dict[str, list[float]] = {label: [] for label in workers}

    def turn(label: str) -> float:
        found = answers(workers[label], arriving, load)
        good, share = goodput(found, limit_s)
        kept[label].append(share)
        return good

    calls = {label: partial(turn, label) for label in workers}
    rates = in_turns(calls, chosen.repeats)
    told: dict[str, Any] = {
        "requests_per_s": round(rate, 3),
        "came_per_s": round((len(times) - 1) / times[-1], 3),
        "objective_s": round(limit_s, 3),
    }
    for label, found in rates.items():
        # the first round does not count
        share = statistics.median(kept[label][1:])
        told[label] = {"goodput_per_s": round(statistics.median(found), 3), "kept": round(share, 3)}
        for other in BASELINES:
            if other != label and all(rates[other]):
                ratios = [a / b for a, b in zip(found, rates[other], strict=True)]
                told[label][f"over_{other}"] = round(statistics.median(ratios), 3)
    return told


def latency_s(one: Generation) -> float:
    """From its scheduled arrival to its last token, seconds."""
    return (one.commit_ns[-1] - one.scheduled_ns) / 1e9


def goodput(found: Sequence[Generation], limit_s: float) -> tuple[float, float]:
    """Answers within `limit_s` a second, from the first submit to the last answer of all workers
    together, and their share of all."""
    good = sum(latency_s(one) <= limit_s for one in found)
    first, last = min(one.submitted_ns for one in found), max(one.commit_ns[-1] for one in found)
    return good / ((last - first) / 1e9), good / len(found)
