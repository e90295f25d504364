"""The experiment files of the repository name backends, options and workloads that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.config import load_experiment
from harness.wiring import known

FOLDER = Path(__file__).parents[3] / "experiments"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: str(path.stem))
def test_it_is_understood(path: Path) -> None:
    experiment = load_experiment(path, known())
    assert experiment.name == path.stem
    assert experiment.repeats >= 3, "one repeat says nothing about drift"


def test_the_papers_grids_are_there() -> None:
    table = load_experiment(FOLDER / "adadecode_table3.yaml", known())
    figure = load_experiment(FOLDER / "adadecode_figure5.yaml", known())
    for experiment in (table, figure):
        assert experiment.reference == experiment.backends[0].name == "autoregressive"
        assert [load.concurrency for load in experiment.loads] == [1]
    options = [choice.options for choice in table.backends[1:]]
    assert {o.get("heads") for o in options} >= {"mixed", "original", "full", "gsm8k"}
    assert sum(o.get("verify") is False for o in options) == 1
    assert [4] in [o.get("exit_layers") for o in options]
    gammas = [choice.options["gamma"] for choice in figure.backends[1:]]
    assert gammas == sorted(gammas)
    assert {0, 0.2, 0.4, 0.6, 0.8, 1} <= set(gammas)
    assert len({str({**c.options, "gamma": 0}) for c in figure.backends[1:]}) == 1
