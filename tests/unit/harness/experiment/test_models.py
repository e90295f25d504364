"""The key `model`: one checkpoint or shape, or several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.errors import UserError
from harness.core.nouns import Model
from harness.experiment.config import Experiment, load_experiment, parse_experiment
from tests.unit.harness.experiment.test_config import GOOD, KNOWN


def parse(**changes: Any) -> Experiment:
    return parse_experiment({**GOOD, **changes}, "f.yaml", KNOWN)


def shape(name: str, layers: int | None = None) -> Model:
    return Model(name, dtype="auto", shape=True, layers=layers)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("demo", [Model("demo", dtype="auto")]),
        ({"name": "a/b", "revision": "c"}, [Model("a/b", "c", dtype="auto")]),
        ({"shape": "0.5b"}, [shape("0.5b")]),
        ({"shape": "my/config.json", "layers": 8}, [shape("my/config.json", 8)]),
        ({"shape": ["0.1b", "0.5b"]}, [shape("0.1b"), shape("0.5b")]),
        (
            {"shape": ["a", "b"], "layers": [1, 2]},
            [shape("a", 1), shape("a", 2), shape("b", 1), shape("b", 2)],
        ),
        (
            ["demo", {"shape": "0.1b", "layers": [2, 4]}],
            [Model("demo", dtype="auto"), shape("0.1b", 2), shape("0.1b", 4)],
        ),
    ],
)
def test_lists_of_models_expand_like_lists_elsewhere(model: Any, expected: list[Model]) -> None:
    assert list(parse(model=model).models) == expected


def test_every_model_runs_every_cell_and_no_two_have_one_engine_or_key() -> None:
    experiment = parse(
        model=["demo", {"shape": "0.1b", "layers": [1, 2]}],
        backends=["vllm", "scripted"],
        workloads=["gsm8k", "xsum"],
        repeats=2,
    )
    trials = experiment.trials()
    assert len(trials) == 3 * 2 * 2 * 2
    assert len({trial.key("machine") for trial in trials}) == len(trials)
    assert len({trial.engine_key() for trial in trials}) == 3 * 2


def test_a_shape_is_another_model_than_a_checkpoint_of_its_name() -> None:
    labels = [model.label() for model in (shape("x"), shape("x", 1), shape("x", 8), Model("x"))]
    assert labels == ["x", "x, 1 layer", "x, 8 layers", "x"]
    keys = {parse(model=m).trials()[0].key("m") for m in ("x", {"shape": "x"})}
    assert len(keys) == 2


@pytest.mark.parametrize("model", ["demo", {"shape": "0.1b"}, ["demo", {"shape": ["a", "b"]}]])
def test_a_resolved_experiment_lists_them_again(model: Any, tmp_path: Path) -> None:
    experiment = parse(model=model)
    (tmp_path / "experiment.yaml").write_text(experiment.to_yaml())
    stored = yaml.safe_load(experiment.to_yaml())
    assert isinstance(stored["model"], list) == (len(experiment.models) > 1)
    assert list(stored)[:2] == ["name", "model"]
    assert load_experiment(tmp_path / "experiment.yaml", KNOWN) == experiment


def test_one_that_was_stored_before_there_were_shapes_is_read() -> None:
    stored = yaml.safe_load(parse(model={"name": "demo", "checksum": "c"}).to_yaml())
    del stored["model"]["shape"], stored["model"]["layers"]
    del stored["limits"]["cache_gib"]
    (found,) = parse_experiment(stored, "f.yaml", KNOWN).models
    assert found == Model("demo", checksum="c", dtype="auto")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ([], "model: expected a list with at least one entry, got []"),
        ([1], "model[0]: expected a bundled name, a hub id, a local path or {shape: NAME}, got 1"),
        ({"shape": ""}, "model.shape: expected a name or the path of a config.json, got ''"),
        ({"shape": []}, "model.shape: an empty list makes an empty grid"),
        ({"shape": "a", "layers": 0}, "model.layers: expected a whole number of at least 1, got 0"),
        ({"shape": "a", "layers": "all"}, "model.layers: expected a whole number"),
        ({"shape": "a", "layer": 1}, "model.layer: unknown key; did you mean 'layers'?"),
        ({"name": "demo", "layers": 2}, "model.layers: unknown key; it belongs to a 'shape'"),
        ({"shap": "a"}, "model: the key 'name' is missing"),
        (["demo", "demo"], "f.yaml: model: stands twice: "),
        ([{"shape": ["a", "b"]}, {"shape": "b"}], "f.yaml: model: stands twice: "),
        ({"shape": [str(i) for i in range(201)]}, "model: 201 cells of a grid, more than 200"),
    ],
)
def test_bad_models_are_one_line(model: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(model=model)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_limits_count_models() -> None:
    many = {"shape": [str(i) for i in range(150)]}
    with pytest.raises(UserError, match="300 models x backends x options, more than 200; 'limits"):
        parse(model=many, backends=["vllm", "scripted"])
    with pytest.raises(UserError, match=r"150 trials \(models x backends x options x .*than 149"):
        parse(model=many, limits={"trials": 149})


def test_keys_of_a_model_at_the_top_are_told_where_they_belong() -> None:
    with pytest.raises(UserError, match=r"f\.yaml: layers: unknown key; it belongs under 'model'"):
        parse(layers=2)
    with pytest.raises(UserError, match="cache_gib: unknown key; it belongs under 'limits'"):
        parse(cache_gib=2)
