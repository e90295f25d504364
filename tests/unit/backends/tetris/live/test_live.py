"""The live pipeline on emulated devices, in a real Ray of three actors."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from backends.tetris.live import devices
from backends.tetris.live.live_run import DeviceCall, LiveRun
from backends.tetris.live.pipeline_driver import LivePipeline
from backends.tetris.pipeline.leaving import LeaveDecisions, drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import Slowdown
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.planner import StagePlan, plan
from backends.tetris.profile import Wanted, cluster_from, profile_from
from backends.tetris.simulation.layouts import data_parallel
from benchmarks.tetris.nothing_lost import AuditedRun, RandomKiller
from harness.core.errors import UserError
from tests.support.tetris.pretend_ray import PretendRay

PROFILE: dict[str, Any] = {
    "layers": 4,
    "batch": 4,
    "survival": [1, 1, 0.5, 0.5, 0.5],
    "layer_ms": {"V100": [5, 5, 5, 5]},
    "ramp_ms": {"V100": 1},
    "transfer_ms": 1,
    "time_share": {"V100": {"1": 0.9, "4": 1}},
}


def pipeline_on(ray: Any) -> LivePipeline:
    model = profile_from(PROFILE, "p")
    cluster = cluster_from({"devices": {"V100": 3}, "price": {"V100": 1}}, "c", model)
    found: StagePlan = plan(model, cluster, Wanted(1e6))
    assert [one.count for one in found.stages] == [2, 1]
    return LivePipeline(ray, StageTimes(model), found, limit_ms=1e5)


@pytest.fixture(scope="module")
def live() -> Iterator[LivePipeline]:
    pytest.importorskip("ray")
    ray = devices.start_ray()
    made = pipeline_on(ray)
    yield made
    made.close()
    ray.shutdown()


def test_every_request_is_answered_after_its_layers(live: LivePipeline) -> None:
    inputs = drawn(PROFILE["survival"], 60, 0)
    for load in (13, np.linspace(0, 100, 60)):
        run, faults = live.run(inputs, load)
        layers = inputs.depths(live.layout.cuts)
        assert (run.answered_ms - run.asked_ms >= 0.9 * 5 * layers).all()
        assert run.inputs == 60 + (layers == 4).sum()
        assert (faults.replaced, faults.run_again) == (0, 0)


@pytest.mark.usefixtures("live")
def test_screens_of_ray_about_lost_nodes_are_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    from ray._private.worker import print_to_stdstream

    screen = {"lines": ["Raylet is terminated."], "pid": "raylet", "is_err": False}
    print_to_stdstream(screen, ignore_prefix=False)
    assert capsys.readouterr() == ("", "")


def test_where_nothing_is_under_way_every_stage_runs_what_waits_for_it() -> None:
    """Five clients, of whom always one waits for the first stage and some for the second one."""
    ray = PretendRay()
    inputs = LeaveDecisions(np.array([[n % 2 == 0] * 3 for n in range(40)]))
    run, _ = pipeline_on(ray).run(inputs, 5)
    assert np.isfinite(run.answered_ms).all()
    assert ray.most_at_once == 2


@pytest.mark.parametrize(
    ("ray", "told"),
    [
        (PretendRay(slow_to_start=True), "were not ready in 120 s"),
        (PretendRay(dies=lambda number, method: number == 1), "did not start"),
    ],
)
def test_devices_that_do_not_start_are_one_line(ray: PretendRay, told: str) -> None:
    with pytest.raises(UserError, match=f"^--live: the 3 emulated devices {told}$"):
        pipeline_on(ray)
    assert ray.killed == ray.started


def test_killed_devices_are_replaced_and_nothing_is_lost(
    live: LivePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = live.ray
    pids = {name: ray.get(actor.ready.remote()) for name, actor in live.actors.items()}

    victims = {30: "V100-0", 90: "V100-2"}  # one of each stage; more than 150 batches are sent
    number, send = itertools.count(), live.send

    def deadly(device: str, *batch: Any) -> Any:
        call = send(device, *batch)
        if victim := victims.get(next(number)):
            os.kill(pids[victim], signal.SIGKILL)
        return call

    monkeypatch.setattr(live, "send", deadly)
    inputs = drawn(PROFILE["survival"], 600, 1)
    run, faults = live.run(inputs, 24)
    assert next(number) > 150
    assert np.isfinite(run.answered_ms).all()
    assert faults.replaced >= 2
    layers = inputs.depths(live.layout.cuts)
    assert run.inputs == 600 + (layers == 4).sum() + faults.run_again
    assert ray.get(live.actors["V100-0"].ready.remote()) != pids["V100-0"]


@pytest.mark.parametrize("method", ["ready", "run"])
def test_a_device_that_dies_again_and_again_is_one_line(method: str) -> None:
    """Its new actors die before they are ready, or with their first batch."""
    ray = PretendRay()
    made = pipeline_on(ray)
    first = ray.started[0]
    dying = {(0, "run"), *((number, method) for number in range(3, 99))}
    ray.dies = lambda number, called: (number, called) in dying
    told = "^--live: device V100-0 died, and so did 5 new ones in its place without answering"
    with pytest.raises(UserError, match=told):
        made.run(drawn(PROFILE["survival"], 60, 1), 12)
    assert ray.killed == [first, *ray.started[3:-1]]


def test_a_device_may_die_often_where_its_successors_work() -> None:
    """Every second call of a batch ends in a death: each actor answers one and dies of the next."""
    calls: Counter[int] = Counter()

    def dies(number: int, method: str) -> bool:
        calls[number] += method == "run"
        return calls[number] > 1

    ray = PretendRay()
    made = pipeline_on(ray)
    ray.dies = dies
    inputs = drawn(PROFILE["survival"], 120, 1)
    run, faults = made.run(inputs, 12)
    layers = inputs.depths(made.layout.cuts)
    assert faults.replaced > 3 * 5
    assert run.inputs == 120 + (layers == 4).sum() + faults.run_again


EASY, HARD = [1, 0.9, 0.3, 0.2, 0.2], [1, 1, 0.98, 0.95, 0.95]


def planner_of() -> WindowPlanner:
    model = profile_from({**PROFILE, "survival": EASY}, "p")
    cluster = cluster_from({"devices": {"V100": 3}, "price": {"V100": 1}}, "c", model)
    return WindowPlanner(model, cluster, Wanted(1e6))


def shifting(count: int) -> LeaveDecisions:
    """Easy, hard and easy again: the plan follows."""
    parts = [drawn(survival, count // 3, seed) for seed, survival in enumerate((EASY, HARD, EASY))]
    return parts[0].then(parts[1]).then(parts[2])


def audited(run: AuditedRun, count: int) -> Counter[str]:
    """What was found wrong with a run that ended."""
    assert np.isfinite(run.served().answered_ms).all()
    return +Counter(run.audit(count))


def test_a_live_plan_follows_its_workload() -> None:
    run = AuditedRun(pipeline_on(PretendRay()), planner_of(), shifting(900), 24, {}, 0.2)
    assert audited(run, 900) == Counter()
    ends = [[one.end for one in made.stages] for _, made in run.changing.plans]
    assert ends[0] == [2, 4]
    assert [4] in ends
    assert run.changing.stragglers == frozenset()


def test_a_live_straggler_is_found_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is slow from half a second on; from the next plan on no batch goes to it."""
    live = pipeline_on(PretendRay())
    sent: list[tuple[float, str]] = []
    send = live.send

    def noted(device: str, *batch: Any) -> Any:
        sent.append((run.now(), device))
        return send(device, *batch)

    monkeypatch.setattr(live, "send", noted)
    slow = {"V100-1": Slowdown(6.0, from_ms=500)}
    run = AuditedRun(live, planner_of(), drawn(EASY, 700, 3), 24, slow, 0.25)
    assert audited(run, 700) == Counter()
    assert run.changing.stragglers == {"V100-1"}
    changed_ms, left = run.changing.plans[-1]
    assert changed_ms > 500
    assert sum(one.count for one in left.stages) == 2
    assert any(device == "V100-1" for _, device in sent)
    assert not [at for at, device in sent if at > changed_ms and device == "V100-1"]
    assert len({device for at, device in sent if at > changed_ms}) == 2


def test_deaths_while_plans_change_lose_nothing() -> None:
    """One of nine batches ends in a death, also while the old stages empty; at no fixed place, else
    a device that takes as long to come back as the others take for eight would die each time."""
    calls: Counter[str] = Counter()

    def dies(number: int, method: str) -> bool:
        nine, place = divmod(calls[method], 9)
        calls[method] += 1
        return method == "run" and place == random.Random(nine).randrange(9)

    ray = PretendRay()
    live = pipeline_on(ray)
    ray.dies, ray.ready_ms = dies, 150
    slow = {"V100-2": Slowdown(3.0, from_ms=300)}
    run = AuditedRun(live, planner_of(), shifting(450), 24, slow, 0.1)
    assert audited(run, 450) == Counter()
    assert run.faults.replaced > 10
    assert run.faults.run_again > 10
    assert len(run.changing.plans) > 1


def test_an_actor_that_starts_has_a_part_in_new_stages_once_it_is_ready() -> None:
    run = AuditedRun(pipeline_on(PretendRay()), planner_of(), shifting(9), 3, {}, 9.0)
    run.calls[object()] = DeviceCall(run.layout.entrance, "V100-1", None)
    run.changing.change(0.0)
    run.take_up(run.changing.layout)
    assert [crew.free for crew in run.layout.crews] == [["V100-0"], ["V100-2"]]


def test_a_batch_that_shrinks_answers_before_its_end_and_never_twice() -> None:
    """Some of its devices die; who had an answer of a dead one's batch does not run again."""
    ray = PretendRay()
    live = pipeline_on(ray)
    layout = data_parallel(live.times, {"V100": 3}, "shrinking batch")
    inputs = drawn(EASY, 240, 0)
    run = LiveRun(live, layout, inputs, 12)
    whole = run.served()
    waits, layers = whole.answered_ms - whole.asked_ms, inputs.depths()
    assert np.median(waits[layers == 1]) < 0.7 * np.median(waits[layers == 4])
    assert (run.faults.dropped, run.faults.run_again) == (0, 0)
    calls: Counter[str] = Counter()

    def dies(number: int, method: str) -> bool:
        calls[method] += 1
        return method == "run" and calls[method] % 5 == 0

    ray.dies = dies
    run = LiveRun(live, layout, inputs, 12)
    assert np.isfinite(run.served().answered_ms).all()
    assert run.faults.dropped == 0
    assert 0 < run.faults.run_again < 4 * run.faults.replaced


def test_an_answer_for_who_has_one_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    live = pipeline_on(PretendRay())
    send = live.send

    def twice(device: str, requests: list[int], depths: list[int], *rest: Any) -> Any:
        more = [0] if 0 not in requests else []
        return send(device, requests + more, depths + [1] * len(more), *rest)

    monkeypatch.setattr(live, "send", twice)
    run, faults = live.run(drawn(EASY, 60, 0), 12)
    assert np.isfinite(run.answered_ms).all()
    assert faults.dropped > 0


def test_kills_plans_and_stragglers_at_once_lose_nothing(live: LivePipeline) -> None:
    """A small part of `benchmarks/tetris/nothing_lost.py`, with real processes."""
    slow = {"V100-1": Slowdown(4.0, from_ms=500)}
    run = AuditedRun(live, planner_of(), shifting(900), 24, slow, 0.3)
    with RandomKiller(live, 0.4, seed=1) as killer:
        assert audited(run, 900) == Counter()
    assert killer.killed >= run.faults.replaced > 0
    assert len(run.changing.plans) > 1
