"""The experiment files of the repository name backends, options and workloads that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.wiring import known
from harness.experiment.config import load_experiment
from workloads import WORKLOADS

FOLDER = Path(__file__).parents[4] / "experiments"


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


def test_the_early_exit_paper_s_grids_are_there() -> None:
    """Each technique at the calibrated threshold, in the table at the paper's too, against vLLM."""
    table = load_experiment(FOLDER / "early_exit_table1.yaml", known())
    figures = load_experiment(FOLDER / "early_exit_figures.yaml", known())
    for experiment in (table, figures):
        assert experiment.reference == experiment.backends[0].name == "vllm"
        assert experiment.backends[0].options == {}
        found = {
            (c.options["measure"], c.options.get("threshold", "auto"))
            for c in experiment.backends[1:]
        }
        assert found >= {(name, "auto") for name in ("static", "softmax", "classifier", "state")}
        paper = {("softmax", 0.85), ("classifier", 0.9), ("state", 0.95)}
        assert (found >= paper) == (experiment is table)
        assert experiment.workloads[0].workload.name == "cnn_dailymail"
    assert not table.ignore_eos, "quality is of whole answers"
    assert [load.concurrency for load in table.loads] == [1]
    assert figures.ignore_eos, "speed is of equal work"
    assert [load.concurrency for load in figures.loads] == [1, 4, 16]


def test_answers_are_as_long_as_the_papers_where_they_say_so() -> None:
    """AdaDecode, appendix D: 512 new tokens on XSum, HumanEval and GSM8K."""
    for name in ("xsum", "humaneval", "gsm8k"):
        assert WORKLOADS[name].max_new_tokens == 512
    for name in ("adadecode_table3", "adadecode_figure5"):
        experiment = load_experiment(FOLDER / f"{name}.yaml", known())
        assert {w.max_new_tokens for w in experiment.workloads} == {512}


@pytest.mark.parametrize("name", ["demo", "early_exit_table1"])
def test_answers_of_the_demo_are_as_long_as_they_were(name: str) -> None:
    """Stored runs of record have these lengths; a longer limit lets lossy backends ramble on."""
    experiment = load_experiment(FOLDER / f"{name}.yaml", known())
    found = {w.workload.name: w.max_new_tokens for w in experiment.workloads}
    assert found == {"cnn_dailymail": 128, "xsum": 64, "humaneval": 384, "gsm8k": 256}
