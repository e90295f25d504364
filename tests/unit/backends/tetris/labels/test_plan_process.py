"""The process that plans: it may die, hang, or be asked for what nobody wants any more."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from backends.tetris.labels.plan_process import WITHIN_S, ProcessMaker
from backends.tetris.labels.replanned import plan_of
from backends.tetris.labels.stages import spans
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.profile import DeviceCluster, Wanted
from tests.support.tetris.four_layers import served_profile

SEEN = {1: 0.1, 2: 0.05, 3: 0.05}, frozenset[str]()


@pytest.fixture
def here() -> WindowPlanner:
    """Of two stages, which `SEEN` makes others of."""
    known = served_profile()
    first = plan_of(spans((3, 4), (1, 1)), known.batch)
    return WindowPlanner(known, DeviceCluster({"core": 2}, {"core": 1.0}), Wanted(1e9), first)


@pytest.fixture
def maker() -> Iterator[ProcessMaker]:
    found = ProcessMaker("tetris-classifier")
    yield found
    found.close()


def plan_from(maker: ProcessMaker) -> tuple[bool, WindowPlanner]:
    """Asked as a pipeline asks, which has no time to wait."""
    give_up = time.monotonic() + WITHIN_S
    while time.monotonic() < give_up:
        if maker.done():
            return maker.take()
        time.sleep(0.01)
    raise AssertionError("no plan came")


def test_it_makes_the_plan_of_this_process_and_outlives_its_death(
    here: WindowPlanner, maker: ProcessMaker
) -> None:
    os.kill(maker.pid(), signal.SIGKILL)
    maker.begin(here, SEEN)
    assert maker.take() == (False, here)
    maker.begin(here, SEEN)
    changed, planner = maker.take()
    assert changed
    assert here.plan != planner.plan
    assert here.next_plan(*SEEN)
    assert here.plan == planner.plan
    assert here.profile == planner.profile


def test_a_plan_that_nobody_wants_does_not_hold_up_the_next(
    here: WindowPlanner, maker: ProcessMaker
) -> None:
    stopped = maker.pid()
    os.kill(stopped, signal.SIGSTOP)  # as one that never ends
    maker.begin(here, SEEN)
    assert not maker.done()
    maker.drop()
    assert maker.pid() != stopped
    maker.drop()
    maker.begin(here, SEEN)
    assert not maker.done(), "the process is not waited for"
    changed, planner = plan_from(maker)
    assert changed
    assert planner.plan != here.plan


def test_a_plan_that_takes_for_ever_is_given_up(here: WindowPlanner) -> None:
    maker = ProcessMaker("tetris-classifier", within_s=1.0)
    try:
        os.kill(maker.pid(), signal.SIGSTOP)
        maker.begin(here, SEEN)
        assert plan_from(maker) == (False, here)
        maker._process._within_s = WITHIN_S  # who plans waits for every other process here
        maker.begin(here, SEEN)
        changed, _ = plan_from(maker)
        assert changed, "by another process"
    finally:
        maker.close()


def test_without_a_process_that_comes_up_the_stages_stay(
    here: WindowPlanner, maker: ProcessMaker
) -> None:
    for _ in range(2):
        os.kill(maker.pid(), signal.SIGKILL)
        maker.begin(here, SEEN)
        assert plan_from(maker) == (False, here)
    maker.begin(here, SEEN)
    assert plan_from(maker) == (False, here)
    maker.drop()
