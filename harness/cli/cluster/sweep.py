"""A sweep over the nodes of a cluster: comparisons go to nodes, records come back as they are
made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.cli.cluster.node import ShareOver, Tiding
from harness.cli.cluster.nodes import ClusterNode, connect, open_nodes
from harness.cli.cluster.shares import Comparison, NodeShares, comparisons, kept
from harness.cli.folders.run_folder import write_code
from harness.cli.pins import OlderTrials, Pins
from harness.cli.progress import SweepDisplay
from harness.core.errors import UserError
from harness.core.nouns import Trial, TrialRecord
from harness.measure.machine import tuning
from harness.measure.sweep import SweepEvent, SweepResult, write_record
from results.store.folder import Store
from results.store.records import BrokenRecordError

WAIT_S = 1.0
"""For the tidings of a node, at a time."""

Events = Callable[[SweepEvent], None]
Lost = Callable[[str], None]


@dataclass(slots=True)
class _Busy:
    """A node with a share."""

    node: ClusterNode
    share: list[Comparison]
    kept: set[str]
    """Keys of trials that need not run."""
    stored: set[str] = field(default_factory=set)
    """Keys of those that it ran and of those that are kept."""


class ClusterSweep:
    """Runs trials on nodes.

    Args:
        ray: connected.
        nodes: at least one.
        store: where records go.
        time_limit_s: for each phase of a trial.
        events: told what happens, with numbers that count over all nodes.
        lost: told of each node that is lost, in a line.
    """

    def __init__(
        self,
        ray: Any,
        nodes: Sequence[ClusterNode],
        store: Store,
        time_limit_s: float,
        events: Events,
        lost: Lost,
    ) -> None:
        self._ray, self._nodes, self._store = ray, list(nodes), store
        self._time_limit_s, self._events, self._lost = time_limit_s, events, lost
        self._busy: dict[Any, _Busy] = {}
        """By the call that waits for a node's tidings."""
        self._result = SweepResult()
        self._noted: dict[str, tuple[TrialRecord, bool]] = {}
        """By key, what ran now and whether it was refused: what a lost node had may run twice."""
        self._over = self._total = 0

    def run(self, trials: Sequence[Trial]) -> SweepResult:
        """Run the trials that no node of these kinds has run whole. A node that is lost, or that
        cannot go on, costs what it was doing; others do it. Raises `UserError` where the last node
        is lost, and for records that cannot be stored: all stored before stays."""
        todo = [one for one in comparisons(trials) if not self._is_stored(one)]
        self._total = sum(map(len, todo))
        self._result.stored = len(trials) - self._total
        shares = NodeShares(todo, len(self._nodes))
        self._begin_idle(shares)
        while self._busy:
            done, _ = self._ray.wait(list(self._busy), num_returns=1)
            busy = self._busy.pop(done[0])
            try:
                told: list[Tiding] = self._ray.get(done[0])
            except self._ray.exceptions.RayError as error:
                self._is_gone(busy, shares, type(error).__name__)
                continue
            self._take(busy, told, shares)
        for record, refused in self._noted.values():
            self._result.note(record, refused=refused)
        return self._result

    def _is_stored(self, one: Comparison) -> bool:
        return any(self._stored(node, one) == len(one) for node in self._nodes)

    def _stored(self, node: ClusterNode, one: Comparison) -> int:
        return sum(self._store.has(node.key(trial)) for trial in one)

    def _begin_idle(self, shares: NodeShares) -> None:
        """Give every node that has no share one. A node that is lost meanwhile is among those no
        more, and what it had is begun by others before this one goes on."""
        for node in list(self._nodes):
            busy = any(other.node is node for other in self._busy.values())
            if not busy and any(other is node for other in self._nodes):
                self._begin(node, shares)

    def _begin(self, node: ClusterNode, shares: NodeShares) -> None:
        """Give a node its next share, if there is one."""
        if not shares:
            return
        share = shares.take(lambda one: self._stored(node, one))
        keys = [node.key(trial) for one in share for trial in one]
        done = {key for key in keys if self._store.has(key)}
        ended = {key for key in keys if self._ended_on(node, key)}
        stored = kept(share, done, ended, node.key)
        self._over += len(stored)
        self._result.stored += len(stored)
        trials = [trial for one in share for trial in one]
        busy = _Busy(node, share, stored, set(stored))
        try:
            self._ray.get(node.worker.begin.remote(trials, stored, self._time_limit_s))
        except self._ray.exceptions.RayError as error:
            self._is_gone(busy, shares, type(error).__name__)
        else:
            self._listen(busy)

    def _ended_on(self, node: ClusterNode, key: str) -> bool:
        """Whether a trial ran there, however it ended."""
        try:
            found = self._store.read_stored(key).record
        except BrokenRecordError:
            return False
        return found.environment.get("node") == node.name

    def _listen(self, busy: _Busy) -> None:
        self._busy[busy.node.worker.tidings.remote(WAIT_S)] = busy

    def _take(self, busy: _Busy, told: Sequence[Tiding], shares: NodeShares) -> None:
        """Store what a node has measured; when its share is over, the next one begins."""
        for tiding in told:
            if isinstance(tiding, ShareOver):
                if tiding.error is not None:
                    self._is_gone(busy, shares, tiding.error)
                else:
                    self._begin(busy.node, shares)
                return
            self._note(busy, tiding)
        self._listen(busy)

    def _note(self, busy: _Busy, event: SweepEvent) -> None:
        if event.record is not None:
            record = write_record(self._store, event.record)
            event = replace(event, record=record)
            slim = replace(record, generations=(), texts={}, scores={})
            self._noted[record.key] = slim, event.refused
            if record.status == "ok":
                busy.stored.add(record.key)
        index = min(self._over, self._total - 1)
        self._over += event.record is not None
        self._events(replace(event, index=index, total=self._total))

    def _is_gone(self, busy: _Busy, shares: NodeShares, why: str) -> None:
        """A node is lost, with its engines, or cannot go on. What it had stored of a repeat that is
        not whole runs again, so that a repeat is one node's."""
        self._nodes.remove(busy.node)
        left = [one for one in busy.share if not self._is_whole(busy, one)]
        stored = [k for one in left for k in map(busy.node.key, one) if k in busy.stored]
        self._over -= len(stored)
        self._result.stored -= len(busy.kept.intersection(stored))
        if not any(node.state.fingerprint == busy.node.state.fingerprint for node in self._nodes):
            # others are of another kind: there the whole comparison runs again
            every = [key for one in left for key in map(busy.node.key, one)]
            for key in every if self._nodes else ():
                self._noted.pop(key, None)
                if self._ended_on(busy.node, key):
                    self._store.remove(key)
        count = sum(map(len, left))
        self._lost(
            f"node {busy.node.name} is lost ({why}); what it had begun, "
            f"{len(left)} comparisons, goes to others"
        )
        if not self._nodes and (left or shares):
            raise UserError(
                f"node {busy.node.name}: {why}: the last node of the cluster is lost, at most "
                f"{count} trials before the end of its share; what was stored is safe: run the "
                "same command again"
            )
        shares.give_back(left)
        self._begin_idle(shares)

    def _is_whole(self, busy: _Busy, one: Comparison) -> bool:
        return all(busy.node.key(trial) in busy.stored for trial in one)


def warn_of_niceness(nodes: Sequence[ClusterNode]) -> None:
    """Say on which nodes engines have another priority than they would have here."""
    here = tuning.niceness()
    there = {node.name: node.state.environment.get("niceness", here) for node in nodes}
    if other := {name: value for name, value in there.items() if value != here}:
        values = ", ".join(str(value) for value in sorted(set(other.values())))
        cure = "start Ray on nodes with RAY_worker_niceness=0"
        if max(other.values()) < here:
            cure = f"run this command without 'nice' ({here})"
        print(
            f"warning: engines run at niceness {values} on {', '.join(other)}, and at {here} on "
            f"this machine: their trials are of another set-up; {cure}",
            file=sys.stderr,
        )


def sweep_cluster(
    store: Store,
    trials: Sequence[Trial],
    time_limit_s: float,
    address: str | None,
    meanwhile: Callable[[], None],
    *,
    is_auto: bool,
) -> SweepResult:
    """Run the trials that the store does not have on the nodes of the Ray cluster at `address`, or
    of a Ray of its own on this machine, and show how far they are. `meanwhile` is called once,
    while nodes start. `is_auto`: the trials' dtype is this machine's ``dtype: auto``. Raises
    `UserError`."""
    ray = connect(address)
    try:
        logs = store.path.absolute() / "logs"
        nodes = open_nodes(ray, trials, logs, meanwhile, is_auto=is_auto)
        print(f"cluster: {len(nodes)} nodes", file=sys.stderr)
        for node in nodes:
            if (there := node.state.logs) not in (None, logs):
                print(
                    f"node {node.name}: logs of its engines are there, in {there}", file=sys.stderr
                )
        warn_of_niceness(nodes)
        backends, pins = {trial.backend for trial in trials}, Pins()
        kinds = {node.state.fingerprint: node.state.environment for node in nodes}
        older = {k: OlderTrials(store, machine, backends, pins) for k, machine in kinds.items()}
        for one in older.values():
            one.drop_replaced()
        write_code(store, pins.all_of(trials))
        with SweepDisplay() as progress:

            def told(event: SweepEvent) -> None:
                progress.show(event)
                if event.record is not None and event.record.status == "ok":
                    older[event.record.environment["fingerprint"]].drop(event.record.trial)

            def lost(line: str) -> None:
                print(f"warning: {line}", file=sys.stderr)

            return ClusterSweep(ray, nodes, store, time_limit_s, told, lost).run(trials)
    finally:
        ray.shutdown()
