"""Which stages the planner leaves out before it counts devices."""

from __future__ import annotations

import numpy as np
import pytest

from backends.tetris import useful_stages
from backends.tetris.device_search import least_latency
from backends.tetris.profile import cluster_from, profile_from
from backends.tetris.stage_costs import StageCosts, stage_costs
from backends.tetris.useful_stages import UsefulStages

LAYERS = 20
SLOW = {"new": 1.0, "old": 2.1, "oldest": 4.3}


@pytest.fixture(scope="module")
def costs() -> StageCosts:
    told = {
        "layers": LAYERS,
        "batch": 8,
        "survival": [1 - 0.03 * n for n in range(LAYERS + 1)],
        "layer_ms": {kind: [slow] * LAYERS for kind, slow in SLOW.items()},
        "ramp_ms": {kind: 0.1 * slow for kind, slow in SLOW.items()},
        "transfer_ms": 0.3,
    }
    profile = profile_from(told, "profile")
    cluster = {"devices": {"new": 3, "old": 4, "oldest": 6}, "price": dict.fromkeys(SLOW, 1.0)}
    return stage_costs(profile, cluster_from(cluster, "cluster", profile))


def test_within_the_latency_nothing_changes_and_beyond_it_most_is_left_out(
    costs: StageCosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(useful_stages, "FEW", 0)
    useful = UsefulStages(costs)
    kept = []
    for cycle_ms in (3.5, 4.0, 5.0, 7.0):
        counts, waits = costs.needed(cycle_ms), costs.waits(cycle_ms)
        every = UsefulStages(costs).added(counts, waits, np.inf)
        truth = least_latency(costs, counts, every)[-1]
        for most_ms in (float(truth.min()) * share for share in (0.9, 1.0, 1.05, 1.5)):
            added = useful.added(counts, waits, most_ms)
            found = least_latency(costs, counts, added)[-1]
            within = truth <= most_ms
            assert found[within].tolist() == truth[within].tolist()
            assert (found[~within] > most_ms).all()
            kept.append(np.count_nonzero(added < np.inf) / np.count_nonzero(every < np.inf))
    impossible, tight = kept[::4], kept[1::4]
    assert max(impossible) < 0.3
    assert max(tight) < 0.5


def test_prices_leave_out_what_devices_do_not_suffice_for(
    costs: StageCosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quickest stages alone are within the latency; there are not devices enough for them."""
    counts, waits = costs.needed(3.5), costs.waits(3.5)
    every = UsefulStages(costs).added(counts, waits, np.inf)
    most_ms = 0.95 * float(least_latency(costs, counts, every)[-1].min())
    unpriced = UsefulStages(costs).added(counts, waits, most_ms)
    monkeypatch.setattr(useful_stages, "FEW", 0)
    priced = UsefulStages(costs).added(counts, waits, most_ms)
    assert np.count_nonzero(priced < np.inf) < 0.5 * np.count_nonzero(unpriced < np.inf)
