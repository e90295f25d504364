"""Sends requests and reads their streamed answers, all on the caller's thread.

No library, thread or queue stands between a socket and its stamp, because each of them made the
client late without anybody seeing it. What is left of lateness is measured: when each request left,
and by how much a stamp can at most be later than its bytes.
"""

from __future__ import annotations

import contextlib
import resource
import select
import time
from collections import deque
from dataclasses import dataclass, field

from backends.http.connection import Connection
from backends.http.reply import LARGEST_REFUSAL, Reply
from backends.http.route import Route, tls_context
from backends.http.stamps import Source
from backends.http.stream import Answer, EventReader, StreamError, shorten
from harness.core import Commit, FinishReason

NO_STREAM = ("application/json", "text/html")
"""Content types that cannot be read as events; a missing one is let through."""
CONNECT_TIMEOUT_S = 10.0
KEEP_ALIVE_NS = 3_000_000_000
"""Shorter than uvicorn's 5 s, or a request would now and then meet a connection just closed."""
LINGER_NS = 1_000_000_000
"""How long usage, [DONE] and the end of the body may take after the finish_reason. Only then is a
request over: the next one finds its connection free."""
MOST_AT_ONCE = 64
"""Sockets read in one `poll`: below a millisecond of work, so that no due request waits longer."""
STREAMS_TO_GATHER, GATHER_NS = 16, 500_000
"""With so many streams the sockets are looked at this seldom: a wake-up costs more than a read, and
the kernel has stamped what comes meanwhile."""
SPARE_FILES = 256


@dataclass(slots=True, eq=False)
class _Exchange:
    """A request under way."""

    request_id: str
    payload: bytes
    answer: Answer
    reader: EventReader = field(default_factory=EventReader)
    streams: bool | None = None
    """Whether the answer can be read as events; None: its head has not come yet."""
    refused: bytes = b""
    sent_ns: int | None = None
    """Until it has been told."""
    connection: Connection | None = None
    """None: over."""
    lingers: bool = False


class Client:
    """Many requests at once to one server. `poll` hands out what has come, `wait` sleeps for it."""

    def __init__(self, route: Route, timeout_s: float) -> None:
        self._route = route
        self._timeout_ns = round(timeout_s * 1e9)
        self._late = f"no complete answer within {timeout_s:g} s"
        self._tls = tls_context() if route.tls else None
        self._stamps = Source()
        self._is_exact = self._stamps.works and self._tls is None
        """Whether a late read still learns when the bytes came."""
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._opening: list[Connection] = []
        """On their way to be idle ones."""
        self._idle: list[tuple[Connection, int | None]] = []
        """With the time of their last answer; the one used last is used next."""
        self._busy: dict[int, _Exchange] = {}
        self._planned = 0
        self._deadlines: deque[tuple[int, _Exchange]] = deque()
        self._lingering: deque[tuple[int, _Exchange]] = deque()
        self._ready: list[tuple[int, int]] = []
        self._clear_ns = time.monotonic_ns()
        """Nothing that had come by then is still unread."""
        self._looked_ns = 0
        self._commits: list[Commit] = []
        self.texts: dict[str, str] = {}
        """The answers since `cancel`, by request id."""

    def watch(self, number: int) -> None:
        """Have `wait` end for this file descriptor too."""
        self._epoll.register(number, select.EPOLLIN)

    def open(self, count: int) -> None:
        """Have `count` connections ready, or as many as the server takes within ten seconds."""
        _allow_files(count + SPARE_FILES)
        self._planned = count
        self._open_ahead(count - len(self._connections))
        give_up = time.monotonic() + CONNECT_TIMEOUT_S
        while self._opening and time.monotonic() < give_up:
            for number, mask in self._epoll.poll(0.1):
                self._handle(number, mask)

    def send(self, request_id: str, payload: bytes, answer: Answer) -> None:
        """Send a request made by `Route.request` at once, or as soon as a connection is there."""
        exchange = _Exchange(request_id, payload, answer)
        connection = self._free()
        exchange.connection = connection
        self._busy[connection.number] = exchange
        self._deadlines.append((time.monotonic_ns() + self._timeout_ns, exchange))
        if connection.is_open:
            try:
                self._ask(connection, exchange)
            except OSError as error:
                self._end(exchange, _line(error))

    def poll(self) -> list[Commit]:
        """What has come since the last call; never waits."""
        looked_ns = time.monotonic_ns()
        if not self._ready and looked_ns < self._gathers_until_ns():
            return []
        self._looked_ns = looked_ns
        ready, self._ready = self._ready or self._epoll.poll(0, MOST_AT_ONCE), []
        for number, mask in ready:
            self._handle(number, mask)
        if len(ready) < MOST_AT_ONCE:
            self._clear_ns = looked_ns
        self._give_up(looked_ns)
        found, self._commits = self._commits, []
        return found

    def wait(self, timeout_s: float) -> None:
        """Sleep until `poll` has something to do, at most `timeout_s`."""
        if self._commits or self._ready:
            return
        rest_ns = self._gathers_until_ns() - time.monotonic_ns()
        if rest_ns > 0:
            time.sleep(min(rest_ns * 1e-9, timeout_s))
            return
        # select, because epoll's own time-out is in whole milliseconds
        select.select([self._epoll], [], [], timeout_s)
        self._clear_ns = time.monotonic_ns()
        self._ready = self._epoll.poll(0, MOST_AT_ONCE)

    def _gathers_until_ns(self) -> int:
        """Before then nothing is read, so that each look finds more."""
        if not self._is_exact or len(self._busy) < STREAMS_TO_GATHER:
            return 0
        return self._looked_ns + GATHER_NS

    def cancel(self) -> None:
        """Drop every request under way, with its connection, and what has come."""
        for number, exchange in self._busy.items():
            exchange.connection = None
            self._discard(self._connections[number])
        self._busy.clear()
        self._deadlines.clear()
        self._lingering.clear()
        self._ready, self._commits = [], []
        self.texts.clear()

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self._connections.values()):
            self._discard(connection)
        self._epoll.close()
        self._stamps.close()

    def _free(self) -> Connection:
        """An idle connection, one on its way, or a new one."""
        now = time.monotonic_ns()
        while self._idle:
            connection, used_ns = self._idle.pop()
            fresh = used_ns is None or now - used_ns < KEEP_ALIVE_NS
            if fresh and connection.is_quiet():
                return connection
            self._discard(connection)
            self._open_ahead(1)
        if not self._opening:
            self._open_ahead(1)
        return self._opening.pop(0)

    def _open_ahead(self, count: int) -> None:
        for _ in range(count):
            connection = Connection(self._route, self._tls)
            self._connections[connection.number] = connection
            self._opening.append(connection)
            self._epoll.register(connection.number, connection.mask)

    def _ask(self, connection: Connection, exchange: _Exchange) -> None:
        before = connection.mask
        exchange.sent_ns = connection.ask(exchange.payload)
        exchange.payload = b""
        if connection.mask != before:
            self._epoll.modify(connection.number, connection.mask)

    def _handle(self, number: int, mask: int) -> None:
        connection, exchange = self._connections.get(number), self._busy.get(number)
        if connection is None:
            return
        before = connection.mask
        try:
            if not connection.is_open:
                self._advance(connection, exchange)
            else:
                if mask & select.EPOLLOUT and connection.is_sending:
                    connection.go_on()
                if mask & ~select.EPOLLOUT:
                    self._receive(connection, exchange)
        except (OSError, StreamError) as error:
            if exchange is None:
                self._discard(connection)
            else:
                if isinstance(error, StreamError):
                    exchange.answer.finished = None
                self._end(exchange, _line(error))
        if connection.mask != before and number in self._connections:
            self._epoll.modify(number, connection.mask)

    def _advance(self, connection: Connection, exchange: _Exchange | None) -> None:
        connection.advance()
        if not connection.is_open:
            return
        if exchange is not None:
            self._ask(connection, exchange)
        else:
            self._opening.remove(connection)
            self._idle.append((connection, None))

    def _receive(self, connection: Connection, exchange: _Exchange | None) -> None:
        clear_ns = max(self._clear_ns, connection.read_ns)
        found = connection.receive(time.time_ns() - time.monotonic_ns())
        if found is None:
            return
        connection.read_ns = now = time.monotonic_ns()
        data, stamp_ns = found
        if exchange is None:
            raise ConnectionError("closed while idle")
        reply = connection.reply
        if data:
            reply.feed(data)
        else:
            reply.end()
        if exchange.streams is None and reply.has_head:
            exchange.streams = reply.status == 200 and reply.content_type not in NO_STREAM
        arrived_ns = now if stamp_ns is None else min(stamp_ns, now)
        if exchange.streams:
            doubt_ns = now - min(clear_ns, arrived_ns)
            self._read(exchange, reply, arrived_ns, doubt_ns, stamp_ns is not None)
        else:
            exchange.refused = (exchange.refused + reply.take())[:LARGEST_REFUSAL]
        if reply.complete:
            error = None if exchange.streams else reply.refusal(exchange.refused)
            self._end(exchange, error, arrived_ns)

    def _read(
        self, exchange: _Exchange, reply: Reply, arrived_ns: int, doubt_ns: int, is_exact: bool
    ) -> None:
        """Book the events that a read completed, each as one commit. Bytes that came apart share
        the stamp of the last of them, which is then `doubt_ns` late at most."""
        reader, answer = exchange.reader, exchange.answer
        events = reader.feed(reply.take())
        if reply.complete:
            events += reader.finish()
        is_exact = is_exact and len(events) <= 1 and not reader.is_inside_event
        for event in events:
            if answer.done:
                break
            if tokens := answer.read(event):
                sent_ns, exchange.sent_ns = exchange.sent_ns, None
                commit = Commit(
                    exchange.request_id,
                    tokens,
                    arrived_ns=arrived_ns,
                    stamp_lag_ns=0 if is_exact else doubt_ns,
                    sent_ns=sent_ns,
                )
                self._commits.append(commit)
        if answer.finished is not None and not exchange.lingers:
            exchange.lingers = True
            self._lingering.append((arrived_ns + LINGER_NS, exchange))

    def _give_up(self, now: int) -> None:
        """End what took too long."""
        while self._lingering and self._lingering[0][0] <= now:
            self._end(self._lingering.popleft()[1], None)
        while self._deadlines and self._deadlines[0][0] <= now:
            self._end(self._deadlines.popleft()[1], self._late)

    def _end(self, exchange: _Exchange, error: str | None, arrived_ns: int | None = None) -> None:
        """Hand out the last commit, once; the connection is kept or closed."""
        connection, answer = exchange.connection, exchange.answer
        if connection is None:
            return
        exchange.connection = None
        del self._busy[connection.number]
        if connection.reply.keeps_alive and not connection.is_sending:
            self._idle.append((connection, time.monotonic_ns()))
        else:
            self._discard(connection)
            if len(self._connections) < self._planned:
                self._open_ahead(1)
        self.texts[exchange.request_id] = "".join(answer.texts)
        finished: FinishReason | None = answer.finished
        if finished is None:
            line = error or "the stream ended without a finish_reason"
            error, finished = f"{line} (after {answer.tokens} tokens)", "error"
        commit = Commit(
            exchange.request_id,
            (),
            finished,
            answer.telemetry(),
            error if finished == "error" else None,
            arrived_ns=time.monotonic_ns() if arrived_ns is None else arrived_ns,
            sent_ns=exchange.sent_ns,
        )
        self._commits.append(commit)

    def _discard(self, connection: Connection) -> None:
        del self._connections[connection.number]
        if connection in self._opening:
            self._opening.remove(connection)
        self._idle = [pair for pair in self._idle if pair[0] is not connection]
        with contextlib.suppress(OSError):
            self._epoll.unregister(connection.number)
        connection.close()


def _line(error: OSError | StreamError) -> str:
    """What went wrong, with the kernel's or TLS's name for it where it is theirs."""
    if isinstance(error, OSError) and error.errno is not None:
        return f"{type(error).__name__}: {shorten(error)}"
    return str(error)


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files as far as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, soft), hard))
