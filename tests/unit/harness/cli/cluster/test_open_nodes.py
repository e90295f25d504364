"""Which nodes of a cluster a sweep begins with, without a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli.cluster.node import NodeState, code_key
from harness.cli.cluster.nodes import open_nodes
from harness.cli.pins import Pins
from harness.core.errors import UserError
from harness.core.nouns import Trial
from tests.unit.harness.cli.cluster.test_nodes import ActorMethod, Answer, LostNodeError, trials


class WorkerMaker:
    """Of what `ray.remote` gives: makes actors, the n-th of which answers as the n-th of those."""

    def __init__(
        self, answers: Sequence[Callable[[], NodeState]], ready: Callable[[], str]
    ) -> None:
        self._left, self._ready = list(answers), ready

    def __call__(self, **_: Any) -> WorkerMaker:
        return self

    options = __call__

    def remote(self, name: str, logs: Path) -> Any:
        answer = self._left.pop(0)
        describe = ActorMethod(lambda asked: answer())
        return SimpleNamespace(ready=ActorMethod(self._ready), describe=describe)


def cluster_of(
    answers: Sequence[Callable[[], NodeState]],
    lost: set[int],
    ready: Callable[[], str] = lambda: "float32",
) -> Any:
    """A module `ray` whose nodes answer so; those in `lost` are listed as alive only at first."""
    pytest.importorskip("ray")
    maker = WorkerMaker(answers, ready)
    listed = itertools.chain([set[int]()], itertools.repeat(lost))

    def nodes() -> list[dict[str, Any]]:
        gone = next(listed)
        common = {"Resources": {"CPU": 1.0}, "NodeManagerAddress": "host"}
        return [common | {"NodeID": f"{n:056x}", "Alive": n not in gone} for n in range(2)]

    def get(answer: Answer, timeout: float) -> Any:
        return answer.value()

    exceptions = SimpleNamespace(GetTimeoutError=TimeoutError)
    given = {"nodes": nodes, "get": get, "exceptions": exceptions}
    return SimpleNamespace(remote=lambda **_: lambda of: maker, **given)


def gone() -> NodeState:
    raise LostNodeError("its raylet has died")


def test_stages_that_need_nodes_which_are_taken_whole_are_refused(tmp_path: Path) -> None:
    [trial] = trials(cells=1, repeats=1)
    told = "option 'ray': stages on a cluster's nodes, each of which this executor takes whole"
    with pytest.raises(UserError, match=told):
        open_nodes(cluster_of([], set()), [staged(trial, "10.0.0.1:6379")], tmp_path)
    with pytest.raises(UserError, match="every node of the cluster is lost"):
        open_nodes(cluster_of([gone, gone], {0, 1}), [staged(trial, "local")], tmp_path)


def staged(trial: Trial, where: str) -> Trial:
    return replace(trial, options={**trial.options, "ray": where})


def test_a_node_that_has_died_unnoticed_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster lists it as alive for some seconds more."""
    asked = trials(cells=1, repeats=1)
    known = {code_key(trial): Pins().of(trial) for trial in asked}
    state = NodeState({}, "m", known, {"demo": "c0ffee"})
    ray = cluster_of([gone, lambda: state], lost={0})
    assert [node.name for node in open_nodes(ray, asked, tmp_path)] == ["host/1"]
    assert capsys.readouterr().err == "warning: node host/0 is lost before it has begun\n"
    ray = cluster_of([gone, gone], lost={0, 1})
    with pytest.raises(UserError, match="every node of the cluster is lost"):
        open_nodes(ray, asked, tmp_path)
    ray = cluster_of([gone, lambda: state], lost=set())
    with pytest.raises(UserError, match="node host/0: its raylet has died"):
        open_nodes(ray, asked, tmp_path)


def test_inputs_are_written_while_nodes_start(tmp_path: Path) -> None:
    asked = trials(cells=1, repeats=1)
    known = {code_key(trial): Pins().of(trial) for trial in asked}
    order: list[str] = []

    def answer() -> NodeState:
        order.append("waited")
        return NodeState({}, "m", known, {"demo": "c0ffee"})

    ray = cluster_of([answer, answer], lost=set())
    open_nodes(ray, asked, tmp_path, lambda: order.append("wrote"))
    assert order == ["wrote", "waited", "waited"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RuntimeError("The actor died: ModuleNotFoundError: No module named 'harness'"),
            "node host/0: decodebench is not installed there; expected this version on every node",
        ),
        (TimeoutError(), "node host/0: no worker within 120 s; is another job using its"),
    ],
)
def test_a_node_that_cannot_begin_is_named_with_the_reason(
    tmp_path: Path, error: Exception, words: str
) -> None:
    def fail() -> Any:
        raise error

    ray = cluster_of([fail, fail], set(), ready=fail)
    with pytest.raises(UserError, match=words) as caught:
        open_nodes(ray, trials(cells=1, repeats=1), tmp_path)
    assert "\n" not in str(caught.value)


def test_a_node_may_read_a_large_model_for_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = trials(cells=1, repeats=1)
    known = {code_key(trial): Pins().of(trial) for trial in asked}
    answers = iter([TimeoutError(), TimeoutError()])

    def read() -> NodeState:
        for error in answers:
            raise error
        return NodeState({}, "m", known, {"demo": "c0ffee"})

    nodes = open_nodes(cluster_of([read, read], lost=set()), asked, tmp_path)
    assert [node.name for node in nodes] == ["host/0", "host/1"]
    told = "node host/0 reads its models for their checksums, for"
    assert capsys.readouterr().err == f"{told} 30 s\n{told} 60 s\n"


def test_auto_is_one_dtype_on_the_nodes_and_on_the_machine_that_makes_the_trials(
    tmp_path: Path,
) -> None:
    """A laptop without a GPU would else have a cluster of GPUs measured in float32."""
    asked = trials(cells=1, repeats=1)
    assert asked[0].model.dtype == "float32"
    known = {code_key(trial): Pins().of(trial) for trial in asked}
    state = NodeState({}, "m", known, {"demo": "c0ffee"})

    def cluster(dtype: str) -> Any:
        return cluster_of([lambda: state, lambda: state], set(), ready=lambda: dtype)

    told = "dtype: auto is bfloat16 on node host/0 and float32 on this machine; expected one of"
    with pytest.raises(UserError, match=told):
        open_nodes(cluster("bfloat16"), asked, tmp_path, is_auto=True)
    assert len(open_nodes(cluster("float32"), asked, tmp_path, is_auto=True)) == 2
    assert len(open_nodes(cluster("bfloat16"), asked, tmp_path)) == 2, "it was written down"
