"""Experiment files: what they expand to, and one clear line for each way to get them wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.errors import UserError
from harness.core.nouns import Load, Slo, Workload
from harness.experiment.config import Known, load_experiment, parse_experiment
from harness.experiment.strict_yaml import read_yaml


def refuse_high(name: str, options: Mapping[str, Any]) -> None:
    if options.get("itl_s", 0) > 1:
        raise UserError(f"backend '{name}': option 'itl_s': expected at most 1")


def refuse_revision(workload: Workload) -> None:
    if "revision" in workload.options:
        raise UserError(f"workload {workload.name}: option 'revision' needs 'source: hub'")


def refuse_rates(rates: Mapping[str, Any], where: str) -> None:
    if rates.get("acceptance", 0) > 1:
        raise UserError(f"{where}.acceptance: expected a number from 0 to 1")


KNOWN = Known(
    backends={"vllm": {"engine": False}, "scripted": {"stalls": True, "itl_s": False}},
    workloads={"gsm8k": 64, "xsum": 32, "humaneval": 96},
    check_options=refuse_high,
    check_workload=refuse_revision,
    check_rates=refuse_rates,
)
CYCLE: dict[str, Any] = {}
CYCLE["a"] = CYCLE
GOOD: dict[str, Any] = {
    "name": "demo",
    "model": "demo",
    "backends": ["vllm"],
    "workloads": ["gsm8k"],
    "load": [{"kind": "closed", "concurrency": 1}],
}


def parse(**changes: Any) -> Any:
    data = {key: value for key, value in {**GOOD, **changes}.items() if value != "ABSENT"}
    return parse_experiment(data, "f.yaml", KNOWN)


def test_defaults_are_filled_in() -> None:
    experiment = parse()
    assert experiment.reference == "vllm"
    assert experiment.repeats == 1
    assert experiment.slo == Slo()
    assert experiment.workloads[0].max_new_tokens == 64
    assert experiment.workloads[0].workload.source == "bundled"


def test_lists_expand_as_a_grid_over_every_axis() -> None:
    experiment = parse(
        backends=["vllm", {"name": "scripted", "itl_s": [0.1, 0.2], "stalls": [[1], [2]]}],
        workloads=["gsm8k", {"name": "xsum", "rows": 5, "mix": "80:20"}],
        load=[{"kind": "closed", "concurrency": [1, 8]}, {"kind": "gamma", "rate": [1, 2]}],
        repeats=2,
    )
    assert len(experiment.backends) == 5
    assert len(experiment.loads) == 4
    assert len(experiment.trials()) == 2 * 5 * 2 * 4
    assert len({trial.key("machine") for trial in experiment.trials()}) == 80
    assert experiment.workloads[1].workload.options == {"mix": "80:20"}
    assert experiment.loads[-1] == Load(kind="gamma", rate=2.0, burstiness=1.0)


def test_a_list_option_takes_a_list_as_its_value() -> None:
    experiment = parse(backends=[{"name": "scripted", "stalls": [1, 2]}])
    assert [choice.options for choice in experiment.backends] == [{"stalls": [1, 2]}]


def test_the_key_of_a_trial_changes_with_everything_that_matters() -> None:
    trial = parse().trials()[0]
    others = [
        parse(seed=1),
        parse(requests=65),
        parse(slo={"ttft_ms": 1}),
        parse(dtype="float32"),
        parse(sampling={"temperature": 0.01}),
        parse(max_new_tokens=3),
        parse(reload=True),
    ]
    keys = {trial.key("machine"), trial.key("another machine")}
    keys |= {other.trials()[0].key("machine") for other in others}
    assert len(keys) == 9
    assert parse(reload=False).trials()[0] == trial


def test_the_resolved_experiment_is_yaml_that_names_the_reference() -> None:
    data = yaml.safe_load(parse().to_yaml())
    assert data["reference"] == "vllm"
    assert data["model"]["name"] == "demo"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": 1}, "f.yaml: backend: unknown key; did you mean 'backends'?"),
        ({"backends": []}, "f.yaml: backends: expected a list with at least one entry, got []"),
        ({"backends": ["vlm"]}, "backends[0].name: unknown backend 'vlm'; did you mean 'vllm'?"),
        ({"backends": [{"name": "vllm", "engin": 1}]}, "unknown option of 'vllm'; did you mean"),
        ({"backends": [{"name": "scripted", "itl_s": 2}]}, "f.yaml: backends[0]: backend 'scr"),
        ({"backends": [{"name": "scripted", "itl_s": []}]}, "itl_s: an empty list makes an empty"),
        ({"workloads": ["gsm"]}, "workloads[0].name: unknown workload 'gsm'; did you mean 'gsm8k'"),
        (
            {"workloads": [{"name": "xsum", "rows": 0}]},
            "workloads[0].rows: expected a whole number",
        ),
        ({"load": [{"kind": "closed"}]}, "a 'closed' load needs the key 'concurrency'"),
        ({"load": [{"kind": "closed", "rate": 1}]}, "load[0].rate: unknown key of a 'closed' load"),
        (
            {"load": [{"kind": "poisson", "rate": 1, "concurrency": 8}]},
            "load[0].concurrency: unknown key of a 'poisson' load",
        ),
        (
            {"load": [{"kind": "poison", "rate": 1}]},
            "unknown load 'poison'; did you mean 'poisson'",
        ),
        ({"load": [{"kind": "poisson", "rate": "1e3"}]}, "expected a number above 0, got '1e3'"),
        ({"load": [{"kind": "gamma", "rate": 1, "redraw": 1}]}, "redraw: expected true or false"),
        (
            {"load": [{"kind": "closed", "redraw": True}]},
            "load[0].redraw: unknown key of a 'closed",
        ),
        (
            {"load": [{"kind": "poisson", "rate": 1, "redraw": True}], "duration_s": 2},
            "f.yaml: load: poisson 1/s redrawn: with 'duration_s' each repeat would ask other requ",
        ),
        ({"load": [{"kind": "poisson", "rate": -1}]}, "expected a number above 0, got -1"),
        ({"load": [{"kind": "poisson", "rate": 0}]}, "expected a number above 0, got 0"),
        ({"load": [{"kind": "trace", "trace": 3}]}, "expected the path of a trace file, got 3"),
        ({"requests": True}, "f.yaml: requests: expected a whole number of at least 1, got True"),
        ({"reload": 2}, "f.yaml: reload: expected true or false, got 2"),
        ({"repeats": 0}, "f.yaml: repeats: expected a whole number of at least 1, got 0"),
        ({"model": None}, "model: expected a bundled name, a hub id, a local path or {shape"),
        ({"model": "ABSENT"}, "f.yaml: the key 'model' is missing"),
        (
            {"model": "ABSENT", "models": "demo"},
            "f.yaml: the key 'model' is missing (found 'models')",
        ),
        (
            {"model": {"name": "m", "revison": "a"}},
            "f.yaml: model.revison: unknown key; did you mean",
        ),
        ({"name": "ABSENT", "nam": "x"}, "f.yaml: the key 'name' is missing (found 'nam')"),
        ({"slo": {"ttft": 1}}, "f.yaml: slo.ttft: unknown key; did you mean 'ttft_ms'?"),
        ({"slo": [1]}, "f.yaml: slo: expected a mapping of keys, got [1]"),
        ({"slo": {"ttft_ms": float("nan")}}, "slo.ttft_ms: expected a number above 0, got nan"),
        ({"reference": "sglang"}, "f.yaml: reference: 'sglang' is not among the backends"),
        ({"dtype": "bf16"}, "f.yaml: dtype: unknown dtype 'bf16'; did you mean 'bfloat16'?"),
        ({"sampling": {"top_p": 2}}, "expected a number above 0 and up to 1, got 2"),
        ({"sampling": {"temperature": 0.009}}, "expected 0 (greedy) or at least 0.01, got 0.009"),
        ({"sampling": {"temperature": 1e-300}}, "temperature: expected 0 (greedy) or at least"),
        ({1: 2}, "f.yaml: expected keys that are names, got 1"),
        ({"name": "../x"}, "f.yaml: name: expected a folder's name, without '/'"),
        ({"name": ".."}, "f.yaml: name: expected a folder's name"),
        ({"name": "a\0b"}, "f.yaml: name: expected a folder's name"),
        ({"name": "x" * 101}, "f.yaml: name: expected a folder's name"),
        ({"requests": 10**400}, "f.yaml: requests: expected a whole number up to 10000000, got 1"),
        ({"seed": 10**5000}, "f.yaml: seed: expected a whole number up to 92233"),
        ({"load": [{"kind": "poisson", "rate": 10**400}]}, "load[0].rate: expected a number above"),
        ({"time_limit_s": 1e18}, "time_limit_s: expected a number above 0 and up to 1e+09"),
        (
            {"backends": [{"name": "vllm", "engine": {"a": date(2024, 1, 1)}}]},
            "f.yaml: backends[0].engine: expected texts, finite numbers",
        ),
        (
            {"backends": [{"name": "scripted", "itl_s": float("inf")}]},
            "f.yaml: backends[0].itl_s: expected texts, finite numbers",
        ),
        ({"backends": [{"name": "vllm", "engine": CYCLE}]}, "engine: expected texts, finite"),
        ({"backends": ["vllm", "vllm"]}, 'backends: stands twice: {"name":"vllm","options":{}}'),
        ({"load": [{"kind": "closed", "concurrency": [1, 1]}]}, "f.yaml: load: stands twice"),
        ({"workloads": ["gsm8k", "gsm8k"]}, "f.yaml: workloads: stands twice"),
        (
            {"workloads": [{"name": "gsm8k", "revision": "a"}]},
            "f.yaml: workloads[0]: workload gsm8k: option 'revision' needs 'source: hub'",
        ),
    ],
)
def test_bad_input_is_one_line_that_says_what_where_and_what_else(
    changes: dict[Any, Any], message: str
) -> None:
    data = {key: value for key, value in {**GOOD, **changes}.items() if value != "ABSENT"}
    with pytest.raises(UserError) as caught:
        parse_experiment(data, "f.yaml", KNOWN)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: a\nname: b\n", "e.yaml:2: the key 'name' stands twice"),
        (b"name: [1,\n", "e.yaml:2: "),
        (b"- 1\n", "e.yaml: expected a mapping of keys"),
        (b"", "e.yaml: expected a mapping of keys, got None"),
        (b"\xff\xfe\x00", "e.yaml: cannot be read: not utf-8 text"),
        (b"name: !!python/object/apply:os.system ['true']\n", "e.yaml:1: could not determine"),
        (b"[" * 5000, "e.yaml: nested too deeply"),
        (b"name: 2024-13-01\n", "e.yaml:1: month must be in 1..12"),
        (b"a: 1\nseed: " + b"1" * 5000, "e.yaml:2: a number of 5,000 characters"),
    ],
)
def test_a_file_that_is_not_an_experiment(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "e.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_experiment(file, KNOWN)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_merge_key_takes_over_the_keys_of_another_mapping(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert read_yaml(file)["b"] == {"x": 1, "y": 3}


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").touch()
    with pytest.raises(UserError, match=r"no such file.*did you mean 'demo.yaml'"):
        read_yaml(tmp_path / "demmo.yaml")


RATES = {"exits": {0.25: 0.1, 0.5: 0.4}, "acceptance": 0.95}


def with_rates(backend: dict[str, Any], **rates: Any) -> Any:
    known = replace(KNOWN, backends={"vllm": {"engine": False, "replay": False}})
    content = {**GOOD, "backends": [backend], "rates": rates, "reference": "vllm"}
    return parse_experiment(content, "x.yaml", known)


def test_rates_stand_in_the_trials_that_name_them() -> None:
    own = {"name": "chatty", "exits": {"0.25": 0.1, "0.5": 0.4}, "acceptance": 0.95}
    named = with_rates({"name": "vllm", "replay": ["chatty", "demo", {"length": 3}]}, chatty=RATES)
    assert [b.options["replay"] for b in named.backends] == [own, "demo", {"length": 3}]
    inline = with_rates({"name": "vllm", "replay": {"name": "chatty", **RATES}})
    assert inline.backends[0] == named.backends[0]
    again = parse_experiment(
        yaml.safe_load(named.to_yaml()),
        "resolved",
        replace(KNOWN, backends={"vllm": {"engine": False, "replay": False}}),
    )
    assert again.backends == named.backends


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"chatty": {"acceptance": 2}}, "x.yaml: rates.chatty.acceptance: expected a number from"),
        (
            {"chatty": 3},
            "x.yaml: rates.chatty: expected a mapping of exits, acceptance, found, length",
        ),
        ({"demo": RATES}, "x.yaml: rates.demo: the bundled traces are called so; give another"),
        ({"chatty": {"length": float("nan")}}, "x.yaml: rates.chatty: expected texts, finite"),
    ],
)
def test_bad_rates_name_the_file_and_the_key(rates: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        with_rates({"name": "vllm"}, **rates)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(("replay", "near"), [("chaty", "chatty"), ("dmo", "demo")])
def test_rates_that_are_misspelt_are_told_the_nearest_name(
    replay: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        with_rates({"name": "vllm", "replay": replay}, chatty=RATES)
    where = "x.yaml: backends[0].replay"
    assert str(caught.value) == f"{where}: no rates or trace '{replay}'; did you mean '{near}'?"
    Path(replay).touch()
    found = with_rates({"name": "vllm", "replay": replay}, chatty=RATES)
    assert found.backends[0].options["replay"] == replay
