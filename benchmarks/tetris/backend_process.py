"""Backends in processes of their own, and a load that is dealt out to several of them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from backends import open_backend
from backends.checkpoints import models
from harness.core.nouns import Generation, Load, Model, Request
from harness.measure.load_loop import run_load


class BackendProcess:
    """A process with a backend in it."""

    def __init__(self, *opened: Any) -> None:
        self._channel, other = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        # no daemon: a pipeline has processes of its own
        self._process = context.Process(target=_serve, args=(other, *opened))
        self._process.start()
        other.close()

    def ask(self, wanted: Sequence[Request], load: Load) -> None:
        """Begin a load."""
        self._channel.send((wanted, load))

    def answer(self) -> list[Generation]:
        """What it came to. Raises `EOFError` where the backend raised."""
        found: list[Generation] = self._channel.recv()
        return found

    def close(self) -> None:
        """End it."""
        self._channel.close()
        self._process.join()


def _serve(channel: Connection, name: str, model: Model, options: dict[str, Any]) -> None:
    backend = open_backend(name, models.resolve(model), model, options)
    try:
        while True:
            channel.send(run_load(backend, *channel.recv()))
    except EOFError:
        backend.close()


def answers(
    workers: Sequence[BackendProcess], wanted: Sequence[Request], load: Load
) -> list[Generation]:
    """Of all, each asked for its part of `wanted` by turns. Raises `RuntimeError` for one that is
    lost, told twice or no answer."""
    for place, worker in enumerate(workers):
        worker.ask(wanted[place :: len(workers)], load)
    found = [one for worker in workers for one in worker.answer()]
    if sorted(one.request_id for one in found) != sorted(one.id for one in wanted):
        raise RuntimeError(f"{len(wanted)} requests, and answers to others: {len(found)}")
    if failed := [one for one in found if one.finished not in ("stop", "length")]:
        raise RuntimeError(f"{failed[0].request_id}: {failed[0].error}")
    return found
