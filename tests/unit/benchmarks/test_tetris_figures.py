"""The paper's figures: their variants of BERT, the serial run, and the page."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from backends.tetris.pipeline.stage_times import StageTimes
from benchmarks.tetris import paper
from benchmarks.tetris.paper_figures import costs, models, runs
from benchmarks.tetris.paper_figures.figure import WORDS, Series, beside
from benchmarks.tetris.paper_figures.page import write_page
from tests.support.tetris.four_layers import profile


def test_the_usual_threshold_of_entropy_has_the_usual_survival() -> None:
    assert models.at_entropy(0.4) == pytest.approx(paper.model(1).survival)
    strict, lax = models.at_entropy(0.3), models.at_entropy(0.5)
    assert all(a > b for a, b in zip(strict[1:], lax[1:], strict=True))


def test_patience_lets_inputs_leave_so_many_ramps_later() -> None:
    early, late = (models.inputs(name, 5_000).depths() for name in ("bert", models.PABEE))
    assert (late == np.minimum(early + models.PATIENCE - 1, paper.LAYERS)).all()


def test_without_the_wrapper_every_ramp_of_a_stage_runs() -> None:
    on, off = StageTimes(paper.model(8)), StageTimes(models.variant(models.BLACK_BOX, 8))
    ramp = paper.model(8).ramp_ms["V100"]
    more = off.stage_ms("V100", 0, 5, 8) - on.stage_ms("V100", 0, 5, 8)
    assert more == pytest.approx(4 * ramp)
    last = off.stage_ms("V100", 9, 12, 8) - on.stage_ms("V100", 9, 12, 8)
    assert last == pytest.approx(2 * ramp)


def test_splits_run_one_after_the_other_and_the_rest_of_a_batch_alone() -> None:
    """Two batches of two through layers 0 and 1, 2.5 ms each; three survive: a whole batch takes 2
    ms and one input alone 0.75 of it."""
    times = StageTimes(profile())
    took_ms, answers = runs.in_turn(times, [0, 2, 4], "V100", [0, 1, 2, 3], [2, 4, 4, 4])
    assert took_ms == pytest.approx(8.5)
    assert answers == pytest.approx([5.0, 8.5, 8.5, 8.5])


def test_the_cheapest_mix_of_whole_devices() -> None:
    per_s = {"V100": 1000.0, "P100": 700.0}
    every = [
        a * paper.PRICE["V100"] + b * paper.PRICE["P100"]
        for a in range(10)
        for b in range(12)
        if a * 1000 + b * 700 >= costs.RATE
    ]
    assert costs.cheapest_mix(per_s) == pytest.approx(min(every))
    assert math.isfinite(costs.cheapest_mix({**per_s, "K80": 0.0}))


def test_every_figure_has_its_words_and_the_page_needs_nothing_else(tmp_path: Path) -> None:
    facts = {"cluster": "c", "patience": 3, "batch": 8, "alive": "0.4", "pass_ms": 11.4}
    names = list(yaml.safe_load(WORDS.read_text()))
    series: Series = {"TETRIS": [2_000.0, None], "<b>": [1_000.0, 3.0]}
    at = ("batch", (1, 8))
    made = [beside(name, "1.5", at, "devices", series, facts=facts) for name in names]
    target = tmp_path / "new" / "page.html"
    write_page(made, target)
    page = target.read_text()
    assert page.count("<svg") == len(names) == 12
    assert page.count("Here (simulation): 1.5.") == len(names)
    assert "&lt;b&gt;" in page
    assert "2,000" in page
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", page)
