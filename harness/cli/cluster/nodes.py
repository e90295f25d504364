"""The nodes of a Ray cluster that can run an experiment's trials."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.tetris.live.devices import start_ray
from backends.tetris.workers.options import HERE
from harness.cli.cluster.node import NodeState, NodeWorker, code_key
from harness.cli.pins import Pins
from harness.core.errors import UserError
from harness.core.nouns import Trial

READY_S = 120.0
"""For a node's worker to start, which imports what measures."""
TOLD_S = 30.0
"""How often it is told that a node still reads. That has no limit: a model's weights, read from a
network once for the checksum, may take hours, and a node that is lost meanwhile is noticed."""
OPTION = "--executor ray"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node and what runs there."""

    name: str
    worker: Any
    """An actor of `NodeWorker`."""
    state: NodeState

    def key(self, trial: Trial) -> str:
        """Of the trial where it runs on this node."""
        return trial.key(self.state.fingerprint, self.state.code[code_key(trial)])


def connect(address: str | None) -> Any:
    """The module `ray`, connected to a cluster, or to a Ray of its own on this machine. Raises
    `UserError` where Ray is not installed or nobody answers."""
    return start_ray(address, OPTION)


def open_nodes(
    ray: Any,
    trials: Sequence[Trial],
    logs: Path,
    meanwhile: Callable[[], None] = lambda: None,
    *,
    is_auto: bool = False,
) -> list[ClusterNode]:
    """A worker on each node that is alive: on those with a GPU where any has one, else on all.
    While they start, which takes seconds, `meanwhile` is called. `is_auto`: the trials' dtype is
    what ``dtype: auto`` means on this machine.

    A cluster lists a node that has died for some seconds more: such a node is left out, with a
    warning. Raises `UserError` for a cluster without a node, and for a node without this package,
    with other code, with another model under the name of a trial's, or where ``dtype: auto`` is
    another one.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    _check_whole(trials)
    found = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
    with_gpu = [n for n in found if n["Resources"].get("GPU")]
    chosen = with_gpu or found
    if not chosen:
        raise UserError(f"{OPTION}: the cluster has no node with a processor to run trials on")
    remote = ray.remote(num_cpus=0, max_restarts=0, max_concurrency=4)(NodeWorker)
    workers: dict[str, Any] = {}
    ids: dict[str, str] = {}
    for name, node in named(chosen).items():
        whole = {
            "num_cpus": node["Resources"]["CPU"],
            "num_gpus": node["Resources"].get("GPU", 0),
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        }
        ids[name] = node["NodeID"]
        workers[name] = remote.options(**whole).remote(name, logs)
    one_of_each = list({code_key(trial): trial for trial in trials}.values())
    ready = {name: worker.ready.remote() for name, worker in workers.items()}
    asked = {name: worker.describe.remote(one_of_each) for name, worker in workers.items()}
    meanwhile()
    dtypes = _answers(ray, ids, ready, lambda name: ray.get(ready[name], timeout=READY_S))
    if is_auto:
        check_dtype(dtypes, trials[0].model.dtype)
    states = _answers(ray, ids, dtypes, lambda name: _described(ray, name, asked[name]))
    nodes = [ClusterNode(name, workers[name], state) for name, state in states.items()]
    if not nodes:
        raise UserError(f"{OPTION}: every node of the cluster is lost before it has begun")
    check(nodes, one_of_each)
    return nodes


def named(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Ray's nodes by address, with a number in the order of their ids where several share one: so
    that a node has its name in a cluster that was started again, too, however Ray lists it."""
    at: dict[str, list[Mapping[str, Any]]] = {}
    for node in sorted(nodes, key=lambda node: str(node["NodeID"])):
        at.setdefault(node["NodeManagerAddress"], []).append(node)
    return {
        f"{address}/{number}" if len(same) > 1 else address: node
        for address, same in at.items()
        for number, node in enumerate(same)
    }


def _answers(
    ray: Any, ids: Mapping[str, str], names: Collection[str], answer: Callable[[str], Any]
) -> dict[str, Any]:
    """The nodes' answers, but for those that are lost. Raises `UserError` for one that has none."""
    found = {}
    for name in names:
        try:
            found[name] = answer(name)
        except Exception as error:
            if _is_alive(ray, ids[name]):
                raise UserError(f"{OPTION}: node {name}: {_reason(ray, error)}") from None
            print(f"warning: node {name} is lost before it has begun", file=sys.stderr)
    return found


def _described(ray: Any, name: str, answer: Any) -> NodeState:
    """What a node says of itself, however long it reads for that."""
    for waited in itertools.count(1):
        try:
            state: NodeState = ray.get(answer, timeout=TOLD_S)
            return state
        except ray.exceptions.GetTimeoutError:
            told = f"node {name} reads its models for their checksums, for {waited * TOLD_S:g} s"
            print(told, file=sys.stderr)
    raise AssertionError


def _check_whole(trials: Sequence[Trial]) -> None:
    """Raise `UserError` for stages that would need what this sweep takes whole."""
    for trial in trials:
        if trial.options.get("ray", HERE) not in (None, HERE):
            raise UserError(
                f"{OPTION}: backend '{trial.backend}': option 'ray': stages on a cluster's nodes, "
                f"each of which this executor takes whole; expected {HERE} there, or no {OPTION}"
            )


def check_dtype(dtypes: Mapping[str, str], ours: str) -> None:
    """Raise `UserError` for a node where ``dtype: auto`` is not what it is on this machine, by
    which the trials were made."""
    for name, there in dtypes.items():
        if there != ours:
            raise UserError(
                f"{OPTION}: dtype: auto is {there} on node {name} and {ours} on this machine; "
                f"expected one of them in the experiment, as 'dtype: {there}'"
            )


def check(nodes: Sequence[ClusterNode], trials: Sequence[Trial]) -> None:
    """Raise `UserError` for a node whose code or models are not this machine's, and for one that
    cannot run the trials."""
    pins = Pins()
    code: Mapping[str, str] = {code_key(trial): pins.of(trial) for trial in trials}
    for node in nodes:
        for trial in trials:
            if node.state.code[code_key(trial)] != code[code_key(trial)]:
                raise UserError(
                    f"{OPTION}: node {node.name}: has other code of backend '{trial.backend}'; "
                    "expected this version of decodebench on every node"
                )
        if node.state.refused is not None:
            raise UserError(f"{OPTION}: node {node.name}: {node.state.refused}")
        for trial in trials:
            there = node.state.checksums[trial.model.label()]
            if there != trial.model.checksum:
                raise UserError(
                    f"{OPTION}: node {node.name}: model '{trial.model.label()}': is {there:.80}; "
                    f"expected {trial.model.checksum}, that of this machine, under the same name "
                    "or path"
                )


def _is_alive(ray: Any, node_id: str) -> bool:
    return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())


def _reason(ray: Any, error: Exception) -> str:
    """One line about a worker that does not start."""
    if isinstance(error, ray.exceptions.GetTimeoutError):
        return f"no worker within {READY_S:g} s; is another job using its processors?"
    text = " ".join(str(error).split())
    if "ModuleNotFoundError" in text or "No module named" in text:
        return "decodebench is not installed there; expected this version on every node"
    return text[:300]
