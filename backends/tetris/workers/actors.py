"""Stages as Ray actors: Ray says where one runs, with which share of which device, and when it is
dead. Batches do not go through Ray, whose calls take a millisecond and more, but over a socket
between this process and the actor's."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from backends.tetris.live.devices import start_ray
from backends.tetris.workers.actor_channel import ActorChannel
from backends.tetris.workers.node_files import sources_digest
from backends.tetris.workers.options import CPU, GPU, MEMORY
from backends.tetris.workers.places import StageChannel, StageWorker
from harness.core.errors import UserError

PLACED_WITHIN_S = 120.0
"""For an actor to start; Ray starts a process in seconds where there is room for it."""
_places = 0
"""That use a Ray which was started for them."""


class ActorPlace:
    """An actor for each stage.

    Args:
        backend: whose stages they are, for messages.
        module: its `main` is given the channel's file descriptor, as of a process of this machine.
        address: of a cluster (HOST:PORT), on each of whose nodes this version is installed; None: a
            Ray of this machine.
        resources: that Ray reserves for each, by Ray's names.
        marks: files and folders that have to be on each node (`node_files.marks_of`).

    Raises:
        UserError: where Ray is not installed or nobody answers.
    """

    def __init__(
        self,
        backend: str,
        module: str,
        address: str | None,
        resources: Mapping[str, float],
        marks: Mapping[str, str],
    ) -> None:
        import ray

        global _places
        self._prefix, self._module = f"backend '{backend}': option 'ray'", module
        self._ray, self._marks, self._asked = ray, dict(marks), dict(resources)
        self._is_ours = _places > 0 or not ray.is_initialized()
        if not ray.is_initialized():
            start_ray(address, self._prefix, cpus=resources.get(CPU))
        elif address not in (None, ray.get_runtime_context().gcs_address):
            raise UserError(f"{self._prefix}: {address}: this process is connected to another Ray")
        _places += self._is_ours
        self._host = ray.util.get_node_ip_address()
        self._class = _actor_class(ray)

    def start(self, name: str) -> tuple[StageWorker, StageChannel]:
        """See `StagePlace`. Raises `UserError` for resources that Ray refuses, and where this
        machine's address in the cluster is none that it can be reached at."""
        try:
            actor = self._class.options(**_reserving(self._asked)).remote()
        except (ValueError, TypeError) as error:
            told = f"{self._prefix}: option 'ray_resources': {' '.join(str(error).split())}"
            raise UserError(told) from None
        try:
            channel = ActorChannel(self._host, PLACED_WITHIN_S, lambda: self._unplaced(name))
        except OSError as error:
            told = f"{self._prefix}: actors cannot reach this machine at {self._host}: {error}"
            raise UserError(told) from None
        needs = sources_digest(), self._marks, self._prefix
        running = actor.run.remote(channel.address, channel.token, self._module, *needs)
        return _StageActor(self._ray, actor, running, channel), channel

    def has_come(self, channel: StageChannel) -> bool:
        """See `StagePlace`."""
        assert isinstance(channel, ActorChannel)
        return channel.has_come()

    def close(self) -> None:
        """End Ray, where it was started for this and nobody else uses it."""
        global _places
        if not self._is_ours:
            return
        self._is_ours = False
        _places -= 1
        if not _places:
            self._ray.shutdown()

    def _unplaced(self, name: str) -> Exception:
        """Bad input is what no node could ever hold; else others are in its place."""
        asked = ", ".join(f"{name} {what:g}" for name, what in self._asked.items()) or "nothing"
        told = (
            f"{self._prefix}: {name} has no actor within {PLACED_WITHIN_S:g} s; each asks "
            f"for {asked} (option 'ray_resources')"
        )
        with contextlib.suppress(Exception):
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            if not any(_holds(node, self._asked) for node in nodes):
                largest = "; ".join(sorted({_words(node) for node in nodes}))
                return UserError(f"{told}, and no node has that: {largest}")
        return RuntimeError(f"{told}, which others hold")


def _reserving(resources: Mapping[str, float]) -> dict[str, Any]:
    by_name = (CPU, GPU, MEMORY)
    return {
        "num_cpus": resources.get(CPU, 0),
        "num_gpus": resources.get(GPU, 0),
        "memory": resources.get(MEMORY),
        "resources": {k: what for k, what in resources.items() if k not in by_name} or None,
        "scheduling_strategy": "SPREAD",
    }


def _holds(node: Mapping[str, float], asked: Mapping[str, float]) -> bool:
    return all(node.get(name, 0) >= amount for name, amount in asked.items())


def _words(node: Mapping[str, float]) -> str:
    hidden = ("node:", "object_store")
    return ", ".join(f"{k} {node[k]:g}" for k in sorted(node) if not k.startswith(hidden))


class _StageActor:
    """See `StageWorker`."""

    def __init__(self, ray: Any, actor: Any, running: Any, channel: ActorChannel) -> None:
        self._ray, self._actor, self._channel = ray, actor, channel
        self._running = running.future()
        # also of one that dies before it has come, or with its whole machine
        self._running.add_done_callback(lambda _: channel.give_up())

    @property
    def pid(self) -> int:
        return self._channel.pid

    def kill(self) -> None:
        self._ray.kill(self._actor)
        self._channel.give_up()

    def ended(self, timeout_s: float) -> str | None:
        try:
            error = self._running.exception(timeout_s)
        except TimeoutError:
            return None
        self._ray.kill(self._actor)  # a process that has done its work rests there
        if error is None:
            return "closed its channel"
        cause = getattr(error, "cause", None)
        told = f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else str(error)
        return f"is gone ({' '.join(told.split()):.200})"


def _actor_class(ray: Any) -> Any:
    """The actor. It is defined here so that Ray sends it by value: a node without this package can
    say so."""

    class StageActor:
        def run(
            self,
            address: tuple[str, int],
            token: bytes,
            module: str,
            digest: str,
            marks: dict[str, str],
            prefix: str,
        ) -> None:
            import importlib
            import os
            import socket
            from multiprocessing.connection import Connection

            peer = socket.create_connection(address, 60)
            peer.settimeout(None)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(token + os.getpid().to_bytes(8, "big"))
            node = peer.getsockname()[0]
            try:
                files = importlib.import_module("backends.tetris.workers.node_files")
                told = files.refusal(digest, marks, node)
            except ImportError:
                told = f"node {node} has no decodebench of this version"
            if told is not None:
                with Connection(peer.detach()) as channel:
                    channel.send(f"{prefix}: {told}")
                return
            importlib.import_module(module).main(peer.detach())

    return ray.remote(max_restarts=0, max_task_retries=0)(StageActor)
