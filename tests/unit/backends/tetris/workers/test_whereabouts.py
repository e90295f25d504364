"""What a stage's process tells of where it is, and what is made of it."""

from __future__ import annotations

import platform
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from backends.tetris.pipeline.replicas import worker_names
from backends.tetris.workers.piped_stages import PipedStages, StageDiedError
from backends.tetris.workers.places import ProcessPlace
from backends.tetris.workers.whereabouts import Whereabouts, by_stage, check_alike, here
from harness.core.errors import UserError
from harness.core.processes.processor import cpu_model
from tests.support.tetris import echo_stage

FIRST = Whereabouts("one", "GPU9", "3", "10.0.0.1", {"GPU": 0.5})
SECOND = Whereabouts("two", "CPU9")


def test_processes_tell_where_they_are_and_die_under_their_names() -> None:
    names = worker_names([2, 1])
    assert names == ["stage 1, replica 1 of 2", "stage 1, replica 2 of 2", "stage 2"]
    place = ProcessPlace(echo_stage.__name__)
    made: PipedStages[Any, Any, Any] = PipedStages("played", place, [None] * 3, names=names)
    try:
        own = Whereabouts(platform.node(), cpu_model())
        assert made.whereabouts() == [own] * 3
        made.send(1, echo_stage.BREAK)
        with pytest.raises(RuntimeError, match=r"'played': stage 1, replica 2 of 2: ZeroDiv"):
            made.receive(1)
        made._workers[1].kill()
        with pytest.raises(StageDiedError, match=r"process of stage 1, replica 2 of 2 ended with"):
            made.receive(1)
        made._whereabouts.clear()
        made.restart(1)
        assert made.whereabouts() == [None, own, None]
    finally:
        made.close()


def test_a_gpu_and_what_ray_reserves_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def cuda(begun: bool, number: int) -> Any:
        return SimpleNamespace(
            is_initialized=lambda: begun,
            current_device=lambda: number,
            get_device_name=lambda index: f"GPU9-{index}",
        )

    def told(begun: bool, number: int, visible: str) -> tuple[str, str | None]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda(begun, number)))
        return here().device, here().card

    assert told(True, 1, "4, 7") == ("GPU9-1", "7")
    assert told(True, 1, "") == ("GPU9-1", "1")
    assert told(False, 1, "4,7") == (cpu_model(), None)
    context = SimpleNamespace(get_assigned_resources=lambda: {"GPU": 0.5})
    ray = SimpleNamespace(
        is_initialized=lambda: True,
        get_runtime_context=lambda: context,
        util=SimpleNamespace(get_node_ip_address=lambda: "10.0.0.9"),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert (here().node, here().reserved) == ("10.0.0.9", {"GPU": 0.5})
    context.get_assigned_resources = None
    assert (here().node, here().reserved) == (None, {}), "a stage does not end for that"


def test_a_record_has_stages_and_replicas_from_one() -> None:
    half = {"device": "GPU9", "card": "3", "node": "10.0.0.1", "reserved": {"GPU": 0.5}}
    assert by_stage([2, 1], [FIRST, SECOND, None]) == [
        {"stage": 1, "replica": 1, "host": "one", **half},
        {"stage": 1, "replica": 2, "host": "two", "device": "CPU9"},
    ]


def test_devices_of_several_kinds_are_refused_in_one_line() -> None:
    check_alike("option", [FIRST, None, FIRST])
    with pytest.raises(UserError) as refused:
        check_alike("option 'replan_s'", [FIRST, SECOND, FIRST])
    assert str(refused.value) == (
        "option 'replan_s': takes all workers for one kind of device, and finds CPU9 on two, GPU9 "
        "on 10.0.0.1; expected nodes of one kind (a resource that they alone have, in option "
        "'ray_resources'), or 0"
    )
