"""A recorded run of our engine, replayed: the same work, commit by commit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import check_options, load_class, pins, settings
from backends.engine.streams import Stream
from backends.own.decisions import Replayer
from harness.core.backend import Backend
from harness.core.closure import Sources
from harness.core.errors import UserError
from harness.core.nouns import REPLAYED, Request
from results.traces.file import read_trace, write_trace
from tests.support.exits import demo_answers
from tests.support.exits.demo_answers import DEMO
from tests.support.exits.replays import (
    drive,
    record,
    totals,
    write_recorded,
)
from tests.support.results.made_traces import made_row, made_trace
from tests.support.tiny_llama import write_tiny_llama

OPTIONS: dict[str, dict[str, Any]] = {
    # exits that costs choose would differ: each engine measures its own anew
    "usual": {"gamma": 0.75, "exit_layers": [2, 5]},
    "reckless": {"gamma": 0.1, "exit_layers": [2, 4, 6], "max_drafts": 7},
    "trusting": {"gamma": 0.3, "exit_layers": [3], "verify": False},
}


def opened(directory: Path = DEMO, name: str = "adadecode", **options: Any) -> Backend:
    # queues get as long as measured costs say, so that polls would differ from load to load
    batching = {"batching": "lockstep"} if name == "adadecode" else {}
    return demo_answers.opened(name, directory, **{**batching, **options})


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return demo_answers.demo_requests(3, workloads=("gsm8k", "humaneval", "xsum"), tokens=64)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("case", OPTIONS)
def test_a_replay_does_the_same_work(
    case: str, concurrency: int, requests: list[Request], tmp_path: Path
) -> None:
    real = opened(**OPTIONS[case], record=True)
    expected = drive(real, requests, concurrency)
    trace = write_recorded(tmp_path / "trace", real, record(real, requests, concurrency))
    real.close()
    again = opened(**OPTIONS[case], replay=str(trace))
    assert drive(again, requests, concurrency) == expected
    assert drive(again, requests, concurrency) == expected, "after a reset"
    assert (again.info.provenance, again.info.lossless) == (REPLAYED, False)
    again.close()
    if case == "reckless":
        done = [commit.counts for commits in expected for commit in commits]
        drafted, accepted = (sum(c.get(k, 0) for c in done) for k in ("drafted", "accepted"))
        assert drafted > accepted > 0, "the case is about drafts that are thrown away"


def test_a_replay_with_queues_does_the_same_work(requests: list[Request], tmp_path: Path) -> None:
    """Which passes run together is measured anew by each engine, and what they decide is not."""
    options = {**OPTIONS["reckless"], "batching": "ready", "max_batch": 4}
    real = opened(**options, record=True)
    expected = totals(drive(real, requests, 4))
    trace = write_recorded(tmp_path / "trace", real, record(real, requests, 4))
    real.close()
    again = opened(**options, replay=str(trace))
    found = totals(drive(again, requests, 4))
    again.close()
    assert expected["drafted"] > expected["accepted"] > 0
    assert found == expected


def test_drafts_beyond_a_stop_are_replayed_too(requests: list[Request], tmp_path: Path) -> None:
    """Where the token that a wrong draft should have been ends the answer, what was drafted after
    it lies beyond the end."""
    real = opened(**OPTIONS["reckless"], record=True)
    asked = [one for one in map(partial(ending_at_a_wrong_draft, real), requests) if one]
    expected = drive(real, asked, 1)
    found = record(real, asked, 1)
    real.close()
    last = [(max(g.decisions.positions), len(g.token_ids) - 2) for g in found if g.decisions]
    assert any(position > end for position, end in last), "the case is about those"
    trace = write_recorded(tmp_path / "trace", real, found)
    again = opened(**OPTIONS["reckless"], replay=str(trace))
    assert drive(again, asked, 1) == expected
    again.close()


def ending_at_a_wrong_draft(backend: Backend, request: Request) -> Request | None:
    """The request with the token as a stop that first replaced a draft and two more after it."""
    (told,) = record(backend, [request], 1)
    assert told.decisions is not None
    at = 1
    for drafted, accepted in zip(told.decisions.drafted, told.decisions.accepted, strict=True):
        at += accepted + 1
        token = told.token_ids[at - 1]
        if drafted > accepted + 2 and token not in told.token_ids[: at - 1]:
            return replace(request, stop_ids=(token,))
    return None


@pytest.fixture(scope="module")
def dense(requests: list[Request], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that knows every exit at every token: nothing passes a threshold of 1."""
    real = opened(gamma=1.0, exit_layers=[2, 4, 6], record=True)
    found = record(real, requests, 4)
    path = write_recorded(tmp_path_factory.mktemp("dense") / "trace", real, found)
    real.close()
    return path


def test_a_deeper_model_does_the_same_work_at_its_own_layers(
    dense: Path, requests: list[Request], tmp_path: Path
) -> None:
    """Twice the layers, random weights: twice the layer passes, and all else equal."""
    directory = write_tiny_llama(tmp_path, layers=16)
    policy: dict[str, Any] = {"gamma": 0.6, "replay": str(dense)}
    shallow = opened(**policy, exit_layers=[2, 4, 6])
    expected = totals(drive(shallow, requests, 2))
    shallow.close()
    deep = opened(directory, **policy, exit_layers=[4, 8, 12])
    found = totals(drive(deep, requests, 2))
    deep.close()
    assert expected["drafted"] > expected["accepted"] > 0
    for name in ("steps", "step_tokens", "drafted", "accepted", "early_predictions", "tokens"):
        assert found[name] == expected[name], name
    for name in ("layers_run", "layers_total"):
        assert found[name] == 2 * expected[name], name
    for layer in (2, 4, 6):
        for what in ("checks", "exits", "accepted"):
            name = f"{what}_layer"
            assert found[f"{name}_{2 * layer}"] == expected[f"{name}_{layer}"], (name, layer)


def test_exits_are_chosen_on_the_replayed_trace_at_this_models_costs(
    dense: Path, tmp_path: Path
) -> None:
    directory = write_tiny_llama(tmp_path, layers=16)
    found = opened(directory, replay=str(dense)).info
    assert set(found.options["exit_layers"]) <= {4, 8, 12}
    assert found.measured.predicted_speedup is not None
    given = opened(directory, replay=str(dense), exit_layers=[8]).info
    assert given.options["exit_layers"] == [8]


def test_the_heads_know_the_first_tokens_of_a_shortlist(dense: Path, tmp_path: Path) -> None:
    directory = write_tiny_llama(tmp_path, layers=16)
    backend: Any = opened(directory, replay=str(dense), gamma=0.6, shortlist=64)
    asked = [Request(f"{i}", (3, 4, 5), 12, ignore_eos=True) for i in range(3)]
    done = [d for poll in drive(backend, asked, 2) for d in poll]
    assert sum(d.tokens for d in done) == 36
    assert {d.finished for d in done} == {None, "length"}
    backend.close()


def test_lengths_alone_are_replayed_by_plain_decoding(
    dense: Path, requests: list[Request], tmp_path: Path
) -> None:
    """Prompts are folded into a vocabulary that they were not written in."""
    directory = write_tiny_llama(tmp_path, layers=2)
    backend = opened(directory, "autoregressive", replay=str(dense))
    found = record(backend, requests, 4)
    trace = {row.request_id: row for row in read_trace(dense).rows}
    assert [len(g.token_ids) for g in found] == [trace[r.id].answer_tokens for r in requests]
    assert [g.finished for g in found] == [trace[r.id].finished for r in requests]
    assert len({g.finished for g in found}) == 2
    backend.close()


def test_rates_decide_for_a_model_of_any_depth(tmp_path: Path) -> None:
    directory = write_tiny_llama(tmp_path, layers=4)
    rates = {"exits": {"0.5": 1.0}, "acceptance": 1.0, "length": 25}
    backend = opened(directory, replay=rates, exit_layers=[2], gamma=0.5, max_drafts=3)
    asked = [Request("a", (3, 4, 5), 40)]
    found = totals(drive(backend, asked, 1))
    backend.close()
    # 24 tokens after the prompt's own, by three drafts and the pass that verifies them
    assert (found["tokens"], found["steps"], found["drafted"]) == (25, 6, 18)
    assert found["accepted"] == found["exits_layer_2"] == 18
    assert found["layers_run"] == 18 * 2 + 6 * 2 + 6 * 2


def test_answers_of_one_token_leave_nothing_to_choose() -> None:
    backend = opened(replay={"exits": {"0.5": 0.5}, "length": 1})
    found = totals(drive(backend, [Request("a", (3, 4, 5), 40)], 1))
    backend.close()
    assert backend.info.options["exit_layers"] == []
    assert found["tokens"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"replay": "nowhere"}, "option 'replay': no trace 'nowhere'; give demo, a file of"),
        ({"replay": "DENSE", "record": True}, "option 'record' has no meaning with 'replay'"),
        ({"replay": "OTHER"}, "is a trace of 'vllm-early-exit', not of 'adadecode'"),
        ({"replay": "LENGTHS"}, "tells lengths alone; run with 'record: true' for what was"),
        ({"replay": "DENSE", "exit_layers": [1, 2, 4, 6]}, "4 layers [1, 2, 4, 6], and the trace"),
        ({"replay": "DENSE", "exit_layers": [4, 5]}, "4 and 5 of 8 would replay the same exit"),
        ({"replay": "SPARSE", "gamma": 0.9}, "no confidence (NaN) for the exit at 0.75"),
        ({"replay": {"exits": {"0.5": 2}}}, "option 'replay'.exits.0.5: expected a number from 0"),
        ({"replay": {"acceptance": 0.9}}, "option 'replay': the rates have no 'exits'"),
        ({"replay": {}, "exit_layers": [2]}, "option 'replay': the rates have no 'exits'"),
        ({"replay": 3}, "option 'replay': expected str or dict, got 3"),
        ({"replay": "DENSE", "shortlist": 10**6}, "is more than the vocabulary of"),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_a_line(
    options: dict[str, Any], words: str, dense: Path, tmp_path: Path
) -> None:
    files = {
        "DENSE": dense,
        "OTHER": tmp_path / "other",
        "LENGTHS": tmp_path / "lengths",
        "SPARSE": tmp_path / "sparse",
    }
    write_trace(files["OTHER"], made_trace(method="vllm-early-exit"))
    alone = made_row(confidence=np.zeros((5, 0), np.float32), agrees=np.zeros((5, 0), np.int8))
    write_trace(files["LENGTHS"], made_trace(exits=(), thresholds=(), rows=(alone,)))
    write_trace(files["SPARSE"], made_trace())
    replay = options["replay"]
    named = str(files.get(replay, replay)) if isinstance(replay, str) else replay
    with pytest.raises(UserError) as caught:
        check_options("adadecode", {**options, "replay": named}, DEMO)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shape_decides_nothing_of_its_own() -> None:
    for name in ("adadecode", "vllm-early-exit"):
        with pytest.raises(UserError, match=r"^random weights decide nothing; give 'replay: demo'"):
            load_class(name).check_shape(DEMO, settings(name, {}))
        load_class(name).check_shape(DEMO, settings(name, {"replay": "demo"}))
    load_class("vllm-early-exit").check_shape(
        DEMO, settings("vllm-early-exit", {"measure": "static"})
    )


def test_the_trace_pins_its_trials(dense: Path) -> None:
    for name in ("adadecode", "autoregressive", "vllm", "vllm-early-exit"):
        asked = settings(name, {"replay": str(dense)})
        if name != "vllm-early-exit":
            assert dense in load_class(name).files(DEMO, asked)
        assert not any("results/run" in path for path in pins.code(name, Sources()))
        assert "results/traces/recorded.py" in pins.code(name, Sources())


def test_a_draft_that_is_made_anew_is_decided_as_it_was() -> None:
    """At position 1 the recorded run was sure and wrong, then unsure and right."""
    replayer = Replayer(made_trace(), [0, 1])
    stream = Stream("gsm8k-1", (9,), 16, tokens=[9, 5, 6])
    replayer.enter(stream, Request("gsm8k-1", (9,), 16))
    assert stream.last == 5
    for sure, chosen, selected in (([0.2, 0.8], [7, 3], [6, 3]), ([0.3, 0.6], [4, 3], [7, 3])):
        found = [replayer.confidence(stream, exit_, 7, 0.0) for exit_ in (0, 1)]
        assert found == pytest.approx(sure)
        stream.tokens = [9, 5, 6, 7]
        assert replayer.selected(stream, 2, chosen) == selected
        stream.tokens = [9, 5, 6]
