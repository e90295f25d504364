"""Recorded runs of vLLM's backends, replayed on the model they were recorded from: the same work,
commit by commit. Our own engine's are in tests/unit/backends/own/test_replays.py."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from typing import Any

import pytest

from results.traces.rated import drafts_of
from results.traces.rates import parse_rates
from tests.support.child import CHILDREN, run_child
from tests.support.exits.replays import RATES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("replays")
    record = folder / "record.json"
    run_child(CHILDREN / "replay_child.py", folder, record, timeout=900)
    told: dict[str, Any] = json.loads(record.read_text())
    return told


@pytest.mark.parametrize("case", ["alone", "batch", "decaying", "state", "vllm", "drafts", "head"])
def test_a_replay_does_the_same_work(found: dict[str, Any], case: str) -> None:
    assert found[f"{case} replayed"] == found[f"{case} real"]


def test_the_cases_leave_early_and_in_batches(found: dict[str, Any]) -> None:
    for case in ("alone", "batch", "decaying", "state"):
        counts = [done[3] for poll in found[f"{case} real"] for done in poll if done[2]]
        assert sum(c.get("layers_skipped", 0) for c in counts) > 0, case
    rows = [done[3]["batch_rows"] for poll in found["batch real"] for done in poll if done[2]]
    assert max(rows) > 64, "steps of several requests"


def test_a_replay_says_that_it_is_one(found: dict[str, Any]) -> None:
    assert found["info"] == ["measured cost, replayed decisions", False]


def test_drafts_of_another_model_stand_as_in_the_trace(found: dict[str, Any]) -> None:
    """Random weights, whose own drafts would never stand: all but the layer passes are equal."""
    there = _totals(found["drafts elsewhere"])
    one = _totals(found["drafts real"][1:2])
    assert one["drafted"] > one["accepted"] > 50
    assert one["tokens"] < 64 * 12, "answers that end themselves"
    assert there == {
        **one,
        "layers_run": 2 * one["layers_run"],
        "layers_total": 2 * one["layers_total"],
    }


def test_a_head_of_random_weights_drafts_what_rates_let_stand(found: dict[str, Any]) -> None:
    """After the states that published heads read; the counts are those of the rates, by hand."""
    assert found["states_after"] == [2, 8, 13]
    rates, accepted, steps = parse_rates(RATES, "x"), 0, 0
    for name, most in found["asked"].items():
        row = drafts_of(rates, rates.row_for(name, most, ignore_eos=False))
        done = 1
        while done < most:
            standing = min(row.standing(done - 1, 3), most - done)
            accepted, steps, done = accepted + standing, steps + 1, done + standing + 1
    told = _totals(found["rated"])
    assert (told["accepted"], told["steps"]) == (accepted, steps)
    assert told["tokens"] == sum(found["asked"].values())


def _totals(polls: Any) -> Counter[str]:
    """Counts of all commits in lists of polls, however deep."""
    found: Counter[str] = Counter()
    for one in polls:
        if one and isinstance(one[0], str):
            found.update({**one[3], "tokens": one[1]})
        else:
            found.update(_totals(one))
    return found
