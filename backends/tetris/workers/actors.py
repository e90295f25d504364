"""Stages as Ray actors: Ray says where one runs, with which share of which device, and when it is
dead. Batches do not go through Ray, whose calls take a millisecond and more, but over a socket
between this process and the actor's."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backends.tetris.live.devices import start_ray
from backends.tetris.workers.actor_channel import ActorChannel
from backends.tetris.workers.options import CPU, GPU, MEMORY
from backends.tetris.workers.places import StageChannel, StageWorker

PLACED_WITHIN_S = 120.0
"""For the first actors to start; Ray starts a process in seconds where there is room for it."""
SOURCES = ("backends", "harness/core")


class ActorPlace:
    """An actor for each stage.

    Args:
        backend: whose stages they are, for messages.
        module: its `main` is given the channel's file descriptor, as of a process of this machine.
        address: of a cluster (HOST:PORT), on each of whose nodes this version is installed; None: a
            Ray of this machine.
        resources: that Ray reserves for each, by Ray's names.
        needed: files and folders that have to be on each node.

    Raises:
        UserError: where Ray is not installed or nobody answers.
    """

    def __init__(
        self,
        backend: str,
        module: str,
        address: str | None,
        resources: Mapping[str, float],
        needed: Sequence[Path],
    ) -> None:
        import ray

        self._prefix, self._module = f"backend '{backend}': option 'ray'", module
        self._ray, self._is_ours = ray, not ray.is_initialized()
        if self._is_ours:
            start_ray(address, self._prefix, cpus=resources.get(CPU))
        self._host = ray.util.get_node_ip_address()
        self._needed = [str(path) for path in needed]
        by_name = (CPU, GPU, MEMORY)
        others = {name: what for name, what in resources.items() if name not in by_name}
        self._asked = dict(resources)
        self._class = _actor_class(ray).options(
            num_cpus=resources.get(CPU, 0),
            num_gpus=resources.get(GPU, 0),
            memory=resources.get(MEMORY),
            resources=others or None,
            scheduling_strategy="SPREAD",
        )

    def start(self, index: int) -> tuple[StageWorker, StageChannel]:
        """See `StagePlace`."""
        channel = ActorChannel(self._host, PLACED_WITHIN_S, self._unplaced(index))
        actor = self._class.remote()
        needs = sources_digest(), self._needed, self._prefix
        told = (channel.address, channel.token, self._module, *needs)
        return _StageActor(self._ray, actor, actor.run.remote(*told), channel), channel

    def has_come(self, channel: StageChannel) -> bool:
        """See `StagePlace`."""
        assert isinstance(channel, ActorChannel)
        return channel.has_come()

    def close(self) -> None:
        """End Ray, where it was started for this."""
        if self._is_ours:
            self._ray.shutdown()

    def _unplaced(self, index: int) -> str:
        asked = ", ".join(f"{name} {what:g}" for name, what in self._asked.items()) or "nothing"
        return (
            f"{self._prefix}: stage {index} has no actor within {PLACED_WITHIN_S:g} s; each asks "
            f"for {asked} (option 'ray_resources'), and the cluster has {_in_all(self._ray)}"
        )


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
        return f"is gone ({' '.join(str(error).split()):.200})"


@functools.cache
def sources_digest() -> str:
    """sha256 of the sources that a stage may run: those of two versions differ."""
    root = Path(__file__).parents[3]
    state = hashlib.sha256()
    for path in sorted(path for name in SOURCES for path in (root / name).rglob("*.py")):
        state.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return state.hexdigest()


def refusal(digest: str, needed: Sequence[str], node: str) -> str | None:
    """What a node lacks for a stage, in a line."""
    if sources_digest() != digest:
        return f"node {node} has another version of decodebench; expected this one on every node"
    absent = next((path for path in needed if not Path(path).exists()), None)
    if absent is not None:
        return f"node {node} has no '{absent}'; expected it under the same path on every node"
    return None


def _in_all(ray: Any) -> str:
    with contextlib.suppress(Exception):
        found = ray.cluster_resources()
        return ", ".join(f"{name} {found[name]:g}" for name in sorted(found) if "node:" not in name)
    return "no more an answer"


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
            needed: list[str],
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
                actors = importlib.import_module("backends.tetris.workers.actors")
                told = actors.refusal(digest, needed, node)
            except ImportError:
                told = f"node {node} has no decodebench of this version"
            if told is not None:
                with Connection(peer.detach()) as channel:
                    channel.send(f"{prefix}: {told}")
                return
            importlib.import_module(module).main(peer.detach())

    return ray.remote(max_restarts=0, max_task_retries=0)(StageActor)
