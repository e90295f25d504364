"""The JSON schema takes what the reader takes: files of the repository, odd values key by key."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from backends import BACKENDS, load_class
from harness.cli import wiring
from harness.cli.first.schema import experiment_page, experiment_schema
from harness.core.backend import Option
from harness.core.errors import UserError
from harness.experiment.config import Experiment, parse_experiment
from workloads.entries import entries

ROOT = Path(__file__).parents[5]
FILES = sorted((ROOT / "experiments").glob("*.yaml"))
SCHEMA = experiment_schema()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
KNOWN = wiring.known()
LEAST: dict[str, Any] = {
    "name": "x",
    "model": "demo",
    "backends": ["scripted"],
    "workloads": ["gsm8k"],
    "load": [{"kind": "closed", "concurrency": 1}],
}
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 3, 0.5, 10**12, "", "x", "1", ".", "a/b", "80:20", "auto",
    [], [1], [0.5], ["x"], [[1]], [[1, 2], [3]], [None], [{}], {}, {"x": 1}, {"name": "demo"},
]  # fmt: skip


def read(data: Any) -> Experiment | None:
    try:
        return parse_experiment(copy.deepcopy(data), "f.yaml", KNOWN)
    except UserError:
        return None


def refusal(data: Any) -> str:
    try:
        parse_experiment(copy.deepcopy(data), "f.yaml", KNOWN)
    except UserError as error:
        return str(error)
    return ""


def agree(data: Any) -> None:
    told = [error.message[:200] for error in VALIDATOR.iter_errors(data)]
    assert (not told) == (read(data) is not None), (data, told, refusal(data))


def test_it_is_a_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    json.dumps(SCHEMA, allow_nan=False)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_every_experiment_of_the_repository_is_valid(path: Path) -> None:
    VALIDATOR.validate(yaml.safe_load(path.read_text()))


def places(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each mapping of an experiment to which a key can be added, by name."""
    yield "top", data
    for key in ("model", "slo", "sampling", "limits", "published"):
        if isinstance(data.get(key), dict):
            yield key, data[key]
    for key in ("backends", "workloads", "load"):
        for number, entry in enumerate(data[key]):
            if isinstance(entry, dict):
                yield f"{key}[{number}]", entry


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_an_unknown_key_anywhere_is_not(path: Path) -> None:
    whole = yaml.safe_load(path.read_text())
    for name, _ in list(places(whole)):
        changed = copy.deepcopy(whole)
        dict(places(changed))[name]["unheard_of"] = 1
        assert not VALIDATOR.is_valid(changed), name


@pytest.mark.parametrize("key", SCHEMA["properties"])
def test_both_take_the_same_values_of_a_key(key: str) -> None:
    for value in VALUES:
        agree({**LEAST, key: value})


SECTIONS: dict[str, Any] = {
    "slo": ("ttft_ms", "tpot_ms", "e2e_ms", "other"),
    "sampling": ("temperature", "top_p", "seed", "other"),
    "limits": ("trials", "engines", "data_mib", "other"),
}


@pytest.mark.parametrize(
    ("section", "key"), [(name, key) for name, keys in SECTIONS.items() for key in keys]
)
def test_both_take_the_same_values_of_a_section(section: str, key: str) -> None:
    for value in VALUES:
        agree({**LEAST, section: {key: value}})


LOAD_CASES = [
    ({"kind": "closed"}, "concurrency"),
    ({"kind": "poisson"}, "rate"),
    ({"kind": "constant"}, "rate"),
    ({"kind": "gamma", "rate": 1}, "burstiness"),
    ({"kind": "gamma"}, "rate"),
    ({"kind": "trace"}, "trace"),
    ({"kind": "sweep"}, "points"),
    ({"kind": "sweep"}, "rate"),
    ({"kind": "poisson", "rate": 1}, "concurrency"),
    ({}, "kind"),
]


@pytest.mark.parametrize(("entry", "key"), LOAD_CASES, ids=str)
def test_both_take_the_same_loads(entry: dict[str, Any], key: str) -> None:
    agree({**LEAST, "load": [entry]})
    for value in VALUES:
        agree({**LEAST, "load": [{**entry, key: value}]})


@pytest.mark.parametrize("name", ["sweep", "closed", "other"])
def test_both_take_the_same_bare_names_of_loads(name: str) -> None:
    agree({**LEAST, "load": [name]})


@pytest.mark.parametrize("key", ["name", "revision", "checksum", "shape", "layers", "other"])
@pytest.mark.parametrize("entry", [{"name": "demo"}, {"shape": "0.5b"}], ids=str)
def test_both_take_the_same_models(entry: dict[str, Any], key: str) -> None:
    for value in VALUES:
        agree({**LEAST, "model": {**entry, key: value}})
        agree({**LEAST, "model": [{**entry, key: value}]})


def workload_cases() -> Iterator[tuple[str, str]]:
    for name, own in entries().items():
        keys = ("source", "rows", "max_new_tokens", "checksum", *own["properties"], "other")
        yield from ((name, key) for key in dict.fromkeys(keys))
    yield from (("gsm8k", "scorer"), ("gsm8k", "article_limit"), ("jsonl", "mix"))


@pytest.mark.parametrize(("name", "key"), list(workload_cases()))
def test_both_take_the_same_workloads(name: str, key: str) -> None:
    source = {"jsonl": "x.jsonl", "sharegpt": "x.json"}.get(name)
    entry = {"name": name} | ({"source": source} if source else {})
    if key == "revision":
        entry["source"] = "hub"
    for value in VALUES:
        agree({**LEAST, "workloads": [{**entry, key: value}]})


CHATS: list[Any] = [
    {"template": "none"},
    {"template": "nune"},
    {"template_kwargs": {"enable_thinking": False, "effort": "low", "depth": 2.5}},
    {"template_kwargs": {"enable thinking": False}},
    {"template_kwargs": {"tokenize": True}},
    {"template_kwargs": {"x": [1]}},
    {"template_kwargs": True},
    {"system": "Be brief."},
    {"system": " "},
    {"sistem": "Be brief."},
    {},
    "none",
]


@pytest.mark.parametrize("value", CHATS, ids=str)
@pytest.mark.parametrize("name", ["gsm8k", "jsonl", "speed_bench", "sentiment", "synthetic"])
def test_both_take_the_same_chats(name: str, value: Any) -> None:
    source = {"source": "x.jsonl"} if name == "jsonl" else {}
    agree({**LEAST, "workloads": [{"name": name, "chat": value, **source}]})


LENGTHS: list[Any] = [
    {"distribution": "uniform", "least": 1, "most": 3},
    {"distribution": "uniform", "least": 1},
    {"distribution": "normal", "mean": 3.5, "std": 0},
    {"distribution": "normal", "mean": 0.5, "std": 1},
    {"distribution": "normal", "mean": 3, "std": 1, "sigma": 1},
    {"distribution": "lognormal", "median": 3, "sigma": 0.5, "most": 9},
    {"distribution": "lognormal", "median": 3, "sigma": "x"},
    {"distribution": "other"},
    {"distribution": ["uniform"]},
]


@pytest.mark.parametrize("value", LENGTHS, ids=str)
@pytest.mark.parametrize("key", ["input_tokens", "output_tokens", "prefix_tokens"])
def test_both_take_the_same_lengths(key: str, value: Any) -> None:
    agree({**LEAST, "workloads": [{"name": "synthetic", key: value}]})


def takes(option: Option, value: Any) -> bool:
    """Whether the reader takes a value, or each cell of a grid, for an option by itself."""
    axis = isinstance(value, list)
    if option.type is list:
        axis = axis and bool(value) and all(isinstance(one, list) for one in value)
    cells = value if axis else [value]
    try:
        for cell in cells:
            option.check("", cell)
    except UserError:
        return False
    return bool(cells)


OPTIONS = [(name, key) for name in BACKENDS for key in load_class(name).OPTIONS]


@pytest.mark.parametrize(("name", "key"), OPTIONS)
def test_both_take_the_same_values_of_an_option(name: str, key: str) -> None:
    option = load_class(name).OPTIONS[key]
    entries = SCHEMA["properties"]["backends"]["items"]["anyOf"]
    (entry,) = [one for one in entries if one.get("title") == name]
    validator = jsonschema.Draft7Validator(entry["properties"][key])
    for value in [*VALUES, *option.choices, [*option.choices], *option.words, [*option.words]]:
        assert validator.is_valid(value) == takes(option, value), (value, option)


def test_both_take_the_same_backends() -> None:
    for entry in [{"name": "scripted", "other": 1}, {"name": "other"}, "other", {}, 1, "vllm"]:
        agree({**LEAST, "backends": [entry]})
    for label in VALUES:
        agree({**LEAST, "backends": [{"name": "scripted", "label": label}]})


def test_defaults_are_those_of_the_reader() -> None:
    found = read(LEAST)
    assert found is not None
    top = SCHEMA["properties"]
    for key in ("requests", "duration_s", "ignore_eos", "repeats", "seed", "time_limit_s"):
        assert top[key]["default"] == getattr(found, key), key
    assert top["dtype"]["default"] == found.models[0].dtype
    for key, own in top["sampling"]["properties"].items():
        assert own["default"] == getattr(found.sampling, key)
    for key, own in top["slo"]["properties"].items():
        assert own["default"] == getattr(found.slo, key)
    for entry in top["workloads"]["items"]["anyOf"][1:]:
        data = {"name": entry["title"]}
        if entry["properties"]["source"].get("default") is None:
            continue
        whole = read({**LEAST, "workloads": [data]})
        assert whole is not None
        (choice,) = whole.workloads
        assert entry["properties"]["max_new_tokens"]["default"] == choice.max_new_tokens
        assert entry["properties"]["source"]["default"] == choice.workload.source


def test_the_reader_names_no_key_that_the_schema_lacks() -> None:
    known = refusal({**LEAST, "qqqqqqqqqqqq": 1}).partition("expected one of: ")[2].split(", ")
    assert sorted(known) == sorted(SCHEMA["properties"])


def test_the_page_is_that_of_the_schema() -> None:
    written = (ROOT / "docs/experiment.md").read_text()
    assert written.rstrip("\n") == experiment_page(), (
        "decodebench schema --markdown > docs/experiment.md"
    )


def test_every_example_can_be_written() -> None:
    for key, own in SCHEMA["properties"].items():
        for example in own.get("examples", ()):
            agree_one = {**LEAST, key: example}
            if key == "reference":
                agree_one["backends"] = [example]
            VALIDATOR.validate(agree_one)


def test_the_command_prints_it() -> None:
    command = [sys.executable, "-m", "harness.cli.main", "schema"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert json.loads(done.stdout) == json.loads(json.dumps(SCHEMA))
