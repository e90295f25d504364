"""Stages as real Ray actors on this machine: answers, deaths, and the same text as elsewhere."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from backends import open_backend
from backends.checkpoints import models
from backends.tetris.workers.piped_stages import PipedStages, StageDiedError
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.nouns import Label, Model, Request
from tests.support.child import ROOT
from tests.support.harness.sweeping import gone, wait_until
from tests.support.tetris import echo_stage
from tests.unit.backends.tetris.serving.test_texts import answers, opened, requests

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
WITHIN_S = 4.0
MORE_THAN_A_SOCKET_HOLDS = 1 << 24
Stages = PipedStages[Any, Any, Any]
PARENT = """
import time
from backends.tetris.workers.actors import ActorPlace
from backends.tetris.workers.piped_stages import PipedStages
from tests.support.tetris import echo_stage
place = ActorPlace("played", echo_stage.__name__, None, {}, {})
print(*PipedStages("played", place, [None, None]).pids(), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[Any]:
    """Started once: the places below find it there, and leave it."""
    from backends.tetris.live.devices import start_ray

    started = start_ray(None, cpus=1)
    yield started
    started.shutdown()


def place(**resources: float) -> Any:
    from backends.tetris.workers.actors import ActorPlace
    from backends.tetris.workers.node_files import marks_of

    marks = marks_of([Path(__file__)])
    return ActorPlace("played", echo_stage.__name__, None, resources, marks)


@pytest.fixture(scope="module")
def stages() -> Iterator[Stages]:
    made: Stages = PipedStages("played", place(), [None, None], WITHIN_S)
    yield made
    made.close()


def test_jobs_of_any_size_are_answered() -> None:
    stages: Stages = PipedStages("played", place(), [None, None], 30.0)
    for job in (b"1", MORE_THAN_A_SOCKET_HOLDS, bytes(MORE_THAN_A_SOCKET_HOLDS)):
        stages.send(0, job)
        stages.send(1, b"beside")
        assert stages.receive(0) == (bytes(job) if isinstance(job, int) else job)
        assert stages.receive(1) == b"beside"
    assert len(set(stages.pids())) == 2
    assert os.getpid() not in stages.pids()
    assert [one is not None and bool(one.node) for one in stages.whereabouts()] == [True, True]
    stages.close()


def test_what_ray_reserves_for_one_is_told() -> None:
    stages: Stages = PipedStages("played", place(CPU=1), [None], WITHIN_S)
    [found] = stages.whereabouts()
    assert found is not None
    assert found.reserved == {"CPU": 1.0}
    stages.close()


def test_one_that_is_killed_is_replaced_and_others_go_on(stages: Stages) -> None:
    dead = stages.pids()[0]
    os.kill(dead, signal.SIGKILL)
    stages.send(0, b"lost")
    stages.send(1, b"1")
    with pytest.raises(StageDiedError, match=r"'played': the process of stage 1 is gone \("):
        stages.receive(0)
    stages.start_anew(0)
    assert stages.receive(1) == b"1"
    while not stages.ready([0]):
        pass
    stages.opened(0)
    stages.send(0, b"again")
    assert stages.receive(0) == b"again"
    assert stages.pids()[0] != dead


def test_one_that_hangs_is_told_and_ended(stages: Stages) -> None:
    hanging = stages.pids()[1]
    stages.send(1, echo_stage.HANG)
    with pytest.raises(StageDiedError, match=r"gave no answer in its time"):
        stages.receive(1)
    assert wait_until(lambda: gone(hanging), 120)
    stages.restart(1)
    stages.send(1, b"again")
    assert stages.receive(1) == b"again"


def test_what_a_stage_refuses_or_raises_is_told(stages: Stages) -> None:
    stages.send(0, echo_stage.BREAK)
    with pytest.raises(RuntimeError, match=r"'played': stage 1: ZeroDivisionError: played"):
        stages.receive(0)
    with pytest.raises(UserError, match=r"^played$"):
        PipedStages("played", place(), [echo_stage.REFUSE])


def test_what_a_node_lacks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from backends.tetris.workers import actors

    for marks, told in (
        ({"/absent/model": "a"}, "no '/absent/model'; expected it under the same path"),
        ({__file__: "a"}, f"another '{__file__}'; expected the same one"),
    ):
        made = place()
        made._marks = marks
        # the second one has refused, and is gone, before it is listened to
        with pytest.raises(
            UserError, match=rf"^backend 'played': option 'ray': node \S+ has {told}"
        ):
            PipedStages("played", made, [None, None, None])
    monkeypatch.setattr(actors, "sources_digest", lambda: "another")
    with pytest.raises(UserError, match=r"has another version of decodebench; expected this one"):
        PipedStages("played", place(), [None])


def test_what_no_node_has_is_told_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from backends.tetris.workers import actors

    monkeypatch.setattr(actors, "PLACED_WITHIN_S", 1.0)
    told = r"stage \d has no actor within 1 s; each asks for {} \(option 'ray_resources'\), "
    with pytest.raises(UserError, match=told.format("V100 2") + "and no node has that: .*CPU"):
        PipedStages("played", place(V100=2), [None])
    # a sweep closes its other engines then, and tries again
    with pytest.raises(RuntimeError, match=told.format("CPU 1") + "which others hold"):
        PipedStages("played", place(CPU=1), [None] * (1 + len(os.sched_getaffinity(0))))


def test_what_ray_refuses_to_reserve_is_one_line() -> None:
    told = r"^backend 'played': option 'ray': option 'ray_resources': "
    for resources in ({"GPU": 0.00001}, {"object_store_memory": 1}):
        with pytest.raises(UserError, match=told):
            PipedStages("played", place(**resources), [None])


def test_one_that_finds_no_place_in_another_s_is_no_bad_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from backends.tetris.workers import actors

    made: Stages = PipedStages("played", place(), [None])
    monkeypatch.setattr(actors, "PLACED_WITHIN_S", 0.01)
    with pytest.raises(RuntimeError, match="stage 1 has no actor within"):
        made.restart(0)
    made.close()


def test_no_actor_is_left_after_the_end() -> None:
    made: Stages = PipedStages("played", place(), [None, None])
    pids = made.pids()
    assert made.ready([0], 0.0) == []
    made.close()
    assert wait_until(lambda: all(map(gone, pids)), 120)


def test_neither_an_actor_nor_ray_outlives_a_process_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    raylets = [psutil.Process(pid).ppid() for pid in pids]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert wait_until(lambda: all(map(gone, [*pids, *raylets])), 120)


@pytest.mark.parametrize("verify", [False, True], ids=["lossy", "verified"])
def test_text_is_that_of_one_process_whoever_is_killed(verify: bool) -> None:
    exits: dict[str, Any] = {"layers": [2, 4], "thresholds": [0.8, 0.5]}
    name = "autoregressive" if verify else "own-early-exit"
    one_process = opened(name, {} if verify else exits)
    expected, _ = answers(one_process, requests())
    one_process.close()
    backend = opened("tetris", {**exits, "stages": 3, "verify": verify, "ray": "local"})
    first = processes(backend).pids()

    alive = dict(enumerate(first))

    def kill(backend: Backend, tokens: int) -> None:
        stage = tokens // 100 - 1
        if stage in alive:
            os.kill(alive.pop(stage), signal.SIGKILL)

    try:
        found, commits = answers(backend, requests(), meanwhile=kill)
        assert found == expected
        replaced = sum(
            commit.telemetry.get(f"stage_replaced_{stage}", 0)
            for commit in commits
            for stage in (1, 2, 3)
        )
        assert replaced >= 3
        assert not set(first) & set(processes(backend).pids())
        assert backend.info.options["ray"] == "local"
    finally:
        backend.close()


def processes(backend: Backend) -> Any:
    return vars(backend)["_executor"]


def test_labels_are_those_of_processes_whoever_is_killed() -> None:
    model = Model("demo-sentiment")
    folder = models.resolve(model)
    killed: list[int] = []
    prompts = [tuple(range(5, 8 + n % 20)) for n in range(60)]
    wanted = [Request(str(n), ids, 1, answer="label") for n, ids in enumerate(prompts)]

    def labels(**options: Any) -> dict[str, Label]:
        told = {"threads": 1, "threshold": 0.02, "replicas": [2, 1], **options}
        backend: Any = open_backend("tetris-classifier", folder, model, told)
        found: dict[str, Label] = {}
        try:
            victim = backend.workers.pids()[0]
            if options:  # so that it has a batch when it is killed
                os.kill(victim, signal.SIGSTOP)
            for one in wanted:
                backend.submit(one)
            while len(found) < len(wanted):
                for commit in backend.poll():
                    assert commit.request_id not in found
                    found[commit.request_id] = commit.label
                if options and not killed:
                    killed.append(victim)
                    os.kill(victim, signal.SIGKILL)
                backend.wait(0.05)
            if options:
                assert backend.workers.pids()[0] != victim
        finally:
            backend.close()
        return found

    found, undisturbed = labels(ray="local"), labels()
    assert {n: one.name for n, one in found.items()} == {n: a.name for n, a in undisturbed.items()}
    # where a worker is killed rows meet in other batches, which some processors round otherwise
    sure = {n: one.confidence for n, one in undisturbed.items()}
    assert {n: one.confidence for n, one in found.items()} == pytest.approx(sure, rel=1e-6)
    assert killed
