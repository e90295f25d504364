"""A run of what is bundled says so before anything else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import yaml

from harness.core.nouns import REPLAYED, Model, Workload
from reports.page import render
from reports.words.scale import banner
from results import Store, load
from tests.support.results.make_trials import generation, record, told, trial


def _run(folder: Path, model: str, source: str) -> Store:
    """One trial of vLLM."""
    store = Store(folder)
    store.write_experiment(yaml.safe_dump({"name": "one", "reference": "vllm"}))
    made = dataclasses.replace(
        trial("vllm"), model=Model(model), workload=Workload("gsm8k", source=source)
    )
    store.write(record(made, [generation("r", [10, 20, 30])]))
    return store


def test_model_and_prompts_are_named(tmp_path: Path) -> None:
    _run(tmp_path, "demo", "bundled")
    words = banner(load(tmp_path))
    assert words.startswith("The model is the bundled one, on a CPU")
    assert "All prompts are generated" in words
    assert "Nothing here is about real models or data sets: a model of 8B may" in words
    assert words in render(load(tmp_path)).replace("&#39;", "'")


def test_only_what_is_bundled_is_named(tmp_path: Path) -> None:
    _run(tmp_path / "model", "org/model", "bundled")
    assert banner(load(tmp_path / "model")).endswith("Nothing here is about real data sets.")
    _run(tmp_path / "prompts", "demo", "hub")
    words = banner(load(tmp_path / "prompts"))
    assert "prompts" not in words
    assert words.endswith(
        "Nothing here is about real models: a model of 8B may rank them otherwise."
    )


def test_a_workload_of_both_sources_is_not_called_made_up(tmp_path: Path) -> None:
    store = _run(tmp_path, "org/model", "bundled")
    for name in ("gsm8k", "xsum"):
        made = dataclasses.replace(
            trial("vllm"), model=Model("org/model"), workload=Workload(name, source="hub")
        )
        store.write(record(made, [generation("r", [10, 20, 30])]))
    words = banner(load(tmp_path))
    assert words.startswith("The prompts of gsm8k (bundled) are generated stand-ins")


def test_replays_say_what_is_not_of_the_model(tmp_path: Path) -> None:
    store = _run(tmp_path, "org/model", "hub")
    made = dataclasses.replace(
        trial("vllm"), model=Model("llama-3.1-8b", shape=True), workload=Workload("gsm8k")
    )
    found = record(made, [generation("r", [10, 20, 30])])
    about = dataclasses.replace(told("vllm", {}), provenance=REPLAYED)
    store.write(dataclasses.replace(found, backend=about))
    words = banner(load(tmp_path))
    assert words.startswith("Decisions of the rows marked so were replayed and the weights are ran")
    assert words.endswith("On yours it differs, and with it every ratio.")
    assert "generated" not in words


def test_replayed_rates_are_the_experiments_own_words(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_experiment(yaml.safe_dump({"name": "one", "reference": "vllm"}))
    about = dataclasses.replace(told("vllm", {}), provenance=REPLAYED)
    rated = dataclasses.replace(trial("vllm"), options={"replay": {"acceptance": 0.7}})
    found = record(rated, [generation("r", [10, 20, 30])])
    store.write(dataclasses.replace(found, backend=about))
    words = banner(load(tmp_path))
    assert "succeed is what the experiment states. Where that does not hold, no ratio" in words
    traced = dataclasses.replace(trial("vllm"), options={"replay": "demo"})
    found = record(traced, [generation("r", [10, 20, 30])])
    store.write(dataclasses.replace(found, backend=about))
    words = banner(load(tmp_path))
    assert "succeed is another model's or what the experiment states. On yours it" in words


def test_real_models_on_real_rows_have_no_banner(tmp_path: Path) -> None:
    _run(tmp_path, "org/model", "hub")
    assert banner(load(tmp_path)) == ""
    assert 'class="banner"' not in render(load(tmp_path))
