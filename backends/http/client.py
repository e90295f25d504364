"""Sends requests and reads their streamed answers, all on the caller's thread.

No library, thread or queue stands between a socket and its stamp, because each of them made the
client late without anybody seeing it. What is left of lateness is measured: when each request left,
and by how much a stamp can at most be later than its bytes.
"""

from __future__ import annotations

import select
import time
from collections import deque

from backends.http.connection import Connection
from backends.http.exchange import Exchange
from backends.http.pool import Pool
from backends.http.reply import LARGEST_REFUSAL, Reply
from backends.http.route import Route
from backends.http.stamps import StampSource, WallClock
from backends.http.stream import StreamedAnswer, StreamError, shorten
from harness.core.nouns import Commit, FinishReason

NO_STREAM = ("application/json", "text/html")
"""Content types that cannot be read as events; a missing one is let through."""
CONNECT_TIMEOUT_S = 10.0
LINGER_NS = 1_000_000_000
"""How long usage, [DONE] and the end of the body may take after the finish_reason. Only then is a
request over: the next one finds its connection free."""
SLICE_S = 0.002
MOST_AT_ONCE = 64
"""Sockets read in one `poll`: below a millisecond of work, so that no due request waits longer."""
STREAMS_TO_GATHER, GATHER_NS = 16, 500_000
"""With so many streams the sockets are looked at this seldom: a wake-up costs more than a read, and
the kernel has stamped what comes meanwhile."""


class Client:
    """Many requests at once to one server. `poll` hands out what has come, `wait` sleeps for it."""

    def __init__(self, route: Route, timeout_s: float) -> None:
        self._timeout_ns = round(timeout_s * 1e9)
        self._late = f"no complete answer within {timeout_s:g} s"
        self._stamps = StampSource()
        self._is_exact = self._stamps.works and not route.tls
        """Whether a late read still learns when the bytes came."""
        self._clock = WallClock()
        self._epoll = select.epoll()
        self._pool = Pool(route, self._epoll)
        self._busy: dict[int, Exchange] = {}
        self._deadlines: deque[tuple[int, Exchange]] = deque()
        self._lingering: deque[tuple[int, Exchange]] = deque()
        self._clear_ns = time.monotonic_ns()
        """Nothing that had come by then is still unread."""
        self._looked_ns = 0
        self._sent = 0
        """Requests for which no look has made another connection ready."""
        self._commits: list[Commit] = []
        self.texts: dict[str, str] = {}
        """The answers since `cancel`, by request id."""

    def watch(self, number: int) -> None:
        """Have `wait` end for this file descriptor too."""
        self._epoll.register(number, select.EPOLLIN)

    def open(self, ready: int, most: int | None = None) -> None:
        """Have connections `ready`, or as many as the server takes within ten seconds, and so many
        beside those in use as long as there are not `most` in all (None: as many as now)."""
        self._pool.plan(ready, ready if most is None else most)
        give_up = time.monotonic() + CONNECT_TIMEOUT_S
        while self._pool.opening and time.monotonic() < give_up:
            for number, mask in self._epoll.poll(0.1):
                self._handle(number, mask)

    def send(self, request_id: str, payload: bytes, answer: StreamedAnswer) -> None:
        """Send a request made by `Route.request` at once, or as soon as a connection is there."""
        exchange = Exchange(request_id, payload, answer)
        self._deadlines.append((time.monotonic_ns() + self._timeout_ns, exchange))
        self._begin(exchange)
        self._sent += 1

    def poll(self) -> list[Commit]:
        """What has come since the last call; never waits."""
        looked_ns = time.monotonic_ns()
        if looked_ns >= self._gathers_until_ns():
            self._looked_ns = looked_ns
            ready = self._epoll.poll(0, MOST_AT_ONCE)
            self._clock.read()
            for number, mask in ready:
                self._handle(number, mask)
            if len(ready) < MOST_AT_ONCE:
                self._clear_ns = looked_ns
            self._give_up(looked_ns)
            if self._sent:  # one at each look, so that no request of a burst waits for them
                self._sent -= 1
                self._pool.renew()
        found, self._commits = self._commits, []
        return found

    def wait(self, timeout_s: float) -> None:
        """Sleep until `poll` has something to do, at most `timeout_s`."""
        rest_ns = self._gathers_until_ns() - time.monotonic_ns()
        if self._commits:
            return
        if rest_ns > 0:
            time.sleep(min(rest_ns * 1e-9, timeout_s))
        else:
            self._sleep(time.monotonic() + timeout_s)

    def _sleep(self, until_s: float) -> None:
        """In slices, because how late a wake-up is cannot be seen afterwards: what then has come
        can be no older than the slice before."""
        seen_ns = time.monotonic_ns()
        woken = bool(self._epoll.poll(0, 1))
        while not woken:
            self._clear_ns, seen_ns = seen_ns, time.monotonic_ns()
            rest_s = until_s - seen_ns * 1e-9
            if rest_s <= 0:
                return
            # select, because epoll's own time-out is in whole milliseconds
            woken = any(select.select([self._epoll], [], [], min(rest_s, SLICE_S)))

    def _gathers_until_ns(self) -> int:
        """Before then nothing is read, so that each look finds more."""
        if not self._is_exact or len(self._busy) < STREAMS_TO_GATHER:
            return 0
        return self._looked_ns + GATHER_NS

    def cancel(self) -> None:
        """Drop every request under way, with its connection, and what has come."""
        for number in self._busy:
            self._pool.discard(self._pool.connections[number])
        self._busy.clear()
        self._deadlines.clear()
        self._lingering.clear()
        self._commits, self._sent = [], 0
        self.texts.clear()

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()
        self._epoll.close()
        self._stamps.close()

    def _begin(self, exchange: Exchange) -> None:
        try:
            exchange.connection = connection = self._pool.take(exchange.again)
            self._busy[connection.number] = exchange
            if connection.is_open:
                self._ask(connection, exchange)
        except OSError as error:
            self._end(exchange, _line(error))

    def _ask(self, connection: Connection, exchange: Exchange) -> None:
        before = connection.mask
        sent_ns = connection.ask(exchange.payload)
        exchange.sent_ns = exchange.sent_ns or sent_ns
        if connection.mask != before:
            self._epoll.modify(connection.number, connection.mask)

    def _handle(self, number: int, mask: int) -> None:
        connection, exchange = self._pool.connections.get(number), self._busy.get(number)
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
        except Exception as error:  # whatever it is, the request must not be lost
            if exchange is None:
                self._pool.discard(connection)
            elif exchange.may_be_sent_again(error):
                exchange.again = True
                del self._busy[number]
                self._pool.discard(connection)
                self._begin(exchange)
            else:
                if not isinstance(error, OSError):
                    exchange.answer.finished = None
                self._end(exchange, _line(error))
        if connection.mask != before and self._pool.connections.get(number) is connection:
            self._epoll.modify(number, connection.mask)

    def _advance(self, connection: Connection, exchange: Exchange | None) -> None:
        connection.advance()
        if not connection.is_open:
            return
        if exchange is not None:
            self._ask(connection, exchange)
        else:
            self._pool.opened(connection)

    def _receive(self, connection: Connection, exchange: Exchange | None) -> None:
        clear_ns = max(self._clear_ns, connection.read_ns)
        found = connection.receive(self._clock.wall_ahead_ns)
        if found is None:
            return
        connection.read_ns = now = time.monotonic_ns()
        data, stamp_ns = found
        if self._clock.has_stepped:
            stamp_ns = None
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
        self, exchange: Exchange, reply: Reply, arrived_ns: int, doubt_ns: int, is_exact: bool
    ) -> None:
        """Book the events that a read completed, each as one commit. Bytes that came apart share
        the stamp of the last of them, which is then `doubt_ns` late at most."""
        reader, answer = exchange.reader, exchange.answer
        events = reader.feed(reply.take())
        if reply.complete:
            events += reader.finish()
        is_exact = is_exact and len(events) <= 1 and not (reader.has_more or reply.complete)
        for event in events:
            if answer.done:
                break
            tokens = answer.read(event)
            if answer.brings:
                exchange.stamp = arrived_ns, 0 if is_exact else doubt_ns
            if tokens:
                sent_ns, exchange.sent_ns = exchange.sent_ns, None
                at_ns, lag_ns = exchange.stamp
                self._commits.append(
                    Commit(
                        exchange.request_id,
                        tokens,
                        arrived_ns=at_ns,
                        stamp_lag_ns=lag_ns,
                        sent_ns=sent_ns,
                    )
                )
        if answer.finished is not None and not exchange.lingers:
            exchange.lingers = True
            self._lingering.append((arrived_ns + LINGER_NS, exchange))

    def _give_up(self, now: int) -> None:
        """End what took too long, and forget what is over."""
        for queue, error in ((self._lingering, None), (self._deadlines, self._late)):
            while queue and (queue[0][0] <= now or queue[0][1].over):
                self._end(queue.popleft()[1], error)

    def _end(self, exchange: Exchange, error: str | None, arrived_ns: int | None = None) -> None:
        """Hand out the last commit, once; the connection is kept or closed."""
        if exchange.over:
            return
        exchange.over = True
        connection, answer = exchange.connection, exchange.answer
        if connection is not None:
            del self._busy[connection.number]
            if connection.reply.keeps_alive and not connection.is_sending:
                self._pool.give_back(connection)
            else:
                self._pool.discard(connection)
                self._pool.renew()
        self.texts[exchange.request_id] = answer.text()
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


def _line(error: Exception) -> str:
    """What went wrong, with the kernel's, TLS's or Python's name for it where it is theirs."""
    if isinstance(error, StreamError) or (isinstance(error, OSError) and error.errno is None):
        return str(error)
    return f"{type(error).__name__}: {shorten(error)}"
