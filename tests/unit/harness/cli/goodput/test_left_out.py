"""What is not run is not asked whether it could be: `goodput --only`, and cells not confirmed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from harness.cli import wiring
from harness.cli.gate import confirm
from harness.cli.goodput.probing import described, systems
from harness.cli.goodput.search_run import search_all
from harness.cli.goodput.searching import SystemSearch
from harness.core.errors import UserError
from harness.core.nouns import Model, to_json
from harness.experiment.config import load_experiment
from harness.measure.machine import meters
from results.compare.gate.decision import Decision
from results.compare.gate.reduced import ReducedRun, cell_name
from tests.support.results.virtual_server import SETTINGS
from tests.support.small_shapes import small_shape


class BegunError(Exception):
    """Stands for what would run."""


def written(file: Path, model: Any, *backends: Any) -> Path:
    content = {
        "name": "some",
        "model": model,
        "backends": ["autoregressive", *backends],
        "reference": "autoregressive",
        "workloads": ["gsm8k"],
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 2,
        "slo": {"e2e_ms": 1000},
    }
    file.write_text(yaml.safe_dump(content))
    return file


def test_a_search_of_one_backend_leaves_the_options_of_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "f.yaml", "demo", {"name": "adadecode", "exit_layers": [99]})
    monkeypatch.setattr(SystemSearch, "searched", mock.Mock(side_effect=BegunError))

    def search(only: str) -> None:
        search_all(file, tmp_path / only, only, lambda _: SETTINGS, quiet=True)

    with pytest.raises(UserError, match="adadecode"):
        search("adadecode")
    with pytest.raises(BegunError):
        search("autoregressive")


def test_systems_of_one_experiment_are_told_apart(tmp_path: Path) -> None:
    """Entries of one workload, and variants of one backend, had one name."""
    drafts = {"name": "speculative", "drafts": [2, 4]}
    replay = {"name": "adadecode", "replay": "demo"}
    file = written(tmp_path / "f.yaml", "demo", drafts, "adadecode", replay)
    content = yaml.safe_load(file.read_text())
    content["workloads"] = [{"name": "gsm8k", "max_new_tokens": n} for n in (4, 16)]
    file.write_text(yaml.safe_dump(content))
    experiment = load_experiment(file, wiring.known())
    found = systems(experiment, None)
    workload = 'gsm8k {"max_new_tokens":4}'
    assert [one.label() for one in found[:5]] == [
        f"{name}, {workload}"
        for name in (
            "autoregressive",
            "speculative drafts=2",
            "speculative drafts=4",
            "adadecode",
            "adadecode (replayed)",
        )
    ]
    told = [described(one) for one in found]
    assert len({one["system"] for one in told}) == 10
    assert [one["workload"] for one in told] == ["gsm8k"] * 10
    assert {one["max_new_tokens"] for one in told} == {4, 16}
    both = replace(experiment, models=(*experiment.models, Model("other")))
    assert systems(both, None)[0].label() == f"autoregressive, {workload} on demo"


def test_what_is_not_confirmed_needs_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = small_shape(tmp_path / "shape", num_hidden_layers=1).name
    large = {"name": "vllm", "kv_cache_gib": 40}
    file = written(tmp_path / "experiment.yaml", {"shape": shape}, large)
    monkeypatch.setattr(meters, "total_memory", lambda: 12 * 2**30)
    for name in ("_check_here", "find_checkout"):
        monkeypatch.setattr(confirm, name, mock.Mock())
    monkeypatch.setattr(confirm, "run_against", mock.Mock(side_effect=BegunError))
    experiment = load_experiment(file, wiring.known())
    plain, vllm = (cell_name(t, to_json(experiment)) for t in experiment.trials())

    def confirmed(*cells: Any) -> None:
        decision = Decision("a", "b", 0.05, True, [], [], [], lacking=frozenset(cells))
        sides = (ReducedRun("a", []), ReducedRun("b", []))
        confirm.confirm(decision, sides, tmp_path, "other", [])

    with pytest.raises(BegunError):
        confirmed(plain)
    with pytest.raises(UserError, match="kv_cache_gib"):
        confirmed(plain, vllm)
