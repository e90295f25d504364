"""Clients in processes of their own: for more streams than one process can follow.

Requests are dealt out in turn over pipes; what arrives comes back in batches. Stamps are made in
the processes, on the one monotonic clock of the machine, so the pipes cost no exactness.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import pickle
import select
import socket
import struct
import subprocess
from multiprocessing.connection import Connection as Channel
from typing import Any

from backends.http.client import CONNECT_TIMEOUT_S, Client
from backends.http.route import Route
from backends.http.stream import StreamedAnswer
from harness.core.nouns import Commit
from harness.core.processes.piped import start_child

PATIENCE_S = CONNECT_TIMEOUT_S + 20.0
"""For a process to start and to open its connections."""
IDLE_S = 0.1
RETRY_S = 0.001


class ClientProcesses:
    """Like `Client`, with `count` of them behind it. Raises `RuntimeError` when one has died."""

    def __init__(self, route: Route, timeout_s: float, count: int) -> None:
        self.count = count
        self.texts: dict[str, str] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[Channel] = []
        for _ in range(count):
            process, ours = start_child("backends.http.workers")
            self._processes.append(process)
            ours.send((route, timeout_s))
            self._channels.append(ours)
        self._turn = itertools.cycle(self._channels)

    def is_alive(self) -> bool:
        """Whether all processes run."""
        return all(process.poll() is None for process in self._processes)

    def open(self, ready: int, most: int | None = None) -> None:
        """As `Client.open`, shared out; each has one ready at least."""
        self._turn = itertools.cycle(self._channels)
        for index, channel in enumerate(self._channels):
            counts = [len(range(index, n, self.count)) for n in (ready, most or ready)]
            _tell(channel, "open", [max(count, 1) for count in counts])
        self._wait_for("open")

    def send(self, request_id: str, payload: bytes, answer: StreamedAnswer) -> None:
        """Give the request to the next process, which sends it at once."""
        _tell(next(self._turn), "send", (request_id, payload, answer))

    def poll(self) -> list[Commit]:
        """What has come since the last call; never waits."""
        commits: list[Commit] = []
        for channel in self._channels:
            while channel.poll():
                self._take(channel, commits)
        return commits

    def wait(self, timeout_s: float) -> None:
        """Sleep until something has come, at most `timeout_s`."""
        select.select(self._channels, [], [], timeout_s)

    def cancel(self) -> None:
        """Drop every request under way, and what has come."""
        for channel in self._channels:
            _tell(channel, "cancel", None)
        self._wait_for("cancel")
        self.texts.clear()

    def close(self) -> None:
        """End the processes."""
        for channel in self._channels:
            channel.close()
        for process in self._processes:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _take(self, channel: Channel, commits: list[Commit]) -> str | None:
        try:
            done, rows, texts = channel.recv()
        except (EOFError, OSError):
            raise RuntimeError("a client process has died") from None
        commits.extend(Commit(*row) for row in rows)
        self.texts |= texts
        return str(done) if done is not None else None

    def _wait_for(self, word: str) -> None:
        """Until each process has said that it is done; what came before is dropped."""
        for channel in self._channels:
            while True:
                if not channel.poll(PATIENCE_S):
                    raise RuntimeError(f"a client process does not answer ({word})")
                if self._take(channel, []) == word:
                    break


def _tell(channel: Channel, word: str, content: Any) -> None:
    try:
        channel.send((word, content))
    except OSError:
        raise RuntimeError("a client process has died") from None


def main(number: int) -> None:
    """A client process: does what the channel, an inherited file descriptor, tells it to."""
    channel = Channel(number)
    with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):
        route, timeout_s = channel.recv()
        client, outbox = Client(route, timeout_s), Outbox(number)
        gc.disable()
        client.watch(number)
        while True:
            client.wait(RETRY_S if outbox.is_full else IDLE_S)
            while channel.poll():
                if (done := _obey(client, *channel.recv())) is not None:
                    outbox.put((done, [], {}))
            if commits := client.poll():
                texts, client.texts = client.texts, {}
                outbox.put((None, [_row(commit) for commit in commits], texts))
            outbox.flush()


class Outbox:
    """What a client process tells its parent, written without ever waiting: a parent that waits
    for this process to read would wait for ever. Its bytes are those of `Connection.send`."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=os.dup(number))
        self._unsent = bytearray()

    @property
    def is_full(self) -> bool:
        """Whether the parent has not taken all yet."""
        return bool(self._unsent)

    def put(self, message: Any) -> None:
        """Add a message."""
        content = pickle.dumps(message)
        self._unsent += struct.pack("!i", len(content)) + content

    def flush(self) -> None:
        """Write as much as the pipe takes. Raises `ConnectionError` when the parent is gone."""
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent, socket.MSG_DONTWAIT)]


def _obey(client: Client, word: str, content: Any) -> str | None:
    """Do it; returns the word when the parent waits for it."""
    if word == "send":
        client.send(*content)
        return None
    if word == "open":
        gc.collect()
        client.open(*content)
        gc.freeze()
    else:
        client.cancel()
    return word


def _row(c: Commit) -> tuple[Any, ...]:
    """A tuple crosses a pipe at a fraction of a dataclass's cost."""
    return (
        *(c.request_id, c.token_ids, c.finished, dict(c.telemetry), c.error),
        *(c.arrived_ns, c.stamp_lag_ns, c.sent_ns),
    )
