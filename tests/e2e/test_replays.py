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
from tests.support.exits.replays import FOUND, RATES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("replays")
    told: dict[str, Any] = {}
    for child in ("replay_child.py", "search_child.py"):
        run_child(CHILDREN / child, folder, record := folder / "record.json", NUMBA_OPT="0")
        told |= json.loads(record.read_text())
    return told


@pytest.mark.parametrize(
    "case", ["alone", "batch", "decaying", "state", "vllm", "drafts", "head", "medusa", "search"]
)
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


@pytest.mark.parametrize(("case", "accepted"), [("drafts", 50), ("search", 20)])
def test_drafts_of_another_model_stand_as_in_the_trace(
    found: dict[str, Any], case: str, accepted: int
) -> None:
    """Random weights, whose own drafts would never stand: all but the layer passes are equal."""
    there = _totals(found[f"{case} elsewhere"])
    one = _totals(found[f"{case} real"][1:2])
    assert one["drafted"] > one["accepted"] > accepted
    assert one["tokens"] < 64 * 12, "answers that end themselves"
    assert there == {
        **one,
        "layers_run": 2 * one["layers_run"],
        "layers_total": 2 * one["layers_total"],
    }


def test_some_of_medusas_drafts_stand(found: dict[str, Any]) -> None:
    """Of those that know the answers; the replay's are random, and do the same work."""
    commits = [done for poll in found["medusa real"] for done in poll]
    steps = [counts for *_, counts in commits if "drafted" in counts]
    assert {counts["drafted"] for counts in steps} == {3}
    assert {counts["accepted"] for counts in steps} == {0, 1, 2, 3}


def test_the_search_finds_as_many_as_there_may_be_or_fewer_or_none(found: dict[str, Any]) -> None:
    """And answers end in the middle of what it found."""
    commits = [done for poll in found["search real"][0] for done in poll]
    drafted = {counts["drafted"] for *_, counts in commits if "drafted" in counts}
    assert drafted > {0, 8}
    ends = [(tokens, counts) for _, tokens, finished, counts in commits if finished]
    assert any(tokens == counts.get("accepted") < counts["drafted"] for tokens, counts in ends)


def test_a_head_of_random_weights_reads_states_where_published_ones_do(
    found: dict[str, Any],
) -> None:
    assert found["states_after"] == [2, 8, 13]


@pytest.mark.parametrize(("case", "given"), [("rated", RATES), ("search rated", FOUND)])
def test_what_rates_say_stands(found: dict[str, Any], case: str, given: dict[str, Any]) -> None:
    """The counts are those of the rates, by hand."""
    rates, expected = parse_rates(given, "x"), Counter[str]()
    for name, most in found["asked"].items():
        row = drafts_of(rates, rates.row_for(name, most, ignore_eos=False))
        done = 1
        while done < most:
            _, made = row.chain(done - 1, 3)
            standing = min(row.standing(done - 1, made), most - done)
            expected.update(drafted=made, accepted=standing, steps=1)
            done += standing + 1
    told = _totals(found[case])
    assert {key: told[key] for key in expected} == expected
    assert told["tokens"] == sum(found["asked"].values())
    assert (expected["drafted"] < 3 * expected["steps"]) == ("found" in given)


def _totals(polls: Any) -> Counter[str]:
    """Counts of all commits in lists of polls, however deep."""
    found: Counter[str] = Counter()
    for one in polls:
        if one and isinstance(one[0], str):
            found.update({**one[3], "tokens": one[1]})
        else:
            found.update(_totals(one))
    return found
