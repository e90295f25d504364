"""Recorded drafts on our engine, replayed: the same chains and the same work, on any shape."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.own.speculative import Speculative
from harness.core.backend import Backend
from harness.core.nouns import REPLAYED, Load, Request, Sampling
from harness.measure.load_loop import run_load
from results.traces.file import read_trace
from tests.support.exits import demo_answers
from tests.support.exits.demo_answers import DEMO
from tests.support.exits.replays import (
    Done,
    drive,
    record,
    totals,
    write_recorded,
)
from tests.support.small_shapes import small_shape

METHODS: dict[str, dict[str, Any]] = {
    "draft_model": {"method": "draft_model", "drafts": 5},
    "prompt_lookup": {"method": "prompt_lookup", "drafts": 5},
    "layerskip": {"method": "layerskip", "drafts": 5, "exit_layer": 4},
    "self_speculation": {"method": "self_speculation", "drafts": 5},
    "eagle3": {"method": "eagle3", "drafts": 5},
    "lookahead": {"method": "lookahead", "drafts": 4, "ngram": 5, "pool_prompt": False},
}
WORK = ("steps", "step_tokens", "drafted", "accepted", "tokens")


@dataclass(frozen=True)
class Recorded:
    """Real runs of each method: the trace, and what came of each poll, by requests in flight."""

    trace: dict[str, Path]
    done: dict[tuple[str, int], list[list[Done]]]


def opened(directory: Path = DEMO, **options: Any) -> Backend:
    return demo_answers.opened("speculative", directory, **options)


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    """The last ones sample; one ends for want of room in the middle of a chain."""
    changes: list[dict[str, Any]] = [
        {},
        {"max_new_tokens": 13},
        {"sampling": Sampling(temperature=0.7, top_p=0.9, seed=3)},
    ]
    asked = demo_answers.demo_requests(len(changes), workloads=("gsm8k", "xsum"), tokens=64)
    return [replace(r, **changes[i % len(changes)]) for i, r in enumerate(asked)]


@pytest.fixture(scope="module")
def recorded(requests: list[Request], tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder, found = tmp_path_factory.mktemp("drafts"), Recorded({}, {})
    for name, options in METHODS.items():
        real = opened(**options, record=True)
        for concurrency in (1, 4):
            found.done[name, concurrency] = drive(real, requests, concurrency)
        path = folder / name
        found.trace[name] = write_recorded(path, real, record(real, requests, 3))
        real.close()
    return found


@pytest.mark.parametrize("name", METHODS)
def test_a_replay_does_the_same_work(
    name: str, requests: list[Request], recorded: Recorded
) -> None:
    """Commit by commit, whatever was in flight beside it when the trace was recorded."""
    again = opened(**METHODS[name], replay=str(recorded.trace[name]))
    for concurrency in (4, 1):
        expected = recorded.done[name, concurrency]
        assert drive(again, requests, concurrency) == expected
        counts = totals(expected)
        assert counts["drafted"] > counts["accepted"] > 0, "the case has drafts that fall"
    assert (again.info.provenance, again.info.lossless) == (REPLAYED, False)
    again.close()


def test_a_chain_that_the_drafter_ends_costs_the_pass_that_ended_it(recorded: Recorded) -> None:
    rows = read_trace(recorded.trace["draft_model"]).rows
    more = Counter(int(x) for row in rows for x in row.asked - row.drafted)
    assert set(more) == {0, 1}
    assert read_trace(recorded.trace["draft_model"]).settings["method"] == "draft_model"


@pytest.fixture
def shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return models.resolve(small_shape(tmp_path / "target", num_hidden_layers=16))


@pytest.mark.parametrize("name", METHODS)
def test_random_weights_do_the_same_work(
    name: str, requests: list[Request], recorded: Recorded, shape: Path
) -> None:
    """Twice as many layers do all but the layer passes alike, and twice as many of these."""
    options = {k: v for k, v in METHODS[name].items() if k != "exit_layer"}
    backend = opened(shape, **options, replay=str(recorded.trace[name]))
    expected, found = (
        totals(polls) for polls in (recorded.done[name, 4], drive(backend, requests, 4))
    )
    backend.close()
    judged = [key for key in expected if "_at_" in key]
    assert len(judged) >= 4
    for key in (*WORK, *judged):
        assert found[key] == expected[key], key
    for key in ("layers_run", "layers_total"):
        assert found[key] == 2 * expected[key], key
    if name == "layerskip":
        assert backend.info.options["exit_layer"] == 8


def test_sublayers_are_left_out_at_the_depths_of_the_trace(
    requests: list[Request], recorded: Recorded, shape: Path
) -> None:
    trace = recorded.trace["self_speculation"]
    backend: Any = opened(shape, **METHODS["self_speculation"], replay=str(trace))
    told = {**read_trace(trace).settings}
    for kind in ("attention", "mlp"):
        twice = [x for layer in told[f"skipped_{kind}"] for x in (2 * layer, 2 * layer + 1)]
        assert backend.info.options[f"skipped_{kind}"] == twice
    backend.close()


def test_a_head_of_random_weights_really_drafts(
    requests: list[Request], recorded: Recorded, shape: Path
) -> None:
    """One pass of it for each token that was asked for, with states from the trace's depths."""
    trace = recorded.trace["eagle3"]
    backend: Any = opened(shape, **METHODS["eagle3"], replay=str(trace))
    assert read_trace(trace).settings["states_after"] == [2, 5, 8]
    assert backend.info.options["states_after"] == [4, 10, 16]
    head = backend._decoder._drafter._drafter._head
    asked: list[int] = []
    continued = head.continued

    def counted(*args: Any) -> Any:
        asked.append(int(args[2][0]))
        return continued(*args)

    backend._decoder._drafter._drafter._chains._executor.continued = counted
    drive(backend, [replace(r, sampling=Sampling()) for r in requests[:1]], 1)
    backend.close()
    assert asked == [x for x in read_trace(trace).rows[0].asked.tolist() if x]


def test_a_search_for_a_set_is_replayed_with_what_it_costs(
    requests: list[Request], tmp_path: Path, shape: Path
) -> None:
    """On the model that was recorded, in the same order, the very steps; elsewhere as many drafts,
    each without the same share of the sublayers."""
    options: dict[str, Any] = {"method": "swift", "drafts": 5}
    real = opened(**options, record=True)
    expected = drive(real, requests, 1)
    trace = write_recorded(tmp_path / "swift", real, record(real, requests, 1))
    real.close()
    again = opened(**options, replay=str(trace))
    assert drive(again, requests, 1) == expected
    again.close()
    other = opened(shape, **options, replay=str(trace))
    found, counts = totals(drive(other, requests, 1)), totals(expected)
    other.close()
    assert [found[key] for key in WORK] == [counts[key] for key in WORK]
    assert found["set_steps"] >= counts["set_steps"] > 0


def test_the_draft_model_really_runs(
    requests: list[Request], recorded: Recorded, shape: Path
) -> None:
    """Of a stream alone each token that was asked for is a pass; its vocabulary is the target's."""
    trace = recorded.trace["draft_model"]
    backend: Any = opened(shape, **METHODS["draft_model"], replay=str(trace))
    drafter = backend._decoder._drafter._drafter
    executor = drafter._executor
    assert executor.architecture.vocabulary == 1536
    assert executor.architecture.layers == 2
    assert backend.info.options["draft"] == "the model's first 2 layers"
    asked: list[int] = []
    continued = executor.continued

    def counted(*args: Any) -> Any:
        asked.append(int(args[2][0]))
        return continued(*args)

    executor.continued = counted
    row = read_trace(trace).rows[0]
    drive(backend, [replace(r, sampling=Sampling()) for r in requests[:1]], 1)
    assert asked == [x for x in row.asked.tolist() if x]
    assert sum(asked) > row.drafted.sum() > row.accepted.sum()
    backend.close()


@pytest.mark.parametrize("name", METHODS)
def test_arrivals_change_no_chain(
    name: str, requests: list[Request], recorded: Recorded, shape: Path
) -> None:
    """Requests that come in the middle of others' chains, as many as there are slots and more."""
    options = {k: v for k, v in METHODS[name].items() if k != "exit_layer"}
    backend = opened(shape, **options, max_num_seqs=2, replay=str(recorded.trace[name]))
    times = [0.0, 0.004, 0.006, 0.007, 0.011, 0.02]
    asked = [replace(r, arrival_s=t) for r, t in zip(requests, times, strict=True)]
    found = run_load(backend, asked, Load("trace", trace="x"))
    backend.close()
    trace = {row.request_id: row for row in read_trace(recorded.trace[name]).rows}
    for one in found:
        row = trace[one.request_id]
        assert len(one.token_ids) == row.answer_tokens
        verified = row.offered if name == "lookahead" else row.drafted
        assert one.telemetry.get("drafted", 0) == verified.sum()
        assert one.telemetry.get("accepted", 0) == row.accepted.sum()


def test_fewer_drafts_stand_where_they_stood(requests: list[Request], recorded: Recorded) -> None:
    """Chains of two on the demo model: what really is accepted, but for drawn positions."""
    for name in ("draft_model", "layerskip"):
        options = {**METHODS[name], "drafts": 2}
        real, again = opened(**options), opened(**options, replay=str(recorded.trace[name]))
        expected, found = (totals(drive(b, requests, 4)) for b in (real, again))
        rates = [counts["accepted"] / counts["drafted"] for counts in (expected, found)]
        assert rates[0] == pytest.approx(rates[1], abs=0.04), name
        assert expected["steps"] == pytest.approx(found["steps"], rel=0.04), name
        assert Speculative.warnings(DEMO, {**again.info.options, "drafts": 2})
        assert not Speculative.warnings(DEMO, {**again.info.options, "drafts": 5})


def test_the_number_of_drafts_may_be_left_open(
    requests: list[Request], recorded: Recorded, shape: Path
) -> None:
    backend = opened(shape, method="draft_model", replay=str(recorded.trace["draft_model"]))
    found = totals(drive(backend, requests, 4))
    backend.close()
    assert found["tokens"] == totals(recorded.done["draft_model", 4])["tokens"]
    assert found["drafted"] >= found["accepted"] >= 0
