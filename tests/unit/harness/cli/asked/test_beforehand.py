"""What a dry run says of prompts that are too long and of traces, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import backends
from backends.own.backend import LONGEST
from harness.cli import run as running
from harness.cli import wiring
from harness.cli.against import checkout, paired_run
from harness.cli.asked import beforehand
from harness.core.errors import UserError
from harness.core.nouns import Trial
from harness.experiment.config import load_experiment
from tests.support.tiny_llama import write_tiny_llama

POSITIONS = 256


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model"))


def told(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    entry: dict[str, Any],
    only: str | None = None,
    against: str | None = None,
    **changes: Any,
) -> tuple[list[str], list[str]]:
    """Lines of a dry run, and its warnings."""
    content: dict[str, Any] = {
        "name": "tiny",
        "model": "demo",
        "backends": [{"name": "autoregressive", "max_model_len": POSITIONS}, "scripted"],
        "workloads": [entry],
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 3,
        "max_new_tokens": 16,
    }
    file = folder / "tiny.yaml"
    file.write_text(json.dumps(content | changes))
    running.run_experiment(
        file, out=folder / "run", only=only, fresh=False, dry_run=True, against=against
    )
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err.splitlines()


def prompts(folder: Path, *lengths: int) -> dict[str, Any]:
    source = folder / "p.jsonl"
    rows = [{"id": number, "prompt": "a " * words} for number, words in enumerate(lengths)]
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {"name": "jsonl", "source": str(source)}


def test_prompts_that_are_too_long_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = prompts(tmp_path, 5, 400, 6)
    loads = [{"kind": "closed", "concurrency": [1, 2]}]
    _, (line,) = told(tmp_path, capsys, entry, load=loads, repeats=2)
    assert line.startswith(
        "warning: workload jsonl: too long with their answers for the 256 tokens of backend "
        "'autoregressive' on model 'demo', and bound to fail: 1 of 3 prompts; first: "
        f"{entry['source']}, line 2: "
    )
    assert line.endswith(" tokens and up to 16; 'prompt_limit: 240' leaves them out")
    _, (line,) = told(tmp_path, capsys, entry | {"prompt_limit": 240})
    assert f"1 of 3 rows drawn left out; first: {entry['source']}, line 2: a prompt of " in line


def test_the_answer_counts_as_long_as_it_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = prompts(tmp_path, 5, 6, 7)
    assert told(tmp_path, capsys, entry)[1] == []
    _, (line,) = told(tmp_path, capsys, entry, max_new_tokens=POSITIONS)
    assert "3 of 3 prompts" in line
    assert "prompt_limit" not in line, "no prompt is short enough"
    synthetic = {"name": "synthetic", "input_tokens": 200, "output_tokens": 56}
    assert told(tmp_path, capsys, synthetic, max_new_tokens=9999)[1] == []
    _, (line,) = told(tmp_path, capsys, synthetic | {"input_tokens": 201}, max_new_tokens=9999)
    assert line.endswith("3 of 3 prompts; first: synthetic-0: 201 tokens and up to 56")


def test_more_prompts_for_quality_are_looked_at_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": n, "prompt": "a " * 400, "answer": "b", "scorer": "exact"} for n in range(4)]
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    entry = {"name": "jsonl", "source": str(tmp_path / "p.jsonl")}
    _, lines = told(tmp_path, capsys, entry, requests=1, quality_requests=4)
    assert [line.partition("fail: ")[2].partition(";")[0] for line in lines] == [
        "1 of 1 prompts",
        "3 of 3 prompts",
    ]


def test_what_a_backend_takes(model: Path, tmp_path: Path) -> None:
    """Its option, or what the model has, which only engines that follow it stretch."""
    own, server = "autoregressive", "http"
    assert backends.longest(own, model, {"max_model_len": 9}) == 9
    for name in (own, server, "vllm"):
        assert backends.longest(name, model, {}) == json.loads(
            (model / "config.json").read_text()
        ).get("max_position_embeddings")
    assert backends.longest("scripted", model, {}) is None
    config = json.loads((model / "config.json").read_text())

    def found(name: str, **changes: Any) -> int | None:
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        return backends.longest(name, tmp_path, {})

    assert found(own, max_position_embeddings=10**6) == LONGEST
    assert found(server, max_position_embeddings=10**6) == 10**6
    assert found(server, max_position_embeddings=None) is None
    assert found(server, rope_scaling={"type": "yarn", "factor": 4.0}) is None
    llama = {"rope_type": "llama3", "factor": 8.0}
    assert found(server, rope_parameters=llama, max_position_embeddings=77) == 77


def test_a_dry_run_tells_what_a_trace_comes_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.txt"
    trace.write_text("1000\n1500\n3000\n")
    load = [{"kind": "trace", "trace": str(trace)}]
    lines, warned = told(tmp_path, capsys, {"name": "gsm8k"}, load=load)
    assert lines[-1] == f"trace '{trace}': 3 arrivals over 2,000 s, 0.001 a second"
    assert warned == []
    trace.write_text("".join(f"{1_700_000_000_000 + n}\n" for n in range(3)))
    _, (line,) = told(tmp_path, capsys, {"name": "gsm8k"}, load=load)
    assert line == (
        f"warning: {trace}: its times reach 1.7e+12, which in seconds is thousands of years; are "
        "they milliseconds?"
    )


@pytest.mark.parametrize(
    ("reference", "replays", "hint"),
    [
        ({"name": "autoregressive"}, True, "give it a 'replay' too (as 'replay: demo')"),
        ({"name": "scripted"}, True, "make one that replays the reference"),
        ({"name": "autoregressive", "replay": {"length": 9}}, True, None),
        ({"name": "autoregressive"}, False, None),
    ],
)
def test_replays_that_nothing_is_compared_with_are_told(
    reference: dict[str, Any],
    replays: bool,
    hint: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, rates = reference["name"], {"exits": {"0.5": 0.5}, "acceptance": 0.9}
    other = {"name": "adadecode"} | ({"replay": rates} if replays else {})
    _, warned = told(tmp_path, capsys, {"name": "gsm8k"}, backends=[reference, other])
    line = f"warning: the reference '{name}' does not replay, and replays are compared with replays"
    line += f" alone: {hint}, or no replay is compared with the reference"
    assert warned == [line] * bool(hint)


def test_they_are_told_of_what_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a sweep, and not where `--only` takes no replay or leaves out one's reference."""
    replay = {"replay": {"exits": {"0.5": 0.5}, "acceptance": 0.9}}
    engines = ["autoregressive", {"name": "adadecode", **replay}]
    plain, sweep = dict[str, Any](), {"load": [{"kind": "sweep"}]}

    def warned(only: str | None = None, **changes: Any) -> list[str]:
        asked = {"backends": engines, **changes}
        _, lines = told(tmp_path, capsys, {"name": "gsm8k"}, only, **asked)
        return [line for line in lines if "replays are compared" in line]

    for changes in (plain, sweep):
        assert len(warned(**changes)) == len(warned("adadecode", **changes)) == 1
        assert not warned("autoregressive", **changes)
    assert not warned(
        "adadecode", backends=[{"name": "autoregressive", "replay": {"length": 9}}, engines[1]]
    )


def test_two_versions_are_compared_with_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "find_checkout", lambda against: None)
    monkeypatch.setattr(paired_run, "run_against", lambda *args, **options: None)
    engines = ["autoregressive", {"name": "own-early-exit", "replay": "demo"}]
    _, warned = told(tmp_path, capsys, {"name": "gsm8k"}, against="HEAD", backends=engines)
    assert warned == []


@pytest.mark.parametrize("limit", [0, -1, True, "9", 1.5])
def test_a_prompt_limit_that_cannot_be_is_one_line(tmp_path: Path, limit: Any) -> None:
    entry = prompts(tmp_path, 1) | {"prompt_limit": limit}
    (tmp_path / "x.yaml").write_text(
        json.dumps(
            {
                "name": "x",
                "model": "demo",
                "backends": ["scripted"],
                "workloads": [entry],
                "load": [{"kind": "closed", "concurrency": 1}],
            }
        )
    )
    with pytest.raises(UserError, match="option 'prompt_limit': expected a positive whole number"):
        wiring.resolve(load_experiment(tmp_path / "x.yaml", wiring.known()))


HTTP = {"name": "http", "base_url": "http://127.0.0.1:9/v1", "api": "chat"}
THINKING = {"template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    ("chat", "more", "message"),
    [
        ({"template": "none"}, {}, "template none needs 'api: completions', not chat"),
        (
            THINKING,
            {},
            'give it \'extra_body: {"chat_template_kwargs":{"enable_thinking":false}}\'',
        ),
    ],
)
def test_a_chat_server_that_would_write_other_prompts_is_refused(
    tmp_path: Path, chat: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    asked = trials_of(tmp_path, {"name": "gsm8k", "chat": chat}, HTTP | more)
    with pytest.raises(UserError) as raised:
        beforehand.refuse_other_chats(asked)
    assert str(raised.value).startswith("workload gsm8k: option 'chat': backend 'http': ")
    assert str(raised.value).endswith(message)


def test_a_chat_server_that_writes_the_same_is_not(tmp_path: Path) -> None:
    fields = {"chat_template_kwargs": THINKING["template_kwargs"]}
    for chat, more in (
        (THINKING, {"extra_body": fields}),
        ({"system": "Be brief."}, {}),
        ({"template": "none"}, {"api": "completions"}),
    ):
        asked = trials_of(tmp_path, {"name": "gsm8k", "chat": chat}, HTTP | more)
        beforehand.refuse_other_chats(asked)


def trials_of(folder: Path, entry: dict[str, Any], backend: dict[str, Any]) -> list[Trial]:
    file = folder / "x.yaml"
    load = [{"kind": "closed", "concurrency": 1}]
    content = {"name": "x", "model": "demo", "backends": [backend], "workloads": [entry]}
    file.write_text(json.dumps(content | {"load": load}))
    return load_experiment(file, wiring.known()).trials()
