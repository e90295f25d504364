"""The options of a replay by `vllm-early-exit`, read for a checkpoint; without loading vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends import check_options, settings
from backends.checkpoints import models
from backends.early_exit.decisions import DecisionLog, ReplayedSteps
from backends.early_exit.options import ExitOptions
from backends.early_exit.plugin.telemetry import DecodedStep
from harness.core.errors import UserError
from harness.core.nouns import Measured
from results.traces.file import write_trace
from results.traces.played import PlayedRow
from tests.support.results.made_traces import made_row, made_trace
from tests.support.tiny_llama import write_tiny_llama

NAME = "vllm-early-exit"
DEMO = models.BUNDLED["demo"]
RATES = {"exits": {"0.25": 0.2, "0.5": 0.3}}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace"
    write_trace(path, made_trace(method=NAME, settings={"measure": "softmax"}))
    return path


def plan(directory: Path, **options: Any) -> ExitOptions:
    check_options(NAME, options)
    check_options(NAME, options, directory)
    return ExitOptions(directory, settings(NAME, options))


def test_what_is_left_open_is_as_it_was_recorded(trace: Path, tmp_path: Path) -> None:
    deep = write_tiny_llama(tmp_path / "deep", layers=16)
    found = plan(deep, replay=str(trace))
    assert found.policy.layers == (4, 12)
    assert found.policy.thresholds == (0.6, 0.75)
    assert found.columns == (0, 1)
    assert trace in found.files()
    made = plan(deep, replay=RATES)
    assert (made.policy.layers, made.policy.thresholds) == ((4, 8), (0.9, 0.9))
    one = plan(deep, replay=str(trace), layers=[11], threshold=0.6)
    assert (one.policy.thresholds, one.columns) == ((0.6,), (1,))


def test_no_calibration_of_another_model_is_asked_for(trace: Path) -> None:
    """That of the demo model has layers and thresholds of its own."""
    assert plan(DEMO).policy.layers != (2, 6)
    found = plan(DEMO, replay=str(trace))
    assert found.policy.layers == (2, 6)
    assert found.measured("bfloat16") == Measured()


def test_what_leaves_at_given_layers_needs_no_exits(tmp_path: Path) -> None:
    alone = tmp_path / "lengths"
    write_trace(alone, made_trace(method="vllm", exits=(), thresholds=(), rows=(lengths(),)))
    for measure in ("static", "schedule", "never"):
        layers = {} if measure == "never" else {"layers": [3]}
        assert plan(DEMO, measure=measure, replay=str(alone), **layers).columns == ()


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("recorded with measure softmax, not state", {"measure": "state"}),
        ("option 'record' has no meaning with 'replay'", {"record": True}),
        ("option 'calibration' has no meaning with 'replay'", {"calibration": "x.json"}),
        ("no confidence (NaN) for the exit at 0.75 of the depth", {"threshold": 0.95}),
        ("which threshold 0.91 asks for", {"threshold": 0.9, "decay": "calm"}),
        ("exits after 3 layers [1, 2, 3], and the trace has 2", {"layers": [1, 2, 3]}),
        ("is a trace of 'adadecode', not of 'vllm-early-exit'", {"replay": "OTHER"}),
        ("tells lengths alone; run with 'record: true'", {"replay": "LENGTHS"}),
        ("the rates have no 'exits'; 'measure: never' needs none", {"replay": {"length": 3}}),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_a_line(
    words: str, options: dict[str, Any], trace: Path, tmp_path: Path
) -> None:
    files = {"OTHER": tmp_path / "other", "LENGTHS": tmp_path / "lengths"}
    write_trace(files["OTHER"], made_trace())
    none = made_trace(method=NAME, exits=(), thresholds=(), rows=(lengths(),))
    write_trace(files["LENGTHS"], none)
    replay = options.get("replay", str(trace))
    named = str(files.get(replay, replay)) if isinstance(replay, str) else replay
    with pytest.raises(UserError) as caught:
        plan(DEMO, **{**options, "replay": named})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def lengths() -> Any:
    row = made_row()
    return made_row(confidence=row.confidence[:, :0], agrees=row.agrees[:, :0])


def test_a_step_that_asks_nothing_is_no_attempt() -> None:
    log = DecisionLog((2, 4))
    asked = DecodedStep(["a", "b"], 8, 4, [2, 4], (2, 4), confidence=[[0.9, 0.1], [0.8, 0.7]])
    mixed = DecodedStep(["a"], 8, 8, [8], mixed=True)
    early = DecodedStep(["a"], 8, 2, [2], (2,), confidence=[[0.6]])
    for step in (asked, mixed, early, early):
        log.note(step, {"a"})
    found = log.take("a", 3)
    assert found.positions == [0, 2]
    assert found.confidence[:3] == [0.9, 0.8, 0.6]
    assert found.confidence[3] != found.confidence[3], "not asked"
    assert found.batch == [2, 1, 1]
    assert (found.drafted, found.agrees) == ([0, 0, 0], [-1] * 4)
    assert log.take("b", 3).positions == []


def test_each_request_is_as_sure_as_its_row() -> None:
    steps = ReplayedSteps([4, 12], [0, 1])
    steps.enter("a-0", PlayedRow(made_row(), [0, 1]), 40)
    steps.enter("b-1", PlayedRow(made_row(), [0, 1]), 50)
    assert steps(12, ["b-1", "a-0"], [1, 3]) == pytest.approx([0.8, 0.2])
    assert steps(4, ["a-0"], [0]) == pytest.approx([0.9])
    assert (steps.limit("a-0"), steps.limit("b-1")) == (40, 50)
