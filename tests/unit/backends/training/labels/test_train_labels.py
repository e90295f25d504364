"""Training classifiers with ramps, for a few steps; and what the bundled ones' reports say."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from backends.checkpoints import models
from backends.classifiers.models.bert import BertClassifier
from backends.classifiers.models.shapes import EncoderShape
from backends.classifiers.weights import load
from backends.training.labels import report, train
from backends.training.labels.display import report_lines
from backends.training.labels.fit import _fit_ramps, logits_of
from backends.training.labels.recipe import SENTIMENT, labelled_rows
from harness.core.errors import UserError


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes of a moment."""
    monkeypatch.setattr(report, "TEST_ROWS", 20)
    for name in ("SENTIMENT", "SHAPES"):
        few = replace(getattr(train, name), batch=8)
        monkeypatch.setattr(train, name, replace(few, ramp_rows=min(few.ramp_rows, 32)))


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("workload", ["sentiment", "shapes"])
def test_one_command_leaves_a_checkpoint_that_loads(workload: str, tmp_path: Path) -> None:
    told: list[str] = []
    found = train.train(workload, tmp_path, told.append, steps=3, threads=1)
    written = json.loads((tmp_path / train.REPORT).read_text())
    assert written == json.loads(json.dumps(found))
    network = load(tmp_path)
    assert network.ramps == tuple(range(1, network.depth))
    assert {*found["test"]["layers"]} == {str(n) for n in range(1, network.depth + 1)}
    assert f"| {network.depth} |" in "\n".join(report_lines(found))
    tokenizer = models.load_tokenizer(tmp_path)
    content, _ = next(labelled_rows(workload, 0))
    assert max(tokenizer.encode(content)) < network.vocabulary


@pytest.mark.usefixtures("few_rows")
def test_a_training_killed_while_it_measures_can_be_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*told: object) -> None:
        raise KeyboardInterrupt

    asked = partial(train.train, "shapes", tmp_path, lambda line: None, steps=1, threads=1)
    for seed in (0, 1):
        with monkeypatch.context() as patch:
            patch.setattr(train, "measured_on_test_rows", killed)
            with pytest.raises(KeyboardInterrupt):
                asked(seed=seed)
        assert (tmp_path / "model.safetensors").is_file()
        assert not (tmp_path / train.REPORT).exists(), "none of other weights"
        assert asked(seed=seed)["recipe"]["seed"] == seed
        assert not (tmp_path / train.BEGUN).exists()
    (tmp_path / train.REPORT).unlink()
    with pytest.raises(UserError, match=r"holds config\.json, which this command has not written"):
        asked()


def test_the_second_stage_trains_the_ramps_alone() -> None:
    torch.manual_seed(0)
    shape = EncoderShape(
        layers=3,
        width=16,
        heads=2,
        feed_forward=16,
        vocabulary=128,
        positions=32,
        types=1,
        classes=2,
    )
    network = BertClassifier(shape, (1, 2)).eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    recipe = replace(SENTIMENT, ramp_rows=128, batch=16, ramp_epochs=3)

    def encode(contents: list[str]) -> list[list[int]]:
        return [[ord(sign) % 128 for sign in content[:20]] for content in contents]

    _fit_ramps(network, recipe, encode, lambda line: None)  # type: ignore[arg-type]
    after = network.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "highway" in name}
    assert len(logits_of(network, [[1, 2], [3]], True)) == 3


@pytest.mark.parametrize(("workload", "least"), [("sentiment", 0.99), ("shapes", 0.93)])
def test_the_bundled_classifiers_are_as_good_as_their_card_says(
    workload: str, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = models.BUNDLED[f"demo-{workload}"]
    told = json.loads((folder / train.REPORT).read_text())["test"]
    card = (folder.parent / "README.md").read_text()
    assert all(line in card for line in report_lines({"test": told, "seconds": 0})[2:])
    network = load(folder)
    last = told["layers"][str(network.depth)]
    assert last["all"] >= least
    assert told["layers"]["1"]["all"] < last["all"] - 0.05
    assert all(right["easier"] >= right["harder"] for right in told["layers"].values())
    monkeypatch.setattr(report, "TEST_ROWS", 100)
    tokenizer = models.load_tokenizer(folder)
    found = report.measured_on_test_rows(
        network,  # type: ignore[arg-type]
        workload,
        lambda contents: tokenizer(list(contents))["input_ids"],
    )
    assert abs(found["layers"][str(network.depth)]["all"] - last["all"]) <= 0.06
