"""Which traces and draft models a replay of drafts takes, and what it says of the others."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import backends
from backends.checkpoints import models, traces
from backends.checkpoints.shapes.drafts import draft_shape
from harness.cli.wiring import warnings
from harness.core.errors import UserError
from harness.core.nouns import Model, Workload
from results.traces.file import read_trace, write_trace
from tests.support.harness.sessions import make_trial
from tests.support.results.made_traces import made_trace
from tests.support.small_shapes import small_shape

METHODS = {
    "draft_model": 12,
    "prompt_lookup": 8,
    "layerskip": 8,
    "eagle3": 8,
    "self_speculation": 12,
    "swift": 12,
    "lookahead": 2,
}
"""Method -> drafts of its bundled trace."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def small(tmp_path: Path) -> Model:
    return small_shape(tmp_path / "small", head_dim=32)


def said(options: dict[str, Any], model: Model) -> list[str]:
    return backends.warnings("speculative", model, options)


def refused(options: dict[str, Any], model: Model) -> str:
    with pytest.raises(UserError) as caught:
        said(options, model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_the_bundled_traces_are_of_this_demo_model(method: str, small: Model) -> None:
    found = read_trace(traces.BUNDLED / f"speculative-{method}.parquet")
    assert found.checksum == models.checksum(models.BUNDLED["demo"]), "record it anew"
    assert (found.depth, len(found.rows), len(found.workloads)) == (8, 80, 4)
    assert found.settings["drafts"] == METHODS[method]
    plain = read_trace(traces.BUNDLED / "adadecode.parquet")
    lengths = {row.request_id: row.answer_tokens for row in plain.rows}
    assert {row.request_id: row.answer_tokens for row in found.rows} == lengths
    options = {"method": method, "replay": "demo", "drafts": METHODS[method]}
    assert said(options, small) == []
    assert said(options, Model("demo")) == []
    for drafts, told in ((1, "is 1"), ("auto", "is auto")):
        (line,) = said({**options, "drafts": drafts}, small)
        assert f"'drafts': {told}, and the trace was recorded with {METHODS[method]}:" in line


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """By what is wrong with it, a trace."""
    good = read_trace(traces.BUNDLED / "speculative-draft_model.parquet")
    none = np.zeros(0, np.int32)
    without = [
        replace(row, drafted=none, accepted=none, asked=none, batch=none) for row in good.rows
    ]
    plain = []
    for row in good.rows:
        passes = np.zeros(row.answer_tokens - 1, np.int32)
        plain.append(replace(row, drafted=passes, accepted=passes, asked=passes, batch=passes))
    made = {
        "OTHER": made_trace(),
        "LENGTHS": replace(good, rows=tuple(without)),
        "UNDRAFTED": replace(good, rows=tuple(plain)),
        "SURER": replace(good, settings={**good.settings, "threshold": 0.9}),
        "DEEPER": replace(
            read_trace(traces.BUNDLED / "speculative-layerskip.parquet"),
            settings={"method": "layerskip", "exit_layer": 6, "drafts": 8},
        ),
    }
    for method in ("self_speculation", "eagle3"):
        own = read_trace(traces.BUNDLED / f"speculative-{method}.parquet")
        kept = {k: v for k, v in own.settings.items() if k not in ("states_after", "skipped_mlp")}
        made[f"SILENT {method}"] = replace(own, settings=kept)
    eagle = read_trace(traces.BUNDLED / "speculative-eagle3.parquet")
    made["EMPTY"] = replace(eagle, settings={**eagle.settings, "states_after": []})
    for name, trace in made.items():
        write_trace(tmp_path / name, trace)
    return {name: tmp_path / name for name in made}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "drafts for random weights are never accepted; give 'replay: demo', a trace or "),
        ({"replay": "OTHER"}, "is a trace of 'adadecode', not of 'speculative'"),
        ({"replay": "nowhere"}, "option 'replay': no trace 'nowhere'; give demo, a file of"),
        ({"replay": "LENGTHS"}, "tells lengths alone; 'decodebench trace' writes one of a run"),
        ({"replay": "UNDRAFTED"}, "has no drafts: none paid where it was recorded; give 'drafts'"),
        ({"replay": "SURER"}, "'threshold': is 0.6; expected 0.9, that of the trace"),
        ({"replay": {"exits": {0.5: 0.4}}}, "'replay'.acceptance: is missing: how often a draft"),
        ({"replay": {"acceptance": 2}}, "'replay'.acceptance: expected a number from 0 to 1"),
        (
            {"replay": {"acceptance": 0.9}, "method": "swift"},
            "how many drafts stand, and swift needs more of a trace; give one, or method draft_mod",
        ),
        (
            {"replay": {"acceptance": 0.9}, "threshold": 0.9},
            "'threshold': decides nothing beside rates",
        ),
        (
            {"replay": {"acceptance": 0.9, "found": 0.5}},
            "'replay'.found: belongs to a search of the text, and draft_model is none",
        ),
        (
            {"replay": {"acceptance": 0.9, "correlation": 0.5}},
            "'replay'.correlation: has no meaning for drafts",
        ),
        (
            {"replay": "EMPTY", "method": "eagle3"},
            "'replay': the trace does not tell its states_after",
        ),
        (
            {"replay": {"acceptance": 0.9}, "method": "eagle3"},
            "an EAGLE-3 head reads states after 3 layers; a model of 4 has no such layers",
        ),
        ({"replay": "demo", "record": True}, "option 'record' has no meaning with 'replay'"),
        ({"replay": "demo", "draft": "1b"}, "1b has "),
        ({"replay": "demo", "draft": "0.2b.json"}, "'draft': shape '0.2b.json': no such file"),
        ({"replay": "demo", "draft": "demo-draft"}, "vocab_size: is 1280; expected the model's 15"),
        ({"replay": "SURER", "method": "layerskip"}, "of method draft_model, not of layerskip"),
        (
            {"replay": "demo", "method": "prompt_lookup", "lookup_max": 3},
            "'lookup_max': is 3; expected 4, that of the trace",
        ),
        (
            {"replay": "DEEPER", "method": "layerskip", "exit_layer": 1},
            "'exit_layer': is 1 of 4; expected 3, the share of the depth at which the trace was",
        ),
        (
            {"replay": "demo", "method": "self_speculation", "sublayers": "mine"},
            "'sublayers': is mine; expected auto: in a replay drafting leaves out what it left out",
        ),
        (
            {"replay": "SILENT self_speculation", "method": "self_speculation"},
            "'replay': the trace does not tell its skipped_mlp",
        ),
        (
            {"replay": "SILENT eagle3", "method": "eagle3"},
            "'replay': the trace does not tell its states_after",
        ),
        (
            {"replay": "demo", "method": "lookahead", "window": 5},
            "'window': is 5; expected 3, that of the trace: another one would draft other tokens",
        ),
        (
            {"replay": "demo", "method": "swift", "skip": 0.25},
            "'skip': is 0.25; expected 0.5, that of the trace",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_a_line(
    options: dict[str, Any], words: str, small: Model, files: dict[str, Path]
) -> None:
    replay = options.get("replay")
    named = str(files.get(replay, replay)) if isinstance(replay, str) else replay
    assert words in refused({**options, "replay": named}, small)


@pytest.mark.parametrize(
    ("method", "layers", "words"),
    [
        ("eagle3", 2, "states after 3 layers of 8; a model of 2 has no such layers"),
        ("self_speculation", 1, "all sublayers of 1 layers are left out: expected one to be kept"),
    ],
)
def test_a_model_with_too_few_layers_for_a_trace_is_refused(
    method: str, layers: int, words: str, small: Model
) -> None:
    assert words in refused({"method": method, "replay": "demo"}, replace(small, layers=layers))


def test_a_larger_draft_model_is_refused_and_nothing_is_written(
    small: Model, tmp_path: Path
) -> None:
    larger = small_shape(tmp_path / "larger", hidden_size=128)
    line = refused({"replay": "demo", "draft": larger.name}, small)
    assert "parameters with the model's vocabulary; expected no more than the model's" in line
    assert [p.name.rpartition("-")[0] for p in (tmp_path / "cache").rglob("*-*/")] == [
        "small-config"
    ]


def test_a_draft_model_for_fewer_positions_is_refused(small: Model, tmp_path: Path) -> None:
    short = small_shape(tmp_path / "short", max_position_embeddings=64)
    options = {"replay": "demo", "draft": short.name}
    assert "is meant for 64 positions; 'max_model_len: 64' or less" in refused(options, small)
    said({**options, "max_model_len": 64}, small)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
def test_vllm_replays_its_own_drafts_alone(
    small: Model, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "vllm-speculative"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    (line,) = backends.warnings(name, small, {"replay": "demo"})
    assert "'replay': runs on vLLM's synchronous scheduler and its V1 model runner, and " in line
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for method in ("draft_model", "eagle3", "ngram"):
        found = read_trace(traces.BUNDLED / f"{name}-{method}.parquet")
        assert found.checksum == models.checksum(models.BUNDLED["demo"]), "record it anew"
        assert (found.method, found.depth, len(found.rows)) == (name, 8, 80)
        assert backends.warnings(name, small, {"method": method, "replay": "demo"}) == []
    assert backends.warnings(name, small, {"replay": "demo"}) == []
    found_half = {"acceptance": 0.9, "found": 0.5}
    assert backends.warnings(name, small, {"method": "ngram", "replay": found_half}) == []
    (line,) = backends.warnings(name, small, {"replay": "demo", "drafts": 5})
    assert "'drafts': is 5, and the trace was recorded with 3" in line
    for options, words in (
        ({}, "'replay: demo', a trace or rates, for method draft_model or eagle3 or"),
        ({"replay": {"acceptance": 0.9}, "method": "eagle"}, "drafts of vLLM's method eagle; e"),
        (
            {"replay": "demo", "method": "medusa"},
            "no trace of method medusa is bundled; 'decodebench t",
        ),
        ({"replay": found_half}, "'replay'.found: belongs to a search"),
        (
            {"replay": {"acceptance": 0.9}, "method": "eagle3", "draft": "0.1b"},
            "'draft': '0.1b': is a shape, and eagle3 drafts with a trained head; expected its fold",
        ),
        ({"replay": str(files["SURER"])}, f"is a trace of 'speculative', not of '{name}'"),
        ({"replay": "demo", "draft": "1b"}, "'draft': 1b has "),
        ({"replay": "demo", "draft": "demo-draft"}, "vocab_size: is 1280; expected the model's 15"),
    ):
        with pytest.raises(UserError) as caught:
            backends.warnings(name, small, options)
        assert words in str(caught.value)


def test_a_trace_of_other_workloads_is_refused(small: Model, tmp_path: Path) -> None:
    good = read_trace(traces.BUNDLED / "speculative-draft_model.parquet")
    rows = tuple(row for row in good.rows if row.workload == "gsm8k")
    write_trace(tmp_path / "t", replace(good, rows=rows))
    options = {"replay": str(tmp_path / "t"), "drafts": 12}
    base = replace(make_trial(), backend="speculative", model=small, options=options)
    assert warnings([replace(base, workload=Workload("gsm8k"))]) == []
    with pytest.raises(UserError, match="the trace has no request of workload 'xsum'") as caught:
        warnings([replace(base, workload=Workload(name)) for name in ("gsm8k", "xsum")])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "label", "layers"),
    [
        ("0.1b", "the model's first 2 layers", 2),
        ("0.5b", "0.1b", 12),
        ("1b", "0.1b", 12),
        ("llama-3.1-8b", "llama-3.2-1b", 16),
        ("qwen3-8b", "qwen3-0.6b", 28),
        ("codellama-34b", "the model's first 8 layers", 8),
    ],
)
def test_a_shape_has_a_draft_model_that_suits_it(model: str, label: str, layers: int) -> None:
    from backends.checkpoints.shapes.folder import outline, read_shape

    whole = read_shape(Model(model, shape=True)).sizes
    for cut in (None, whole.layers - 2):
        with outline(Model(model, layers=cut, shape=True)) as directory:
            found = draft_shape("option", None, directory)
            with found.outline() as own:
                config = models.read_config(own)
        if cut is None:
            assert (found.label, config["num_hidden_layers"]) == (label, layers)
        assert config["vocab_size"] == whole.vocabulary
