"""A run folder's experiment.yaml is an experiment file: the same trials, pinned by checksums."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli import wiring
from harness.core.errors import UserError
from harness.core.nouns import Load, Model, Workload
from harness.experiment.config import Experiment, load_experiment, parse_experiment

EXPERIMENTS = Path(__file__).parents[4] / "experiments"
WRITTEN: Mapping[str, Any] = {
    "name": "all of it",
    "model": "demo",
    "reference": "scripted",
    "backends": [
        {"name": "adadecode", "exit_layers": [[2], [2, 4]], "gamma": ["auto", 0.00001]},
        {"name": "scripted", "stalls": [{"at_s": 1, "for_s": 1}], "accepted": [], "fault": None},
        {"name": "scripted", "fail_ids": [[["a"], ["b"]]]},
        {"name": "http", "label": "our {api} server", "api": ["chat", "completions"]},
        {"name": "http", "extra_body": {"stop": ["a", "b"], "top_k": None}},
    ],
    "workloads": [
        {"name": "gsm8k", "rows": 3, "max_new_tokens": 7},
        {"name": "xsum", "mix": "80:20", "max_article_tokens": 50, "split": "train"},
        {
            "name": "synthetic",
            "input_tokens": {"distribution": "normal", "mean": 20, "std": 3.5, "most": 40},
            "prefix_tokens": 4,
        },
    ],
    "load": [
        {"kind": "closed", "concurrency": [1, 8]},
        {"kind": "gamma", "rate": [1, 2], "burstiness": 0.5},
        {"kind": "constant", "rate": 3},
        {"kind": "sweep", "points": 7, "redraw": True},
    ],
    "slo": {"ttft_ms": 200},
    "sampling": {"temperature": 0.5, "seed": 3},
    "requests": 4,
    "duration_s": 12.5,
    "repeats": 2,
    "reload": True,
    "seed": 5,
    "ignore_eos": True,
    "time_limit_s": 60,
    "limits": {"trials": 800},
}


def parse(content: Any) -> Experiment:
    return parse_experiment(content, "f.yaml", wiring.known())


def keys(experiment: Experiment) -> list[str]:
    return [trial.key("machine") for trial in experiment.trials()]


def again(experiment: Experiment, tmp_path: Path) -> Experiment:
    stored = tmp_path / "experiment.yaml"
    stored.write_text(experiment.to_yaml())
    return load_experiment(stored, wiring.known())


def test_a_resolved_experiment_resolves_to_the_same_trials(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("0\n1\n2\n3\n")
    loads = [*WRITTEN["load"], {"kind": "trace", "trace": str(trace)}]
    resolved = wiring.resolve(parse({**WRITTEN, "load": loads}))
    read = again(resolved, tmp_path)
    assert read == resolved, "also before anything is looked up"
    assert keys(wiring.resolve(read)) == keys(resolved)
    assert len(set(keys(resolved))) == 2 * 3 * 6 * 9


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_experiment_of_the_repository_goes_round(path: Path, tmp_path: Path) -> None:
    experiment = load_experiment(path, wiring.known())
    assert keys(again(experiment, tmp_path)) == keys(experiment)


def test_names_of_the_hub_keep_their_revisions_and_checksums(tmp_path: Path) -> None:
    experiment = parse(WRITTEN)
    model = Model("meta-llama/Llama-3.1-8B", "0e9e39f", "ab" * 32, "bfloat16")
    workload = Workload("gsm8k", "hub", 12, {"revision": "e53f048"}, "cd" * 32)
    choice = dataclasses.replace(experiment.workloads[0], workload=workload)
    load = Load("trace", trace="day.csv", checksum="ef" * 32)
    pinned = dataclasses.replace(experiment, models=(model,), workloads=(choice,), loads=(load,))
    read = again(pinned, tmp_path)
    assert (read, keys(read)) == (pinned, keys(pinned))
    trial = read.trials()[0]
    assert (trial.model, trial.workload, trial.load) == (model, workload, load)


def test_content_that_is_not_what_was_pinned_is_refused(tmp_path: Path) -> None:
    data, trace = tmp_path / "data.jsonl", tmp_path / "trace.txt"
    data.write_text(json.dumps({"question": "q", "answer": "#### 1"}))
    trace.write_text("0\n1\n")
    changes = {
        "backends": ["scripted"],
        "workloads": [{"name": "gsm8k", "source": str(data)}],
        "load": [{"kind": "trace", "trace": str(trace)}],
        "requests": 2,
    }
    resolved = wiring.resolve(parse({**WRITTEN, **changes}))
    wiring.resolve(again(resolved, tmp_path))
    trace.write_text("0\n2\n")
    with pytest.raises(UserError, match=r"trace '.*': its content has checksum \w{12}, not \w{12}"):
        wiring.resolve(again(resolved, tmp_path))
    trace.write_text("0\n1\n")
    data.write_text(json.dumps({"question": "another", "answer": "#### 1"}))
    with pytest.raises(UserError, match="workload gsm8k: its content has checksum"):
        wiring.resolve(again(resolved, tmp_path))
    (model,) = resolved.models
    other = dataclasses.replace(resolved, models=(dataclasses.replace(model, checksum="0"),))
    with pytest.raises(UserError, match=r"model 'demo': its content .* leave 'checksum' out"):
        wiring.resolve(again(other, tmp_path))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"model": "demo"}, "f.yaml: model: expected a mapping of keys, got 'demo'"),
        ({"model": {"name": "demo"}}, "f.yaml: model: the key 'dtype' is missing"),
        ({"backends": ["scripted"], "x": 1}, "f.yaml: x: unknown key"),
        ({"backends": [{"name": "scripted", "options": [1]}]}, "backends[0].options: expected a"),
        ({"backends": [{"name": "scripted", "seed": 1}]}, "backends[0].seed: unknown key"),
        ({"workloads": [{"workload": {"name": "gsm8k"}}]}, "'max_new_tokens' is missing"),
        ({"loads": {}}, "f.yaml: loads: expected a list with at least one entry, got {}"),
        ({"loads": [{"kind": "closed"}]}, "f.yaml: load[0]: a 'closed' load needs the key"),
        ({"workloads": 7}, "f.yaml: workloads: expected a list with at least one entry, got 7"),
    ],
)
def test_a_damaged_one_is_one_line(damage: dict[str, Any], message: str) -> None:
    content = yaml.safe_load(parse(WRITTEN).to_yaml())
    with pytest.raises(UserError) as caught:
        parse(content | damage)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": {"name": "demo", "dtype": "float32"}},
        {"backends": [{"name": "scripted", "options": {"fault": None}}]},
        {"workloads": [{"workload": "gsm8k"}]},
    ],
)
def test_loads_in_a_file_as_a_person_writes_it_is_load_misspelt(changes: dict[str, Any]) -> None:
    """It blamed the sound keys: "model: expected a mapping of keys, got 'demo'"."""
    written = {key: value for key, value in WRITTEN.items() if key != "load"}
    with pytest.raises(UserError) as caught:
        parse({**written, "loads": WRITTEN["load"], **changes})
    assert str(caught.value) == "f.yaml: the key 'load' is missing (found 'loads')"
