"""Real workers whose stages change while they serve, and die meanwhile: the labels stay."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from backends import check_options, open_backend
from backends.checkpoints import models
from backends.tetris.labels.backend import TetrisClassifier
from backends.tetris.labels.options import first_replicas
from harness.core.errors import UserError
from harness.core.nouns import Commit, Model, Request
from workloads import bundled

IN_FLIGHT = 24
MODELS = {"demo-sentiment": ("sentiment", "sentence"), "demo-shapes": ("shapes", "image")}
LAYERS = {"demo-sentiment": list(range(1, 8)), "demo-shapes": list(range(1, 6))}
EACH = 250


def opened(name: str, model: str, **options: Any) -> Any:
    given = {"threads": 1, "threshold": 0.1, **options}
    return open_backend(name, models.BUNDLED[model], Model(model, dtype="float32"), given)


def inputs(model: str) -> list[Request]:
    workload, key = MODELS[model]
    tokenizer = models.load_tokenizer(models.BUNDLED[model])
    rows = bundled.rows(workload, "test", 2 * EACH, 3)
    return [
        Request(str(n), tuple(tokenizer.encode(row[key])), 1, answer="label")
        for n, row in enumerate(rows)
    ]


def drive(backend: Any, requests: list[Request], kills: random.Random | None = None) -> Any:
    """A closed loop; with `kills` a worker is killed now and then."""
    found: dict[str, Commit] = {}
    left, under_way, killed = iter(requests), 0, 0
    while len(found) < len(requests):
        while under_way < IN_FLIGHT and (request := next(left, None)):
            backend.submit(request)
            under_way += 1
        for commit in backend.poll():
            assert commit.request_id not in found
            found[commit.request_id] = commit
            under_way -= 1
            if kills and killed < 3 and len(found) // 100 > killed:
                os.kill(kills.choice(backend.workers.pids()), signal.SIGKILL)
                killed += 1
        backend.wait(0.01)
    for _ in range(3):
        assert backend.poll() == []
        time.sleep(0.01)
    return found


def labels(found: dict[str, Commit]) -> dict[str, str]:
    return {key: commit.label.name for key, commit in found.items() if commit.label}


def told(found: dict[str, Commit]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for commit in found.values():
        for name, count in commit.telemetry.items():
            sums[name] = sums.get(name, 0.0) + count
    return sums


@pytest.fixture(scope="module", params=list(MODELS))
def shift(request: pytest.FixtureRequest) -> tuple[str, list[Request], dict[str, Commit]]:
    """Mostly inputs that leave early, and then mostly others, as the one-process classifier with
    all ramps answers them."""
    model, some = request.param, inputs(request.param)
    backend = opened("classifier-early-exit", model, layers=LAYERS[model], batch=1)
    alone = drive(backend, some)
    early = {key for key, commit in alone.items() if commit.telemetry["layers_needed"] <= 1}
    rest, draw = [one for one in some if one.id not in early], random.Random(1)
    easy = [one for one in some if one.id in early]

    def mixed(share: float) -> list[Request]:
        return [draw.choice(easy if draw.random() < share else rest) for _ in range(4 * EACH)]

    order = [
        Request(f"{n}/{one.id}", one.prompt_ids, 1, answer="label")
        for n, one in enumerate([*mixed(0.8), *mixed(0.2)])
    ]
    wanted = {one.id: alone[one.id.partition("/")[2]] for one in order}
    return model, order, wanted


@pytest.fixture
def served(shift: Any) -> Iterator[TetrisClassifier]:
    backend = opened(
        "tetris-classifier", shift[0], stages=3, layers=[3, 4], batch=4, replan_s=0.3,
        replicas="auto", workers=3,
    )  # fmt: skip
    yield backend
    backend.close()


def test_the_plan_follows_the_mix_and_no_label_changes(shift: Any, served: Any) -> None:
    _, order, wanted = shift
    found = drive(served, order)
    assert labels(found) == labels(wanted)
    sums = told(found)
    assert sums["plan_workers_1_3"] == sums["plan_workers_1_4"] == 1
    assert "plan_at_ms_2" in sums
    shares = [
        sums[f"window_alive_{window}_1"] / sums[f"window_inputs_{window}"]
        for window in range(1, 100)
        if f"window_inputs_{window}" in sums
    ]
    assert shares[0] < 0.4
    assert max(shares) > 0.6
    needed = {key: one.telemetry["layers_needed"] for key, one in wanted.items()}
    assert {key: one.telemetry["layers_needed"] for key, one in found.items()} == needed
    served.reset()
    again = told(drive(served, order[:40]))
    assert again["plan_workers_1_3"] == 1
    assert "plan_at_ms_2" not in again


def test_nothing_is_lost_when_workers_die_while_plans_change(shift: Any, served: Any) -> None:
    _, order, wanted = shift
    found = drive(served, order, random.Random(7))
    assert labels(found) == labels(wanted)
    sums = told(found)
    assert sums["stages_replaced"] >= 2
    assert "plan_at_ms_2" in sums


def test_replicas_without_plans_give_the_labels_of_one_process() -> None:
    some = inputs("demo-sentiment")[:120]
    alone = opened("classifier-early-exit", "demo-sentiment", layers=[2])
    wanted = drive(alone, some)
    backend = opened("tetris-classifier", "demo-sentiment", layers=[2], replicas=[2, 1])
    try:
        assert backend.info.options["workers"] == 3
        found = drive(backend, some, None)
    finally:
        backend.close()
    assert labels(found) == labels(wanted)
    assert told(found)["stage_rows_1"] == 120


def test_earlier_stages_have_the_workers_that_are_left_over() -> None:
    assert first_replicas({"stages": 3, "workers": 5, "replicas": "auto"}) == [2, 2, 1]
    assert first_replicas({"stages": 2, "workers": None, "replicas": None}) == [1, 1]
    assert first_replicas({"stages": 2, "workers": None, "replicas": [1, 3]}) == [1, 3]


def refused(said: str, **options: Any) -> None:
    with pytest.raises(UserError, match=said) as raised:
        check_options("tetris-classifier", options, models.BUNDLED["demo-sentiment"])
    assert "\n" not in str(raised.value)


def test_workers_that_do_not_fit_the_stages_are_refused() -> None:
    refused(r"\[2, 1\] add up to 3; option 'workers' is 4", replicas=[2, 1], workers=4)
    refused("names workers of 3 stages; expected 2", replicas=[1, 1, 1])
    refused("'workers': is 1; 2 stages need one each", workers=1)
    refused("is 4 for 2 stages; expected option 'replicas'", workers=4)
    refused("auto: who leaves is seen only while it serves", replicas="auto")
    refused("'replicas': expected at least 1", replicas=[0, 2])
    refused("'replicas': expected whole numbers", replicas=[1.5, 2])
    refused("expected list or auto, got 'autp'", replicas="autp")
    refused("'replan_s': expected at least 0, got -1", replan_s=-1)
    refused("'replan_s': means nothing with measure 'never'", replan_s=5, measure="never")
    check_options(
        "tetris-classifier",
        {"replicas": "auto", "workers": 4, "replan_s": 5},
        models.BUNDLED["demo-sentiment"],
    )
