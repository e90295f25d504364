"""The calibration's driver, against a backend whose answers are known in advance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backends.checkpoints import models
from backends.early_exit.calibration import calibrate
from backends.early_exit.calibration.files import open_calibration
from backends.early_exit.calibration.learn_then_test import p_value
from harness.core.rouge import rouge_l
from tests.support.exits.calibrating import DEMO, GRID, SETTINGS, prompts, run, wrong
from tests.support.exits.fake_exits import DEPTH, Opener


def test_the_last_threshold_that_is_accepted_in_turn_is_chosen(
    engines: Opener, tmp_path: Path
) -> None:
    found = run(tmp_path / "c.json")
    values = [p_value(wrong(t), 0.4, binary=True) for t in GRID]
    stop = next(i for i, value in enumerate(values) if value > 0.05)
    assert 1 < stop < len(GRID) - 1
    assert found.thresholds == (GRID[stop - 1],) * 2
    assert [point.threshold for point in found.curve] == list(GRID[: stop + 1])
    assert [point.p_value for point in found.curve] == pytest.approx(values[: stop + 1])
    losses = wrong(GRID[stop - 1])
    assert found.risk == pytest.approx(sum(losses) / 80)
    assert found.risk < found.bound < 0.4
    assert found.test == "exact binomial"
    assert found.prompts == {"gsm8k": 40, "xsum": 40}
    assert found.layers == (2, 4)
    assert (found.batch, found.seed, found.dtype) == (1, 10_000, "float32")
    assert found.backend == "vllm-early-exit 1.2"
    assert "With 95% confidence over the draw of 80 calibration prompts" in found.statement
    assert f"equal to the full model's is at least 0.6 at threshold {GRID[stop - 1]:g}" in (
        found.statement
    )
    assert found.statement.endswith(
        "for the mixture of workloads, prompts drawn like these and decoded one at a time in "
        "float32."
    )
    assert open_calibration(tmp_path / "c.json", DEMO) == found
    assert engines.opened[0].closed


def test_exit_figures_are_those_of_the_decoded_tokens(engines: Opener, tmp_path: Path) -> None:
    found = run(tmp_path / "c.json")
    backend = engines.opened[0]
    for point in found.curve:
        backend.setting = {"measure": "state", "threshold": point.threshold}
        lengths = [(len(backend.answer(ids)) - 1, backend.is_wrong(ids)) for ids in prompts()]
        steps = sum(length for length, _ in lengths)
        layers = sum(length * (2 if early else 4) for length, early in lengths)
        assert point.mean_exit_layer == pytest.approx(layers / steps)
        assert point.early_exit_rate == pytest.approx(1 - layers / steps / DEPTH)


def test_the_whole_curve_is_measured_but_not_chosen_from(engines: Opener, tmp_path: Path) -> None:
    short = run(tmp_path / "short.json")
    whole = run(tmp_path / "whole.json", replace(SETTINGS, whole_curve=True))
    assert len(whole.curve) == len(GRID) > len(short.curve)
    assert [point.tested for point in whole.curve].count(True) == len(short.curve)
    assert whole.thresholds == short.thresholds


def test_rouge_is_taken_of_the_texts(engines: Opener, tmp_path: Path) -> None:
    found = run(tmp_path / "c.json", replace(SETTINGS, metric="rouge_l"))
    tokenizer, backend = models.load_tokenizer(DEMO), engines.opened[0]
    full = tokenizer.decode(backend.right)
    loss = 1 - rouge_l(full, tokenizer.decode(backend.right[:4] + backend.wrong))
    assert 0 < loss < 1
    assert found.test == "Hoeffding-Bentkus"
    for point in found.curve:
        losses = wrong(point.threshold)
        assert point.quality == pytest.approx(1 - loss * sum(losses) / len(losses))
        scaled = [loss * value for value in losses]
        assert point.p_value == pytest.approx(p_value(scaled, 0.4))


@pytest.mark.parametrize("batch", [4, 7])
def test_a_batch_is_one_observation(engines: Opener, tmp_path: Path, batch: int) -> None:
    settings = replace(SETTINGS, batch=batch)
    found = run(tmp_path / "c.json", settings)
    whole = 80 // batch * batch
    assert sum(found.prompts.values()) == whole
    losses = wrong(0.95, settings)
    groups = [sum(losses[i : i + batch]) / batch for i in range(0, whole, batch)]
    assert found.curve[0].p_value == pytest.approx(p_value(groups, 0.4))
    assert found.test == "Hoeffding-Bentkus"
    assert {count for _, count in engines.opened[0].decoded} == {batch}
    assert f"decoded {batch} at a time" in found.statement
    assert engines.opened[0].options["max_num_seqs"] == batch


def test_trained_heads_are_pinned_by_their_content(engines: Opener, tmp_path: Path) -> None:
    settings = replace(SETTINGS, measure="softmax", heads="mixed")
    found = run(tmp_path / "c.json", settings)
    assert found.heads == "mixed"
    assert found.parameters is not None
    assert len(found.parameters) == 64
    assert engines.opened[0].options["heads"] == "mixed"
    assert run(tmp_path / "d.json").parameters is None


def test_the_choice_is_that_of_fixed_sequence_testing(
    engines: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function that the simulations of the guarantee are about is the one that chooses."""
    monkeypatch.setattr(calibrate, "accepted", lambda p_values, _: min(len(p_values), 1))
    found = run(tmp_path / "c.json")
    assert found.thresholds == (GRID[0],) * 2
    assert [point.tested for point in found.curve] == [True, True]
