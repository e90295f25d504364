"""What a sweep makes of nodes that differ and nodes that are lost, without a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from backends.checkpoints import models
from harness.cli import wiring
from harness.cli.cluster import nodes as found_nodes
from harness.cli.cluster.node import NodeState, NodeWorker, ShareOver, code_key
from harness.cli.cluster.nodes import ClusterNode
from harness.cli.cluster.sweep import ClusterSweep
from harness.cli.pins import Pins, whole_records
from harness.core.errors import UserError
from harness.core.nouns import Load, Model, Trial, TrialRecord, Workload
from harness.measure.sweep import SweepEvent
from results.store.folder import Store
from tests.support.harness.sessions import engines, make_trial
from tests.support.results.make_trials import record
from workloads.measured import load_rows, rows_checksum

MODEL = Model("demo", checksum="c0ffee")


class LostNodeError(Exception):
    """What Ray raises of a node that is gone."""


class Answer:
    """What a call of an actor gives, once it is asked for."""

    def __init__(self, value: Callable[[], Any]) -> None:
        self.value = value


class ActorMethod:
    """A method of an actor."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def remote(self, *arguments: Any) -> Answer:
        return Answer(lambda: self._function(*arguments))


class Rays:
    """Of the module `ray`, what a sweep asks it."""

    class exceptions:  # noqa: N801
        RayError = LostNodeError

    @staticmethod
    def get(answer: Answer) -> Any:
        return answer.value()

    @staticmethod
    def wait(answers: list[Answer], num_returns: int) -> tuple[list[Answer], list[Answer]]:
        # the one that waits longest, so that nodes take turns
        return answers[:1], answers[1:]


class PretendedNode:
    """Runs a trial each time that it is asked for tidings, and is lost after `lives` of them."""

    def __init__(self, name: str, machine: str, lives: int = 1000) -> None:
        self.name, self.machine, self.lives = name, machine, lives
        self.left: list[Trial] = []
        self.ran: list[Trial] = []
        self.begin, self.tidings = ActorMethod(self._begin), ActorMethod(self._tidings)

    def _begin(self, trials: Sequence[Trial], stored: Collection[str], limit_s: float) -> None:
        self.left = [trial for trial in trials if self.key(trial) not in stored]

    def key(self, trial: Trial) -> str:
        return trial.key(self.machine, "code")

    def _tidings(self, wait_s: float) -> list[Any]:
        if not self.lives:
            raise LostNodeError
        self.lives -= 1
        if not self.left:
            return [ShareOver(None)]
        trial = self.left.pop(0)
        self.ran.append(trial)
        made = replace(
            record(trial, ()),
            key=self.key(trial),
            environment={"fingerprint": self.machine, "node": self.name},
        )
        return [SweepEvent("finished", 0, 1, trial, record=made)]


def cluster_node(worker: Any, trials: Sequence[Trial]) -> ClusterNode:
    code = {code_key(trial): "code" for trial in trials}
    return ClusterNode(worker.name, worker, NodeState({}, worker.machine, code, {}))


def trials(cells: int = 4, repeats: int = 2) -> list[Trial]:
    return [
        replace(make_trial(repeat=repeat), load=Load("closed", concurrency=cell + 1), model=MODEL)
        for cell in range(cells)
        for repeat in range(repeats)
    ]


def two_engines() -> list[Trial]:
    asked = [
        replace(trial, options={**trial.options, "itl_s": itl})
        for trial in trials(cells=2)
        for itl in (0.1, 0.2)
    ]
    return sorted(asked, key=lambda trial: (trial.load.concurrency or 0, trial.repeat))


def sweep(
    store: Store, workers: Sequence[PretendedNode], asked: Sequence[Trial]
) -> tuple[Any, list[SweepEvent], list[str]]:
    events: list[SweepEvent] = []
    lost: list[str] = []
    nodes = [cluster_node(worker, asked) for worker in workers]
    made = ClusterSweep(Rays, nodes, store, 60.0, events.append, lost.append)
    return made.run(asked), events, lost


def stored(store: Store) -> list[TrialRecord]:
    return [found.record for _, found in whole_records(store)]


def test_every_trial_runs_once_and_a_second_time_none(tmp_path: Path) -> None:
    asked, store = trials(), Store(tmp_path)
    workers = [PretendedNode("a", "m"), PretendedNode("b", "m")]
    result, events, lost = sweep(store, workers, asked)
    assert result.statuses == {"ok": len(asked)}
    assert (result.stored, result.failed, lost) == (0, 0, [])
    assert sorted(map(code_of, workers[0].ran + workers[1].ran)) == sorted(map(code_of, asked))
    assert all(worker.ran for worker in workers)
    assert [event.index for event in events] == list(range(len(asked)))
    assert {event.total for event in events} == {len(asked)}
    again, events, _ = sweep(store, [PretendedNode("c", "m")], asked)
    assert (again.stored, again.statuses.total(), events) == (len(asked), 0, [])


def test_what_a_lost_node_did_not_finish_runs_on_another(tmp_path: Path) -> None:
    """It is lost in the middle of a repeat of two engines: that repeat is run anew, on one node."""
    asked = two_engines()
    lost_node, other = PretendedNode("a", "m", lives=3), PretendedNode("b", "m")
    store = Store(tmp_path)
    _, _, lost = sweep(store, [lost_node, other], asked)
    assert [line.split(" (")[0] for line in lost] == ["node a is lost"]
    found = stored(store)
    assert sorted(code_of(one.trial) for one in found) == sorted(map(code_of, asked))
    assert len(lost_node.ran) == 3
    nodes: dict[Any, set[str]] = {}
    for one in found:
        place = (one.trial.load.concurrency, one.trial.repeat)
        nodes.setdefault(place, set()).add(one.environment["node"])
    assert all(len(names) == 1 for names in nodes.values())
    assert {"a", "b"} == set().union(*nodes.values())


def test_on_a_machine_of_another_kind_a_comparison_runs_again(tmp_path: Path) -> None:
    asked, store = trials(cells=1, repeats=4), Store(tmp_path)
    first, second = PretendedNode("a", "m", lives=2), PretendedNode("b", "other")
    result, events, _ = sweep(store, [first, second], asked)
    assert len(first.ran) == 2
    assert len(second.ran) == len(asked)
    assert {one.environment["node"] for one in stored(store)} == {"b"}
    assert result.failed == 0
    assert max(event.index for event in events) == len(asked) - 1


def test_with_the_last_node_the_sweep_ends_and_what_is_stored_stays(tmp_path: Path) -> None:
    asked, store = trials(), Store(tmp_path)
    with pytest.raises(UserError, match="the last node of the cluster is lost") as caught:
        sweep(store, [PretendedNode("a", "m", lives=3)], asked)
    assert "\n" not in str(caught.value)
    assert len(stored(store)) == 3
    result, _, _ = sweep(store, [PretendedNode("b", "m")], asked)
    assert (result.statuses["ok"], result.stored) == (len(asked) - 3, 3)
    assert len(stored(store)) == len(asked)


def test_a_node_that_cannot_go_on_says_why(tmp_path: Path) -> None:
    worker = PretendedNode("a", "m")
    worker.tidings = ActorMethod(lambda wait_s: [ShareOver(None, "no such workload")])
    with pytest.raises(UserError, match="node a: no such workload"):
        sweep(Store(tmp_path), [worker], trials())


def code_of(trial: Trial) -> str:
    return trial.key("any")


@pytest.mark.parametrize(
    ("code", "checksum", "said"),
    [
        (
            "another",
            "c0ffee",
            "node a: has other code of backend 'scripted'; expected this",
        ),
        (None, "beef", "node a: model 'demo': is beef; expected c0ffee, that of this machine"),
        (None, "model 'demo': no such folder", "model 'demo': is model 'demo': no such folder"),
        (None, "c0ffee", None),
    ],
)
def test_nodes_have_the_same_code_and_models(
    code: str | None, checksum: str, said: str | None
) -> None:
    asked = trials(cells=1, repeats=1)
    known = {code_key(trial): code or Pins().of(trial) for trial in asked}
    node = ClusterNode("a", None, NodeState({}, "m", known, {"demo": checksum}))
    if said is None:
        found_nodes.check([node], asked)
        return
    with pytest.raises(UserError) as caught:
        found_nodes.check([node], asked)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def no_engine_stays() -> Iterator[None]:
    """An actor's engines end with its process, which is that of other tests here."""
    before = {engine.pid for engine in engines(os.getpid())}
    yield
    started = [engine for engine in engines(os.getpid()) if engine.pid not in before]
    for engine in started:
        engine.kill()
    psutil.wait_procs(started, timeout=10)


@pytest.mark.usefixtures("no_engine_stays")
def test_a_node_tells_of_itself_and_runs_what_it_is_given() -> None:
    """The very actor, in this process."""
    worker = NodeWorker("here", None)
    checksum = models.checksum(models.BUNDLED["demo"])
    model = Model("demo", checksum=checksum, dtype="float32")
    load = Load("closed", concurrency=2)
    asked = [
        Trial("scripted", {"ttft_s": 0.0, "itl_s": 0.0}, model, workload(), load, 4, 4, repeat=n)
        for n in range(3)
    ]
    assert worker.ready() == wiring.preferred_dtype()
    state = worker.describe(asked)
    assert state.environment["node"] == "here"
    assert state.checksums == {"demo": checksum}
    node = ClusterNode("here", worker, state)
    worker.begin(asked, {node.key(asked[1])}, 60.0)
    told: list[Any] = []
    while not any(isinstance(one, ShareOver) for one in told):
        told += worker.tidings(5.0)
    over = told[-1]
    assert (over.error, over.result.stored, over.result.statuses) == (None, 1, {"ok": 2})
    records = [one.record for one in told if isinstance(one, SweepEvent) and one.record]
    assert [one.key for one in records] == [node.key(asked[0]), node.key(asked[2])]
    assert {one.environment["node"] for one in records} == {"here"}
    assert worker.tidings(0.01) == []


def workload() -> Workload:
    made = Workload("gsm8k")
    return replace(made, checksum=rows_checksum(made, load_rows(made, 0, 4, None)))


def test_logs_are_the_node_s_own_where_the_run_s_folder_is_not_there(tmp_path: Path) -> None:
    shared = NodeWorker("here", tmp_path / "logs").describe([])
    assert shared.logs == tmp_path / "logs"
    assert not shared.logs.exists(), "made by the first engine"
    own = NodeWorker("here", tmp_path / "run" / "logs").describe([]).logs
    assert own is not None
    assert own.is_dir()
    assert not own.is_relative_to(tmp_path)
    own.rmdir()


def test_a_node_is_named_by_its_address_and_a_number_where_others_share_it() -> None:
    """However Ray lists nodes, whose ids change when the cluster is started again."""
    before = [{"NodeID": "1", "NodeManagerAddress": one} for one in ("10.0.0.1", "10.0.0.2")]
    after = [{"NodeID": "2", "NodeManagerAddress": one} for one in ("10.0.0.2", "10.0.0.1")]
    assert found_nodes.named(before) == {"10.0.0.1": before[0], "10.0.0.2": before[1]}
    assert found_nodes.named(after) == {"10.0.0.1": after[1], "10.0.0.2": after[0]}
    shared = [{"NodeID": id_, "NodeManagerAddress": "10.0.0.1"} for id_ in "cab"]
    more = [*shared, before[1]]
    numbered = {f"10.0.0.1/{n}": shared[place] for n, place in enumerate((1, 2, 0))}
    assert found_nodes.named(more) == {**numbered, "10.0.0.2": before[1]}
