"""Real workers whose stages change while they serve, and die meanwhile: the labels stay."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from backends import open_backend
from backends.checkpoints import models
from backends.tetris.labels.backend import TetrisClassifier
from backends.tetris.survival import LEAST_WINDOWS
from harness.core.nouns import Commit, Model, Request
from tests.support.tetris.throttle import Throttle
from workloads import bundled

IN_FLIGHT = 24
MODELS = {"demo-sentiment": ("sentiment", "sentence"), "demo-shapes": ("shapes", "image")}
LAYERS = {"demo-sentiment": list(range(1, 8)), "demo-shapes": list(range(1, 6))}
EACH = 250
SLOW_WINDOWS = LEAST_WINDOWS - 1
"""In which a slow worker is found, unless other work of the machine makes all of them slow: the
next plan waits for forecasts, which take minutes where no processor has time."""
ASKED_S = 600.0
"""For what is waited for to come, on a machine that has little time for it."""


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


def drive(
    backend: Any,
    requests: Iterable[Request],
    kills: random.Random | None = None,
    sums: dict[str, float] | None = None,
    sent: signal.Signals = signal.SIGKILL,
) -> Any:
    """A closed loop; with `kills` a worker is sent a signal now and then, one to stop while it is
    at work. Counts are added to `sums` as they come."""
    found: dict[str, Commit] = {}
    sums = {} if sums is None else sums
    left, asked, killed = iter(requests), set[str](), 0
    while True:
        while len(asked) - len(found) < IN_FLIGHT and (request := next(left, None)):
            backend.submit(request)
            asked.add(request.id)
        if len(found) == len(asked):
            break
        for commit in backend.poll():
            assert commit.request_id in asked
            assert commit.request_id not in found
            found[commit.request_id] = commit
            for name, count in commit.telemetry.items():
                sums[name] = sums.get(name, 0.0) + count
        if kills and killed < 3 and len(found) // 100 > killed:
            busy = backend._pipeline._at_work if sent == signal.SIGSTOP else range(100)
            some = [pid for n, pid in enumerate(backend.workers.pids()) if n in busy]
            if some:
                os.kill(kills.choice(some), sent)
                killed += 1
        backend.wait(0.01)
    for _ in range(3):
        assert backend.poll() == []
        time.sleep(0.01)
    return found


def numbers() -> Iterator[int]:
    """Of requests, as long as the test may take."""
    until_s = time.monotonic() + ASKED_S
    return itertools.takewhile(lambda _: time.monotonic() < until_s, itertools.count())


def asked_again(number: int, one: Request) -> Request:
    return replace(one, id=f"{number}/{one.id}")


def replaced(sums: dict[str, float]) -> float:
    return sum(count for name, count in sums.items() if name.startswith("stage_replaced_"))


def labels(found: dict[str, Commit]) -> dict[str, str]:
    return {key: commit.label.name for key, commit in found.items() if commit.label}


@dataclass(frozen=True)
class Mixes:
    """Inputs that leave behind the first layer, and the others; and how the one-process classifier
    with all ramps answers them."""

    model: str
    early: list[Request]
    late: list[Request]
    alone: dict[str, Commit]

    def shifting(self, sums: dict[str, float]) -> Iterator[Request]:
        """4 in 5 are early for two windows, and then 1 in 5, until a window after the shift has
        shown it and the plan that follows had its time."""
        draw = random.Random(1)
        for number in numbers():
            late = "window_inputs_2" in sums
            if late and any(share > 0.6 for share in shares(sums)[:-2]):
                return
            some = self.early if draw.random() < (0.2 if late else 0.8) else self.late
            one = draw.choice(some)
            yield asked_again(number, one)

    def wanted(self, found: dict[str, Commit]) -> dict[str, Commit]:
        return {key: self.alone[key.partition("/")[2]] for key in found}


def shares(sums: dict[str, float]) -> list[float]:
    """Of each window what went on behind the first ramp."""
    windows = (n for n in range(1, 100) if f"window_inputs_{n}" in sums)
    return [sums[f"window_alive_{n}_1"] / sums[f"window_inputs_{n}"] for n in windows]


@pytest.fixture(scope="module", params=list(MODELS))
def mixes(request: pytest.FixtureRequest) -> Mixes:
    model, some = request.param, inputs(request.param)
    backend = opened("classifier-early-exit", model, layers=LAYERS[model], batch=1)
    alone = drive(backend, some)
    needed = {key: commit.telemetry["layers_needed"] for key, commit in alone.items()}
    early = [one for one in some if needed[one.id] == 1]
    return Mixes(model, early, [one for one in some if needed[one.id] > 1], alone)


@pytest.fixture(scope="module")
def opened_once(mixes: Mixes) -> Iterator[TetrisClassifier]:
    backend = opened(
        "tetris-classifier", mixes.model, stages=3, layers=[3, 4], batch=4, replan_s=0.4,
        replicas="auto", workers=3,
    )  # fmt: skip
    yield backend
    backend.close()


@pytest.fixture
def served(opened_once: TetrisClassifier) -> TetrisClassifier:
    opened_once.reset()  # as between trials
    return opened_once


def test_the_plan_follows_the_mix_and_no_label_changes(mixes: Mixes, served: Any) -> None:
    sums: dict[str, float] = {}
    found = drive(served, mixes.shifting(sums), sums=sums)
    wanted = mixes.wanted(found)
    assert labels(found) == labels(wanted)
    needed = {key: one.telemetry["layers_needed"] for key, one in wanted.items()}
    assert {key: one.telemetry["layers_needed"] for key, one in found.items()} == needed
    assert shares(sums)[0] < 0.4
    assert max(shares(sums)) > 0.6
    assert sums["plan_workers_1_3"] == sums["plan_workers_1_4"] == 1
    assert "plan_at_ms_2" in sums
    served.reset()
    again: dict[str, float] = {}
    drive(served, [*mixes.early[:20], *mixes.late[:5]], sums=again)
    assert again["plan_workers_1_3"] == 1
    assert "plan_at_ms_2" not in again


def test_nothing_is_lost_when_workers_die_while_plans_change(mixes: Mixes, served: Any) -> None:
    sums: dict[str, float] = {}
    found = drive(served, mixes.shifting(sums), random.Random(7), sums)
    assert labels(found) == labels(mixes.wanted(found))
    assert replaced(sums) >= 1
    assert "plan_at_ms_2" in sums


def test_workers_that_hang_are_replaced_and_nothing_is_lost(mixes: Mixes) -> None:
    served = opened(
        "tetris-classifier", mixes.model, stages=2, replicas=[2, 1], batch=4, replan_s=0.4,
        answered_within_s=1.0,
    )  # fmt: skip
    sums: dict[str, float] = {}
    asked = (asked_again(n, one) for n, one in enumerate(mixes.late + mixes.early))
    try:
        found = drive(served, asked, random.Random(5), sums, signal.SIGSTOP)
    finally:
        served.close()
    assert labels(found) == labels(mixes.wanted(found))
    assert replaced(sums) >= 1


def found_slow(mixes: Mixes) -> Any:
    """Who is left out in `SLOW_WINDOWS` while the first worker's process is stopped for most of
    the time, once a window is over."""
    sums: dict[str, float] = {}
    served = opened("tetris-classifier", mixes.model, stages=1, replicas=[3], batch=4, replan_s=1.0)
    slow = Throttle(served.workers.pids()[0])
    changing = served._pipeline._plans.changing

    def steady() -> Iterator[Request]:
        for number in numbers():
            if "core-0" in changing.stragglers or f"window_inputs_{SLOW_WINDOWS}" in sums:
                return
            if "window_inputs_1" in sums:
                slow.begin()
            one = (mixes.early + mixes.late)[number % (2 * EACH)]
            yield asked_again(number, one)

    try:
        found = drive(served, steady(), sums=sums)
    finally:
        slow.end()
        served.close()
    assert labels(found) == labels(mixes.wanted(found))
    return changing.stragglers


def test_a_worker_that_has_become_slow_is_left_out_and_nobody_else(mixes: Mixes) -> None:
    """Other work of the machine makes another one slow too, now and then: not six times."""
    for _ in range(6):
        if (slow := found_slow(mixes)) == {"core-0"}:
            break
    assert slow == {"core-0"}


def test_a_plan_that_is_being_made_ends_with_its_trial(mixes: Mixes, served: Any) -> None:
    """It would take a core from the next one; the process that makes it has stopped here."""
    served.maker.drop()  # as a trial before may have left it
    while served.maker.starting():
        time.sleep(0.01)
    planning = served.maker.pid()
    os.kill(planning, signal.SIGSTOP)
    sums: dict[str, float] = {}

    def until_a_window_is_over() -> Iterator[Request]:
        for number in numbers():
            if "window_inputs_1" in sums:
                return
            one = mixes.early[number % len(mixes.early)]
            yield asked_again(number, one)

    drive(served, until_a_window_is_over(), sums=sums)
    assert served.maker.pid() == planning
    assert served.texts() is None
    assert served.maker.pid() != planning
    served.reset()
    found = drive(served, mixes.early[:20])
    assert len(found) == 20


def test_replicas_without_plans_give_the_labels_of_one_process() -> None:
    some = inputs("demo-sentiment")[:120]
    alone = opened("classifier-early-exit", "demo-sentiment", layers=[2])
    wanted = drive(alone, some)
    backend = opened("tetris-classifier", "demo-sentiment", layers=[2], replicas=[2, 1])
    try:
        assert backend.info.options["workers"] == 3
        sums: dict[str, float] = {}
        found = drive(backend, some, sums=sums)
    finally:
        backend.close()
    assert labels(found) == labels(wanted)
    assert sums["stage_rows_1"] == 120
