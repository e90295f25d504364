"""An experiment from the command line: what it becomes, and one line for what makes none."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main as cli
from harness.cli import run as running
from harness.cli import wiring
from harness.cli.first import quick as quickly
from harness.core.errors import UserError
from harness.core.nouns import Load, Status, Workload
from harness.experiment.config import Experiment, load_experiment
from harness.measure.sweep import SweepResult


class KeptExperiment:
    """The experiment that would have been run."""

    def __init__(self) -> None:
        self.experiment: Experiment | None = None
        self.how: dict[str, Any] = {}

    def __call__(self, experiment: Experiment, **how: Any) -> None:
        self.experiment, self.how = experiment, how


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> KeptExperiment:
    found = KeptExperiment()
    monkeypatch.setattr(running, "run_parsed", found)
    return found


def ask(*arguments: str, workload: str = "gsm8k", model: str = "demo") -> None:
    whole = ["quick", "--model", model, "--workload", workload, *arguments]
    cli.app(whole, standalone_mode=False)


def made(kept: KeptExperiment, *arguments: str, **more: str) -> Experiment:
    ask(*arguments, **more)
    assert kept.experiment is not None
    return kept.experiment


def test_defaults_are_users_one_and_eight(kept: KeptExperiment) -> None:
    found = made(kept, "--backend", "scripted")
    assert [load.concurrency for load in found.loads] == [1, 8]
    assert re.fullmatch("quick-demo-gsm8k-[0-9a-f]{8}", found.name)
    assert (found.requests, found.repeats) == (64, 3)
    assert found.reference == "scripted"


def test_everything_can_be_said(kept: KeptExperiment) -> None:
    found = made(
        kept, "--backend", "adadecode, autoregressive", "--concurrency", "1,2", "--rate", "4,0.5",
        "--requests", "9", "--duration", "30", "--max-new-tokens", "7", "--repeats", "4",
        workload="gsm8k,xsum:hub",
    )  # fmt: skip
    assert [choice.name for choice in found.backends] == ["adadecode", "autoregressive"]
    assert found.reference == "autoregressive"
    loads = [(load.kind, load.concurrency, load.rate) for load in found.loads]
    closed = [("closed", 1, None), ("closed", 2, None)]
    assert loads == [*closed, ("poisson", None, 4.0), ("poisson", None, 0.5)]
    assert (found.requests, found.duration_s, found.repeats) == (9, 30.0, 4)
    assert [c.workload.source for c in found.workloads] == ["bundled", "hub"]
    assert {c.max_new_tokens for c in found.workloads} == {7}


def test_several_by_commas_may_stand_several_times(kept: KeptExperiment) -> None:
    twice = ("--backend=scripted", "--backend=vllm", "--rate=2", "--rate=1,3", "--workload=xsum")
    by_commas = made(kept, "--backend=scripted,vllm", "--rate=2,1,3", workload="gsm8k,xsum")
    assert made(kept, *twice) == by_commas


def test_a_server_is_a_backend(kept: KeptExperiment) -> None:
    found = made(kept, "--url", "http://127.0.0.1:9/v1", "--api", "chat", "--rate", "4")
    (choice,) = found.backends
    assert choice.name == "http"
    assert choice.options == {"base_url": "http://127.0.0.1:9/v1", "api": "chat"}
    assert found.loads == (Load("poisson", rate=4.0, redraw=True),)
    both = made(kept, "--url", "http://127.0.0.1:9/v1", "--backend", "vllm")
    assert [choice.name for choice in both.backends] == ["vllm", "http"]
    assert both.backends[1].options["api"] == "completions"
    assert both.reference == "vllm"


def test_a_file_is_prompts_of_ones_own(kept: KeptExperiment) -> None:
    found = made(kept, "--backend", "scripted", workload="my/prompts.jsonl")
    assert found.workloads[0].workload.name == "jsonl"
    assert found.workloads[0].workload.source == "my/prompts.jsonl"
    assert found.name.startswith("quick-demo-prompts.jsonl-")
    found = made(kept, "--backend", "scripted", workload="My/PROMPTS.JSONL,b.jsonl.gz")
    assert [c.workload.source for c in found.workloads] == ["My/PROMPTS.JSONL", "b.jsonl.gz"]
    others = "a.json,b.CSV,c.parquet,d.csv.gz"
    found = made(kept, "--backend", "scripted", workload=others)
    assert {c.workload.name for c in found.workloads} == {"jsonl"}
    assert ",".join(c.workload.source for c in found.workloads) == others
    found = made(kept, "--backend", "scripted", workload="sharegpt:talks.jsonl")
    assert found.workloads[0].workload == Workload("sharegpt", "talks.jsonl")
    found = made(kept, "--backend", "scripted", workload="sharegpt:x.json,synthetic")
    assert [c.workload.name for c in found.workloads] == ["sharegpt", "synthetic"]


@pytest.mark.parametrize(
    ("model", "begin"),
    [
        ("a/b/My model!", "quick-My-model-gsm8k-"),
        ("..", "quick-x-gsm8k-"),
        ("a/.hidden/", "quick-hidden-gsm8k-"),
        ("x" * 50, f"quick-{'x' * 40}-gsm8k-"),
    ],
)
def test_a_folder_begins_with_what_is_read_easily(
    kept: KeptExperiment, model: str, begin: str
) -> None:
    name = made(kept, "--backend", "scripted", model=model).name
    assert re.fullmatch(re.escape(begin) + "[0-9a-f]{8}", name)


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("failed", 4), ("timeout", 4)])
def test_trials_that_fail_are_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, status: Status, code: int
) -> None:
    outcome = SweepResult(Counter({"ok": 1, status: 1}))
    monkeypatch.setattr(running, "run_parsed", lambda *_, **__: outcome)
    arguments = ["quick", "--model", "demo", "--workload", "gsm8k", "--backend", "scripted"]
    assert (cli.app(arguments, standalone_mode=False) or 0) == code


DIFFERENT: dict[str, tuple[list[str], dict[str, str]]] = {
    "length": (["--max-new-tokens", "7"], {}),
    "another length": (["--max-new-tokens", "8"], {}),
    "requests": (["--requests", "7"], {}),
    "time": (["--duration", "7"], {}),
    "concurrency": (["--concurrency", "7"], {}),
    "rate": (["--rate", "7"], {}),
    "backend": (["--backend", "vllm"], {}),
    "server": (["--url", "http://127.0.0.1:9/v1"], {}),
    "another server": (["--url", "http://127.0.0.1:10/v1"], {}),
    "api": (["--url", "http://127.0.0.1:9/v1", "--api", "chat"], {}),
    "served": (["--url", "http://127.0.0.1:9/v1", "--served-model", "a"], {}),
    "model": ([], {"model": "here/demo"}),
    "another model": ([], {"model": "there/demo"}),
    "prompts": ([], {"workload": "here/gsm8k.jsonl"}),
    "other prompts": ([], {"workload": "there/gsm8k.jsonl"}),
    "source": ([], {"workload": "gsm8k:hub"}),
    "long": ([], {"workload": "gsm8k:" + "x" * 200}),
    "longer": ([], {"workload": "gsm8k:" + "x" * 201}),
}


def test_what_decides_the_trials_decides_the_folder(kept: KeptExperiment) -> None:
    first = made(kept, "--backend", "scripted").name
    assert made(kept, "--backend", "scripted").name == first
    assert made(kept, "--backend", "scripted", "--repeats", "5").name == first, "it goes on there"
    names = [
        made(kept, "--backend", "scripted", *arguments, **more).name
        for arguments, more in DIFFERENT.values()
    ]
    assert len({first, *names}) == 1 + len(DIFFERENT)
    assert all(name.startswith("quick-demo-gsm8k") for name in names)


@pytest.mark.parametrize(
    "odd", ["a: b", "a #b", "yes", "1e3", "*a", "it's", '"q"', "~", "1.5", "- a", "{a}", "a ", "!x"]
)
def test_what_is_stored_says_the_same_when_it_is_read(
    kept: KeptExperiment, odd: str, tmp_path: Path
) -> None:
    found = made(kept, "--backend", "scripted", model=odd, workload=f"jsonl:{odd}")
    assert (found.models[0].name, found.workloads[0].workload.source) == (odd, odd.strip())
    stored = tmp_path / "experiment.yaml"
    stored.write_text(found.to_yaml())
    assert load_experiment(stored, wiring.known()) == found


def test_without_names_it_is_all_that_run_the_model(
    kept: KeptExperiment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(name: str, *_: Any) -> list[str]:
        if name in ("adadecode", "vllm-early-exit"):
            raise UserError(f"backend '{name}': no exit heads")
        return []

    monkeypatch.setattr("backends.warnings", refuse)
    monkeypatch.setattr(quickly, "LIBRARIES", (("vllm-spec", "no_such_library"),))
    names = [choice.name for choice in made(kept).backends]
    assert names == ["vllm", "autoregressive", "own-early-exit", "speculative", "tetris"]
    assert capsys.readouterr().err.splitlines() == [
        "left out: backend 'adadecode': no exit heads",
        "left out: backend 'vllm-early-exit': no exit heads",
        "left out: vllm-speculative: no_such_library is not installed",
    ]
    monkeypatch.setattr(quickly, "LIBRARIES", (("", "no_such_library"),))
    with pytest.raises(UserError, match="quick: no backend runs the model 'demo': adadecode: no_"):
        ask()


def test_a_model_that_is_not_there_is_no_backends_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="nowhere") as raised:
        ask(model=str(tmp_path / "nowhere"))
    assert "no backend runs" not in str(raised.value)
    assert capsys.readouterr().err == ""


BAD: dict[str, tuple[list[str], str]] = {
    "backend": (["--backend", "vlm"], "unknown backend 'vlm'; did you mean 'vllm'?"),
    "no address": (["--backend", "http"], "--backend http: a server needs its address: --url"),
    "comma": (["--backend", "vllm,"], "--backend: expected names or numbers by commas"),
    "number": (["--concurrency", "1,x", "--backend", "vllm"], "expected whole numbers by commas"),
    "zero": (["--concurrency", "0", "--backend", "vllm"], "expected a whole number of at least 1"),
    "rate": (["--rate", "x", "--backend", "vllm"], "--rate: expected numbers by commas, got 'x'"),
    "requests": (["--requests", "0", "--backend", "vllm"], "quick: requests: expected a whole"),
    "api": (
        ["--url", "http://x/v1", "--api", "chats"],
        "quick: backends[0]: backend 'http': option 'api': 'chats': did you mean 'chat'?",
    ),
    "twice": (["--backend", "vllm,vllm"], "quick: backends: stands twice"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError) as raised:
        ask(*arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("gsm9k", "--workload: unknown workload 'gsm9k'; did you mean 'gsm8k'?"),
        ("gsm8k:", "--workload gsm8k:: expected a source after 'gsm8k:'"),
        ("jsonl", "expected 'source: FILE' with your prompts"),
        ("none.jsonl", "source 'none.jsonl' does not exist"),
    ],
)
def test_a_bad_workload_is_one_line(workload: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        ask("--backend", "scripted", "--out", str(tmp_path / "run"), workload=workload)
    assert message in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_labels_are_asked_of_classifiers(
    kept: KeptExperiment, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made(kept, model="demo-sentiment", workload="sentiment")
    names = [choice.name for choice in found.backends]
    assert names == ["classifier", "classifier-early-exit", "tetris-classifier"]
    assert found.reference == "classifier"
    assert capsys.readouterr().err == ""


def test_a_server_s_cache_can_be_told(kept: KeptExperiment) -> None:
    server = ("--url", "http://127.0.0.1:1/v1")
    for said, option in (("true", True), ("none", "none")):
        (http,) = made(kept, *server, "--prefix-caching", said).backends
        assert http.options["prefix_caching"] == option
    for arguments, message in (
        ((*server, "--prefix-caching", "tru"), "did you mean 'true'"),
        (("--backend", "scripted", "--prefix-caching", "none"), "expected --url beside it"),
    ):
        with pytest.raises(UserError, match=message):
            ask(*arguments)


def test_a_server_s_key_and_its_name_of_the_model_can_be_told(
    kept: KeptExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-1")
    server = ("--url", "http://127.0.0.1:1/v1")
    (http,) = made(kept, *server, "--api-key-env", "SOME_KEY", "--served-model", "a/b").backends
    assert (http.options["api_key_env"], http.options["model"]) == ("SOME_KEY", "a/b")
    for option, value in (("--api-key-env", "K"), ("--served-model", "m"), ("--api", "chat")):
        with pytest.raises(UserError, match=f"{option}: is of a server; expected --url beside it"):
            ask("--backend", "scripted", option, value)


def test_more_prompts_for_quality_go_on_in_the_same_folder(kept: KeptExperiment) -> None:
    plain = made(kept, "--backend", "scripted")
    more = made(kept, "--backend", "scripted", "--quality-requests", "200")
    assert (plain.quality_requests, more.quality_requests) == (None, 200)
    assert plain.name == more.name


def test_what_its_own_output_names_can_be_asked(kept: KeptExperiment) -> None:
    made(kept, "--backend", "scripted")
    how = {"fresh": False, "retry_failures": False, "again_share": 0.1}
    assert kept.how.items() >= how.items()
    made(kept, "--backend", "scripted", "--fresh", "--retry-failures", "--again-share", "0")
    assert kept.how.items() >= {"fresh": True, "retry_failures": True, "again_share": 0}.items()
