"""From an experiment on own prompts to requests, and back to texts and scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.scripted import ScriptedBackend
from harness.cli import wiring
from harness.cli.session import EngineSession
from harness.core.errors import UserError
from harness.core.nouns import Generation, Request, Trial
from harness.experiment.config import parse_experiment
from tests.support.tiny_llama import EOS_ID, write_tiny_llama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model"))


def trials(model: Path, workload: dict[str, Any], **changes: Any) -> list[Trial]:
    content = {
        "name": "x",
        "model": str(model),
        "backends": ["scripted"],
        "workloads": [workload],
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 3,
    }
    experiment = parse_experiment(content | changes, "x.yaml", wiring.known())
    return wiring.resolve(experiment).trials()


def session(model: Path) -> EngineSession:
    return EngineSession(ScriptedBackend({}), models.load_tokenizer(model), (EOS_ID,), 0.0)


def measured(model: Path, trial: Trial) -> list[Request]:
    return session(model).requests(trial)[1]


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_scores_are_those_of_each_row(model: Path, tmp_path: Path) -> None:
    rows = [
        {"id": 1, "prompt": "a , b", "answer": "return", "scorer": "contains"},
        {"id": 2, "prompt": "b . c", "answer": "^x", "scorer": "regex"},
        {"id": 3, "prompt": "c"},
    ]
    source = write(tmp_path / "p.jsonl", rows)
    (trial,) = trials(model, {"name": "jsonl", "source": source})
    opened = session(model)
    ids = opened.tokenizer.encode("return x")
    generations = [
        Generation(r.id, 0, 0, 0, [1], [len(ids)], ids, "stop") for r in opened.requests(trial)[1]
    ]
    texts, scores = opened.finish(trial, generations)
    assert set(texts) == {"jsonl-1", "jsonl-2", "jsonl-3"}
    assert scores == {
        "jsonl-1": {"contains_answer": 1.0},
        "jsonl-2": {"matches_pattern": 0.0},
        "jsonl-3": {},
    }


def test_a_pattern_without_an_end_is_remarked_with_its_request(model: Path, tmp_path: Path) -> None:
    row = {"id": 1, "prompt": "a", "answer": "^(.+)+QQ$", "scorer": "regex"}
    (trial,) = trials(model, {"name": "jsonl", "source": write(tmp_path / "p.jsonl", [row])})
    opened = session(model)
    ids = opened.tokenizer.encode("return x , y . z return x , y . z return x , y . z")
    answers = [Generation("jsonl-1", 0, 0, 0, [1], [len(ids)], ids, "stop")]
    assert opened.finish(trial, answers)[1] == {"jsonl-1": {}}
    (remark,) = opened.remarks(trial)
    assert remark.startswith("unscored: 1 without a score; on the answer to 'jsonl-1' the row's")
    opened.finish(trial, [])
    assert opened.remarks(trial) == []


def test_a_chat_keeps_its_messages_for_servers_that_want_them(model: Path, tmp_path: Path) -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    rows = [{"id": 1, "messages": [*said, *said[:1]]}, {"id": 2, "prompt": "c"}]
    source = write(tmp_path / "p.jsonl", rows)
    (trial,) = trials(model, {"name": "jsonl", "source": source}, requests=2)
    warm_up, asked = session(model).requests(trial)
    assert [request.messages for request in warm_up] == [(), ()], "they are the measured prompts"
    found = {request.id: request.messages for request in asked}
    assert found["jsonl-1"] == (("user", "a"), ("assistant", "b"), ("user", "a"))
    assert found["jsonl-2"] == (("user", "c"),)


def test_recorded_lengths_are_kept_whatever_the_model_says(model: Path, tmp_path: Path) -> None:
    talk = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "x , y"}]}
    source = write(tmp_path / "p.jsonl", [talk])
    workload = {"name": "sharegpt", "source": source, "recorded_lengths": True}
    (trial,) = trials(model, workload)
    length = len(session(model).tokenizer.encode("x , y", add_special_tokens=False))
    for request in measured(model, trial):
        assert (request.max_new_tokens, request.ignore_eos) == (length, True)
    strict = session(model)
    capabilities = frozenset({"server", "ends-at-eos"})
    strict.backend.info = replace(strict.backend.info, capabilities=capabilities)
    with pytest.raises(UserError, match="the lengths that workload 'sharegpt' asks for"):
        strict.requests(trial)
    (free,) = trials(model, {**workload, "recorded_lengths": False})
    assert not any(r.ignore_eos for requests in strict.requests(free) for r in requests)
    with pytest.raises(UserError, match="lengths that 'ignore_eos' asks for"):
        strict.requests(replace(free, ignore_eos=True))
    (trial,) = trials(model, {**workload, "max_new_tokens": length - 1})
    assert {request.max_new_tokens for request in measured(model, trial)} == {length - 1}
    (trial,) = trials(model, {**workload, "recorded_lengths": False})
    for request in measured(model, trial):
        assert (request.max_new_tokens, request.ignore_eos) == (1024, False)


def test_lengths_that_are_cut_are_said_at_the_start_and_with_the_trial(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def talk(reply: str) -> dict[str, Any]:
        return {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": reply}]}

    source = write(tmp_path / "p.jsonl", [talk("x"), talk("x , y . z"), talk("return x , y")])
    workload = {"name": "sharegpt", "source": source, "recorded_lengths": True}
    tokenizer = session(model).tokenizer
    lengths = [len(tokenizer.encode(t, add_special_tokens=False)) for t in ("x , y . z", "x")]
    most, least = lengths
    (trial,) = trials(model, {**workload, "max_new_tokens": least})
    cut = f"'max_new_tokens', {least}, cuts 2 of 3 answers, whose lengths are given (the longest: "
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: workload sharegpt: {cut}")
    (remark,) = session(model).remarks(trial)
    assert remark.startswith(f"lengths-cut: {cut}")
    for changes in (
        {"max_new_tokens": most + 20},
        {"max_new_tokens": 1, "recorded_lengths": False},
    ):
        (trial,) = trials(model, workload | changes)
        assert session(model).remarks(trial) == []
        assert capsys.readouterr().err == ""


def test_a_row_may_give_the_length_of_its_answer(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": 1, "output_tokens": 9}, {"id": 2, "max_new_tokens": 30}, {"id": 3}]
    source = write(tmp_path / "p.jsonl", [row | {"prompt": "a"} for row in rows])
    entry = {"name": "jsonl", "source": source}
    (trial,) = trials(model, entry)
    found = {r.id: (r.max_new_tokens, r.ignore_eos) for r in measured(model, trial)}
    assert found == {"jsonl-1": (9, True), "jsonl-2": (30, False), "jsonl-3": (256, False)}
    assert capsys.readouterr().err == ""
    (trial,) = trials(model, entry | {"max_new_tokens": 20})
    assert "20, cuts 1 of 3 answers, whose lengths are given (the longest: 30)" in (
        capsys.readouterr().err
    )
    assert sorted(r.max_new_tokens for r in measured(model, trial)) == [9, 20, 20]


def test_made_up_lengths_that_are_cut_are_said(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = {"name": "synthetic", "input_tokens": 5, "output_tokens": 20, "max_new_tokens": 20}
    (trial,) = trials(model, workload)
    assert (session(model).remarks(trial), capsys.readouterr().err) == ([], "")
    trials(model, workload | {"max_new_tokens": 19})
    assert "19, cuts 3 of 3 answers, whose lengths are given (the longest: 20)" in (
        capsys.readouterr().err
    )


def test_conversations_that_are_left_out_are_told_once(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    source = write(tmp_path / "p.jsonl", [{"id": "odd"}, good])
    entry = {"name": "sharegpt", "source": source}
    trials(model, entry, workloads=[entry, entry | {"max_new_tokens": 9}])
    (line,) = capsys.readouterr().err.splitlines()
    begin = f"warning: workload sharegpt: 1 of 2 conversations left out; first: {source}, line 1: "
    assert line.startswith(begin)


def test_made_up_prompts_have_their_own_lengths(model: Path) -> None:
    workload = {
        "name": "synthetic",
        "input_tokens": {"distribution": "uniform", "least": 5, "most": 50},
        "output_tokens": {"distribution": "uniform", "least": 2, "most": 40},
    }
    (trial,) = trials(model, workload, requests=8)
    found = measured(model, trial)
    assert len({len(request.prompt_ids) for request in found}) > 3
    assert len({request.max_new_tokens for request in found}) > 3
    assert all(request.ignore_eos for request in found)
    assert EOS_ID not in {token for request in found for token in request.prompt_ids}


@pytest.mark.parametrize("kind", ["poisson", "constant", "trace"])
def test_an_open_load_of_a_time_has_the_requests_that_arrive_in_it(
    model: Path, tmp_path: Path, kind: str
) -> None:
    load: dict[str, Any] = {"kind": kind, "rate": 4.0}
    if kind == "trace":
        trace = tmp_path / "trace.txt"
        trace.write_text("\n".join(str(n / 4) for n in range(100)))
        load = {"kind": kind, "trace": str(trace)}
    (trial,) = trials(model, {"name": "gsm8k"}, load=[load], duration_s=5.0)
    found = measured(model, trial)
    assert all(request.arrival_s < 5.0 for request in found)
    assert len(found) == 20 if kind != "poisson" else len(found) in range(8, 40)
    assert len({request.id for request in found}) == len(found)
    assert len({request.prompt_ids for request in found}) == 3
    generations = [Generation(r.id, 0, 0, 0, [1], [1], [5], "stop") for r in found]
    texts, scores = session(model).finish(trial, generations)
    assert texts.keys() == scores.keys() == {request.id for request in found}


@pytest.mark.parametrize(("duration_s", "expected"), [(5.0, 7), (None, 2)])
def test_the_warm_up_has_as_many_in_flight_as_the_load(
    model: Path, duration_s: float | None, expected: int
) -> None:
    """A load of a time takes every place with however few prompts."""
    load = [{"kind": "closed", "concurrency": 7}]
    (trial,) = trials(model, {"name": "gsm8k"}, load=load, requests=2, duration_s=duration_s)
    warm_up, asked = session(model).requests(trial)
    assert (len(warm_up), len(asked)) == (expected, 2)
    assert len({request.id for request in warm_up}) == expected
    own = {request.prompt_ids for request in asked}
    assert not own & {request.prompt_ids for request in warm_up}


def test_a_time_shorter_than_the_prompts_asks_for_fewer(model: Path) -> None:
    load = [{"kind": "constant", "rate": 1.0}]
    (trial,) = trials(model, {"name": "gsm8k"}, load=load, duration_s=2.0, requests=6)
    assert [request.arrival_s for request in measured(model, trial)] == [0.0, 1.0]


def test_a_trace_that_is_over_before_the_time_is_no_fault(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("3\n4\n")
    load = [{"kind": "trace", "trace": str(trace)}]
    (trial,) = trials(model, {"name": "gsm8k"}, load=load, duration_s=60)
    assert [request.arrival_s for request in measured(model, trial)] == [0.0, 1.0]


def test_a_file_that_changes_while_the_experiment_runs_is_one_line(
    model: Path, tmp_path: Path
) -> None:
    source = write(tmp_path / "p.jsonl", [{"id": 1, "prompt": "a", "answer": "b"}])
    (trial,) = trials(model, {"name": "jsonl", "source": source})
    write(tmp_path / "p.jsonl", [{"id": 1, "prompt": "a", "answer": "c"}])
    with pytest.raises(UserError, match="workload jsonl: its data changed while the experiment"):
        measured(model, trial)


def test_the_time_of_a_trace_counts_from_its_first_arrival(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("\n".join(str(1000 + n) for n in range(9)))
    load = [{"kind": "trace", "trace": str(trace)}]
    (trial,) = trials(model, {"name": "gsm8k"}, load=load, duration_s=4)
    assert [request.arrival_s for request in measured(model, trial)] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"duration_s": 0}, "duration_s: expected a number above 0, got 0"),
        ({"duration_s": "1m"}, "duration_s: expected a number above 0, got '1m'"),
        ({"duration_s": 3600}, "expected a number below 'time_limit_s', which is 3600, got 3600"),
        (
            {"duration_s": 600, "load": [{"kind": "poisson", "rate": [1, 100]}]},
            "duration_s: 60,000 requests of 'poisson 100/s' in 600 s, more than 20,000",
        ),
    ],
)
def test_a_time_that_cannot_be_is_one_line(
    model: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as raised:
        trials(model, {"name": "gsm8k"}, **changes)
    assert message in str(raised.value)


def test_prompts_are_stored_with_the_answers_they_have(model: Path, tmp_path: Path) -> None:
    rows = [{"id": 1, "prompt": "a", "answer": "b"}, {"id": 2, "prompt": "c"}]
    source = write(tmp_path / "p.jsonl", rows)
    entries = [{"name": "jsonl", "source": source}, {"name": "speed_bench"}]
    for entry, answers in zip(entries, ({"b", ""}, {""}), strict=True):
        found = trials(model, entry, requests=2)
        ((stored, _),) = wiring.prompt_rows(found, model)
        assert {row["answer"] for row in stored} == answers
