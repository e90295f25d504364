"""The bundled classifier served in every way: the same labels for the same decisions."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from backends import check_options, check_workload, open_backend
from backends.checkpoints import models
from backends.classifiers.config import read
from backends.classifiers.flight import InputInFlight
from backends.classifiers.one_device import WAIT_MS
from backends.classifiers.weights import load
from backends.tetris.labels.backend import TetrisClassifier
from backends.tetris.labels.jobs import LabelStageSetup, packed, unpacked
from backends.tetris.labels.worker import LabelStage
from backends.tetris.ramps.rules import EntropyRule
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.nouns import Commit, Model, Request
from workloads import bundled

MODEL = Model("demo-sentiment", dtype="float32")
ROWS = 160
IN_FLIGHT = 24
FOLDER = models.BUNDLED["demo-sentiment"]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    return bundled.rows("sentiment", "test", ROWS, 5)


@pytest.fixture(scope="module")
def requests(rows: list[dict[str, str]]) -> list[Request]:
    tokenizer = models.load_tokenizer(FOLDER)
    return [
        Request(str(n), tuple(tokenizer.encode(row["sentence"])), 1, answer="label")
        for n, row in enumerate(rows)
    ]


def opened(name: str, **options: Any) -> Backend:
    return open_backend(name, FOLDER, MODEL, {"threads": 1, **options})


def drive(backend: Backend, requests: list[Request]) -> dict[str, Commit]:
    """A closed loop over all requests."""
    found: dict[str, Commit] = {}
    left, under_way = iter(requests), 0
    while len(found) < len(requests):
        while under_way < IN_FLIGHT and (request := next(left, None)):
            backend.submit(request)
            under_way += 1
        for commit in backend.poll():
            assert commit.request_id not in found
            found[commit.request_id] = commit
            under_way -= 1
        else:
            backend.wait(0.01)
    return found


def served(name: str, requests: list[Request], **options: Any) -> dict[str, Commit]:
    backend = opened(name, **options)
    try:
        return drive(backend, requests)
    finally:
        backend.close()


def answers(found: dict[str, Commit]) -> dict[str, str]:
    return {key: commit.label.name for key, commit in found.items() if commit.label}


def layers(found: dict[str, Commit]) -> dict[str, float]:
    return {key: commit.telemetry["layers_run"] for key, commit in found.items()}


@pytest.fixture(scope="module")
def plain(requests: list[Request]) -> dict[str, Commit]:
    return served("classifier", requests)


def test_the_plain_model_is_right_and_runs_everything(
    plain: dict[str, Commit], rows: list[dict[str, str]]
) -> None:
    right = [answers(plain)[str(n)] == row["label"] for n, row in enumerate(rows)]
    assert sum(right) >= 0.97 * ROWS
    for commit in plain.values():
        assert commit.finished == "stop"
        assert commit.telemetry["layers_run"] == commit.telemetry["layers_total"] == 8
        assert not [name for name in commit.telemetry if name.startswith(("checks", "exits"))]


RULES: list[dict[str, Any]] = [
    {"measure": "entropy", "threshold": 0.02},
    {"measure": "patience", "patience": 2},
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["measure"]))
def test_regrouping_changes_nobodys_decision(
    requests: list[Request], plain: dict[str, Commit], rule: dict[str, Any]
) -> None:
    cuts = {"layers": [2, 3], "batch": 8}
    alone = served("classifier-early-exit", requests, **rule, **cuts | {"batch": 1})
    shrinking = served("classifier-early-exit", requests, **rule, **cuts)
    regrouped = served("classifier-early-exit", requests, batching="regrouped", **rule, **cuts)
    assert answers(alone) == answers(shrinking) == answers(regrouped)
    assert layers(alone) == layers(shrinking) == layers(regrouped)
    assert {3, 8} <= {*layers(shrinking).values()} <= {2, 3, 8}
    agree = sum(answers(shrinking)[key] == label for key, label in answers(plain).items())
    assert agree >= 0.9 * ROWS


def test_a_batch_that_leaves_together_waits_for_its_last(requests: list[Request]) -> None:
    alone = served("classifier-early-exit", requests, layers=[2, 5])
    together = served("classifier-early-exit", requests, layers=[2, 5], batching="together")
    assert answers(alone) == answers(together)
    assert all(layers(together)[key] >= run for key, run in layers(alone).items())
    assert sum(layers(together).values()) > sum(layers(alone).values())


@pytest.fixture(scope="module")
def pipeline() -> Iterator[TetrisClassifier]:
    backend = opened("tetris-classifier", layers=[2], stages=2, batch=8)
    assert isinstance(backend, TetrisClassifier)
    yield backend
    backend.close()


def test_a_pipeline_gives_the_labels_of_one_process(
    requests: list[Request], pipeline: TetrisClassifier
) -> None:
    wanted = served("classifier-early-exit", requests, layers=[2])
    pipeline.reset()
    found = drive(pipeline, requests)
    assert answers(found) == answers(wanted)
    assert layers(found) == layers(wanted)
    sums: dict[str, float] = {}
    for commit in found.values():
        for name, count in commit.telemetry.items():
            sums[name] = sums.get(name, 0.0) + count
    assert sums["stage_rows_1"] == ROWS
    left = [sums.get(f"stage_left_{stage}", 0.0) for stage in (1, 2)]
    assert left == [[*layers(wanted).values()].count(layer) for layer in (2, 8)]
    assert sums["stage_rows_2"] == left[1] > 0


def test_no_request_is_lost_when_a_stage_is_killed(
    requests: list[Request], pipeline: TetrisClassifier
) -> None:
    pipeline.reset()
    wanted = drive(pipeline, requests[:60])
    pipeline.reset()
    for request in requests[:60]:
        pipeline.submit(request)
    found: dict[str, Commit] = {}
    for stage in (0, 1):
        os.kill(pipeline.workers.pids()[stage], signal.SIGKILL)
        for _ in range(40):
            found |= {commit.request_id: commit for commit in pipeline.poll()}
            pipeline.wait(0.01)
    while len(found) < 60:
        found |= {commit.request_id: commit for commit in pipeline.poll()}
        pipeline.wait(0.01)
    assert answers(found) == answers(wanted)
    assert (
        sum(
            count
            for c in found.values()
            for name, count in c.telemetry.items()
            if name.startswith("stage_replaced_")
        )
        >= 1
    )


def through_stages(requests: list[Request], *, black_box: bool) -> list[InputInFlight]:
    """What two stages make of a batch, without processes."""
    rest = [InputInFlight(request.id, request.prompt_ids) for request in requests]
    done: list[InputInFlight] = []
    for first, last in ((0, 4), (4, 8)):
        setup = LabelStageSetup(
            str(FOLDER), "float32", 1, first, last, EntropyRule(0.2), (4,), black_box
        )
        rest = unpacked(LabelStage(setup).do(packed(rest, (first, last))))
        done += [one for one in rest if one.state is None]
        rest = [one for one in rest if one.state is not None]
    return done


def test_a_black_box_asks_inside_stages(requests: list[Request]) -> None:
    some = requests[:60]
    white, black = (through_stages(some, black_box=box) for box in (False, True))
    assert {layer for one in white for layer in one.asked} == {4}
    assert {1, 2, 3, 4} <= {layer for one in black for layer in one.asked}
    wanted = answers(served("classifier-early-exit", some))
    labels = read(FOLDER).labels
    found = {one.request_id: labels[one.memory.answer.label] for one in black if one.memory.answer}
    assert found == wanted
    assert {one.layers_run for one in black} <= {4, 8}
    assert min(one.memory.sure_after for one in black) == 1


def test_drawings_are_classified_with_branches(capfd: pytest.CaptureFixture[str]) -> None:
    """BranchyNet's exits: most leave before the end, and most are right."""
    folder = models.BUNDLED["demo-shapes"]
    rows = bundled.rows("shapes", "test", 48, 2)
    tokenizer = models.load_tokenizer(folder)
    asked = [
        Request(str(n), tuple(tokenizer.encode(row["image"])), 1, answer="label")
        for n, row in enumerate(rows)
    ]
    model, found = Model("demo-shapes", dtype="float32"), []
    for options in ({"batch": 1}, {"batch": 16}):
        chosen = {"threads": 1, "threshold": 0.1, **options}
        found.append(drive(open_backend("classifier-early-exit", folder, model, chosen), asked))
    alone, batched = found
    assert answers(alone) == answers(batched)
    assert layers(alone) == layers(batched)
    right = sum(answers(batched)[str(n)] == row["label"] for n, row in enumerate(rows))
    assert right >= 0.85 * len(rows)
    assert {1, 6} <= {*layers(batched).values()}
    backend = open_backend("classifier", folder, model, {"threads": 1})
    backend.submit(Request("small", (1,) * 64, 1, answer="label"))
    assert "an image has 64 pixels; expected 16 x 16" in (backend.poll()[0].error or "")
    assert capfd.readouterr().err == ""


def refused(name: str, told: str, **options: Any) -> None:
    with pytest.raises(UserError, match=told) as raised:
        check_options(name, options, FOLDER)
    assert "\n" not in str(raised.value)


def test_options_that_contradict_each_other_are_refused() -> None:
    early, tetris = "classifier-early-exit", "tetris-classifier"
    refused(early, "option 'patience': means nothing with measure 'entropy'", patience=2)
    refused(early, "'threshold': means nothing with", measure="patience", threshold=0.5)
    refused(early, "option 'wait_ms': means nothing with batching 'shrinking'", wait_ms=3.0)
    refused(early, "with measure 'never'", wait_ms=3.0, batching="regrouped", measure="never")
    check_options(early, {"batching": "regrouped", "wait_ms": 3.0}, FOLDER)
    refused(early, "a probability is at most 1", measure="softmax", threshold=1.5)
    refused(early, "expected ascending layers from 1 to 7, got \\[5, 2\\]", layers=[5, 2])
    refused(early, "expected ascending layers from 1 to 7", layers=[8])
    refused(tetris, "option 'stages': is 9; the model has 8 layers", stages=9)
    refused(tetris, "names 2 ends of stages; 2 stages have 1", layers=[2, 5])
    refused(tetris, "did you mean 'batch'", batc=1)


def test_wait_ms_is_in_force_where_somebody_waits() -> None:
    for measure, wait_ms in {"entropy": WAIT_MS, "never": None}.items():
        backend = opened("classifier-early-exit", batching="regrouped", measure=measure)
        assert backend.info.options["wait_ms"] == wait_ms


def test_text_backends_refuse_labels_and_classifiers_text() -> None:
    with pytest.raises(UserError, match="answers with text, and workload 'sentiment' asks for lab"):
        check_workload("autoregressive", "sentiment", {})
    with pytest.raises(UserError, match="answers with labels, and workload 'gsm8k' asks for text"):
        check_workload("classifier", "gsm8k", {})
    with pytest.raises(UserError, match="architecture LlamaForCausalLM is not one that it takes"):
        check_options("classifier", {}, models.BUNDLED["demo"])


def test_what_does_not_fit_is_answered_with_an_error(requests: list[Request]) -> None:
    backend = opened("classifier")
    for number, ids in enumerate([(), (5,) * 65, (10**6,)]):
        backend.submit(Request(f"bad-{number}", ids, 1, answer="label"))
    backend.submit(Request("text", (2, 3), 1))
    backend.submit(requests[0])
    found = backend.poll()
    told = {commit.request_id: commit.error or "" for commit in found}
    assert list(told) == ["bad-0", "bad-1", "bad-2", "text", requests[0].id]
    assert "empty" in told["bad-0"]
    assert "65 tokens exceeds the model's 64 positions" in told["bad-1"]
    assert "outside the vocabulary" in told["bad-2"]
    assert "asks for text" in told["text"]


def test_reset_forgets_everybody(requests: list[Request]) -> None:
    backend = opened("classifier-early-exit", batch=4)
    for request in requests[:12]:
        backend.submit(request)
    backend.poll()
    backend.reset()
    assert backend.poll() == []
    assert answers(drive(backend, requests[:12])).keys() == {r.id for r in requests[:12]}


def test_the_bundled_files_are_small() -> None:
    files = [path for path in FOLDER.parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 10_000_000
    assert read(FOLDER).depth == load(FOLDER).depth == 8
