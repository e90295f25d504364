"""The channel to an actor: a socket on which it comes, from any machine, once it has started."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

TOKEN_BYTES, PID_BYTES = 32, 8
HELLO_S = 5.0
"""For whoever has connected to say who it is."""


class ActorChannel:
    """To `PipedStages` a pipe. What is sent before the actor has come waits for it.

    Args:
        host: this machine's address, as the actor's machine knows it.
        within_s: for the actor to come; `recv` raises what `unplaced` makes when it has not.

    Raises:
        OSError: where the address is not this machine's.
    """

    def __init__(self, host: str, within_s: float, unplaced: Callable[[], Exception]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.pid = 0
        """Of the actor's process, once it has come."""
        self._connection: Connection[Any, Any] | None = None
        self._unsent: list[Any] = []
        self._gone, self._unplaced = False, unplaced
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(within_s, self._too_late)
        self._timer.daemon = True
        self._timer.start()

    def fileno(self) -> int:
        """See `StageChannel`: of the socket on which it comes, at first."""
        return (self._connection or self._listener).fileno()

    def send(self, message: Any) -> None:
        """See `StageChannel`."""
        if self._connection is None:
            self._unsent.append(message)
        else:
            self._connection.send(message)

    def recv(self) -> Any:
        """See `StageChannel`."""
        while self._connection is None:
            self._come(None)
        return self._connection.recv()

    def poll(self, timeout_s: float = 0.0) -> bool:
        """See `StageChannel`."""
        if self._connection is None:
            with contextlib.suppress(Exception):  # `recv` tells of it
                self._come(timeout_s)
        return self._gone or (self._connection is not None and self._connection.poll())

    def has_come(self) -> bool:
        """Whether a readable channel is more than an actor that knocks."""
        return self._connection is not None or self.poll()

    def give_up(self) -> None:
        """From any thread: the actor is no more. Whoever waits for it hears the end, behind what it
        has said."""
        with contextlib.suppress(OSError), self._lock:
            self._gone = True
            if self._connection is not None:
                _end(self._connection.fileno())
                return
        with contextlib.suppress(OSError):
            socket.create_connection(self.address, HELLO_S).close()

    def close(self) -> None:
        """See `StageChannel`."""
        self._timer.cancel()
        with self._lock:
            self._listener.close()
            if self._connection is not None:
                self._connection.close()

    def _too_late(self) -> None:
        self._error = self._unplaced()
        if self._connection is None:
            self.give_up()

    def _come(self, timeout_s: float | None) -> None:
        """Let the actor in, if it comes in so long, and nobody else. Raises `EOFError` for one that
        is no more and has not come."""
        if not wait([self._listener], 0.0 if self._gone else timeout_s):
            if self._gone:
                raise self._error or EOFError
            return
        with self._lock, contextlib.suppress(BlockingIOError):  # another thread has let it in
            peer, _ = self._listener.accept()
            with peer:
                self._let_in(peer)

    def _let_in(self, peer: socket.socket) -> None:
        peer.settimeout(HELLO_S)
        told = b""
        with contextlib.suppress(OSError):
            while more := peer.recv(TOKEN_BYTES + PID_BYTES - len(told)):
                told += more
        if self._connection is not None or not hmac.compare_digest(told[:TOKEN_BYTES], self.token):
            return
        self._timer.cancel()
        self.pid = int.from_bytes(told[TOKEN_BYTES:], "big")
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = Connection(peer.detach())
        with contextlib.suppress(OSError):  # `recv` tells of it
            if self._gone:
                _end(self._connection.fileno())
            for message in self._unsent:
                self._connection.send(message)
        self._unsent.clear()


def _end(number: int) -> None:
    """Of a socket by its descriptor: what has come can still be read, and then its end."""
    with socket.socket(fileno=os.dup(number)) as same:
        same.shutdown(socket.SHUT_RDWR)
