"""The connections of one client: open ahead, kept between requests, renewed when they go stale."""

from __future__ import annotations

import contextlib
import resource
import select
import time

from backends.http.connection import Connection
from backends.http.route import Route, tls_context

KEEP_ALIVE_NS = 3_000_000_000
"""Shorter than uvicorn's 5 s, or a request would now and then meet a connection just closed."""
SPARE_FILES = 256


class Pool:
    """Knows every connection, by file descriptor, and which of them nobody uses."""

    def __init__(self, route: Route, epoll: select.epoll) -> None:
        self._route, self._epoll = route, epoll
        self._tls = tls_context() if route.tls else None
        self.connections: dict[int, Connection] = {}
        self.opening: dict[Connection, None] = {}
        """On their way to be idle ones."""
        self._idle: dict[Connection, int | None] = {}
        """With the time of their last answer; the one used last is used next."""
        self._planned = 0

    def plan(self, count: int) -> None:
        """Begin to open connections until there are `count`, and hold as many from now on."""
        _allow_files(count + SPARE_FILES)
        self._planned = count
        self._open_ahead(count - len(self.connections))

    def take(self) -> Connection:
        """An idle connection, one on its way, or a new one. Raises `OSError`."""
        now = time.monotonic_ns()
        while self._idle:
            connection, used_ns = self._idle.popitem()
            fresh = used_ns is None or now - used_ns < KEEP_ALIVE_NS
            if fresh and connection.is_quiet():
                return connection
            self.discard(connection)
        if not self.opening:
            self._open_ahead(1)
        connection = next(iter(self.opening))
        del self.opening[connection]
        return connection

    def opened(self, connection: Connection) -> None:
        """It is ready, and no request waits for it."""
        del self.opening[connection]
        self._idle[connection] = None

    def give_back(self, connection: Connection) -> None:
        """Its answer is over and another request may follow."""
        self._idle[connection] = time.monotonic_ns()

    def discard(self, connection: Connection) -> None:
        """Close it. Where it had been open another takes its place."""
        del self.connections[connection.number]
        self.opening.pop(connection, None)
        self._idle.pop(connection, None)
        with contextlib.suppress(OSError):
            self._epoll.unregister(connection.number)
        connection.close()
        if connection.is_open and len(self.connections) < self._planned:
            with contextlib.suppress(OSError):
                self._open_ahead(1)

    def close(self) -> None:
        """Close every connection."""
        self._planned = 0
        for connection in list(self.connections.values()):
            self.discard(connection)

    def _open_ahead(self, count: int) -> None:
        for _ in range(count):
            connection = Connection(self._route, self._tls)
            self.connections[connection.number] = connection
            self.opening[connection] = None
            self._epoll.register(connection.number, connection.mask)


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files as far as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, soft), hard))
