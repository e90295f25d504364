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
        self._idle: dict[Connection, int] = {}
        """With the time of their last answer."""
        self._unused: dict[Connection, None] = {}
        """Idle ones that have not answered yet, the oldest first."""
        self._ready, self._most = 0, 0

    def plan(self, ready: int, most: int) -> None:
        """Begin to open connections until there are `ready`, and hold so many beside those in use
        from now on, as long as there are not `most` of both."""
        _allow_files(most + SPARE_FILES)
        now = time.monotonic_ns()
        for connection in [c for c, used_ns in self._idle.items() if _is_stale(used_ns, now)]:
            self.discard(connection)
        self._ready, self._most = ready, most
        self._open_ahead(ready - len(self.connections))

    def take(self, unused: bool = False) -> Connection:
        """An idle connection, one on its way, or a new one; only one of the last two where it has
        to be `unused`. Raises `OSError`.

        Those that have answered come first, the last one before the others, which may rest until
        they are stale; then the one that has been open for longest. A server with a thread for each
        connection has one for these, and lets a later connection wait until one of them is closed.
        """
        while not unused and (connection := self._rested()) is not None:
            if connection.is_quiet():
                return connection
            self.discard(connection)
        if not self.opening:
            self._open_ahead(1)
        connection = next(iter(self.opening))
        del self.opening[connection]
        return connection

    def _rested(self) -> Connection | None:
        """The idle connection to use next, which is then idle no longer."""
        now = time.monotonic_ns()
        while self._idle:
            connection, used_ns = self._idle.popitem()
            if not _is_stale(used_ns, now):
                return connection
            self.discard(connection)
        oldest = next(iter(self._unused), None)
        if oldest is not None:
            del self._unused[oldest]
        return oldest

    def opened(self, connection: Connection) -> None:
        """It is ready, and no request waits for it."""
        del self.opening[connection]
        self._unused[connection] = None

    def give_back(self, connection: Connection) -> None:
        """Its answer is over and another request may follow."""
        self._idle[connection] = time.monotonic_ns()

    def discard(self, connection: Connection) -> None:
        """Close it."""
        del self.connections[connection.number]
        self.opening.pop(connection, None)
        self._idle.pop(connection, None)
        self._unused.pop(connection, None)
        with contextlib.suppress(OSError):
            self._epoll.unregister(connection.number)
        connection.close()

    def renew(self) -> None:
        """Open a connection for one that a request took or an answer has used up, where too few lie
        ready: the next request's, not the one that has just been sent. What the server closed
        unused is not replaced at once: a server that wants fewer would be stormed."""
        ready = len(self._idle) + len(self._unused) + len(self.opening)
        if ready < self._ready and len(self.connections) < self._most:
            with contextlib.suppress(OSError):
                self._open_ahead(1)

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self.connections.values()):
            self.discard(connection)

    def _open_ahead(self, count: int) -> None:
        for _ in range(count):
            connection = Connection(self._route, self._tls)
            self.connections[connection.number] = connection
            self.opening[connection] = None
            self._epoll.register(connection.number, connection.mask)


def _is_stale(used_ns: int, now: int) -> bool:
    """Whether the server may have closed it by now; an unused one waits for its first request."""
    return now - used_ns >= KEEP_ALIVE_NS


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files as far as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, soft), hard))
