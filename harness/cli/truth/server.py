"""An OpenAI-compatible server whose every time is known: what the http client is held against.

    python -m harness.cli.truth.server [--ttft-ms 20] [--gap-ms 5 ...] [--tokens-per-chunk 1]

Prints its address, then serves until its standard input ends. Each answer's first token leaves
`ttft` after the request reached this machine (the kernel's stamp, so that the server's own lateness
is none of it) and the others at the gaps, in rotation; a token leaves later when the server or the
client is late, and never before the client has left room for the one before. ``GET /log`` tells
what really happened, in nanoseconds of the monotonic clock, and starts anew: `Answered` rows.
Requests that do not stream are answered at once and stand in no log.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import heapq
import itertools
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from harness.cli.truth.stream import STREAM_HEAD, Call, Wish, cut, plain, read_wish
from harness.measure.machine.scheduling import prompt_wakeups

SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("qq")
BACKLOG = 4096
"""Connections that wait to be accepted; the kernel caps it."""
MOST_AT_ONCE = 64
"""Sockets read, or tokens sent, before it is the others' turn."""


@dataclass(slots=True)
class Answered:
    """One request as the server saw it."""

    name: int
    """The first token id of its prompt, -1 for a prompt of text."""
    arrived_ns: int
    due_ns: int
    """When the first token should have left."""
    sent_ns: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Peer:
    """A client's connection and the answer under way on it."""

    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    read_ns: int = 0
    """When the bytes received last reached this machine."""
    unsent: bytearray = field(default_factory=bytearray)
    """What the client has left no room for; while there is any, no further token leaves."""
    answer: Answered | None = None
    left: int = 0
    """Tokens still to be sent."""
    due_ns: int = 0
    gaps_ns: Iterator[int] = field(default_factory=itertools.count)
    piece: bytes = b""
    last: bytes = b""
    end: bytes = b""
    """What every chunk but the last holds, the last, and what follows it."""
    waits: bool = False
    """Whether its next token is due but finds no room."""


class TruthServer:
    """One thread, no library. `serve` runs until the file descriptor `until` can be read."""

    def __init__(self, ttft_s: float, gaps_s: list[float], tokens_per_chunk: int = 1) -> None:
        self._ttft_ns = round(ttft_s * 1e9)
        self._gaps_ns = [round(gap * 1e9) for gap in gaps_s]
        self._size = tokens_per_chunk
        self._epoll = select.epoll()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        self._epoll.register(self._listener, select.EPOLLIN)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self._peers: dict[int, _Peer] = {}
        self._agenda: list[tuple[int, int, _Peer]] = []
        self._order = itertools.count()
        self._log: list[Answered] = []

    def serve(self, until: int) -> None:
        """Answer whoever asks."""
        self._epoll.register(until, select.EPOLLIN)
        gc.disable()
        with prompt_wakeups():
            while True:
                pause = 1.0
                if self._agenda:
                    pause = max(self._agenda[0][0] - time.monotonic_ns(), 0) * 1e-9
                if pause:
                    # select, because epoll's own time-out is in whole milliseconds
                    select.select([self._epoll], [], [], pause)
                for number, mask in self._epoll.poll(0, MOST_AT_ONCE):
                    if number == until:
                        return
                    self._handle(number, mask)
                self._send_due()

    def _handle(self, number: int, mask: int) -> None:
        peer = self._peers.get(number)
        if peer is None:
            self._accept()
            return
        try:
            if mask & select.EPOLLOUT:
                self._flush(peer)
            if mask & ~select.EPOLLOUT:
                self._read(peer)
        except OSError:
            self._drop(peer)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                found, _ = self._listener.accept()
                found.setblocking(False)
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                found.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                self._peers[found.fileno()] = _Peer(found)
                self._epoll.register(found, select.EPOLLIN)

    def _drop(self, peer: _Peer) -> None:
        self._peers.pop(peer.socket.fileno(), None)
        peer.answer = None
        peer.socket.close()

    def _read(self, peer: _Peer) -> None:
        data, control, _, _ = peer.socket.recvmsg(1 << 20, 64)
        if not data:
            raise ConnectionError("closed")
        peer.received += data
        peer.read_ns = time.monotonic_ns()
        if control:
            seconds, ns = TIMESPEC.unpack(control[0][2])
            peer.read_ns += seconds * 1_000_000_000 + ns - time.time_ns()
        self._answer_next(peer)

    def _answer_next(self, peer: _Peer) -> None:
        """Take up the next requests on the connection; one answer after the other."""
        try:
            while peer.answer is None and (call := cut(peer.received)) is not None:
                self._answer(peer, call)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            peer.received.clear()
            content = {"error": {"message": f"{type(error).__name__}: {error}"}}
            self._send(peer, plain(content, status="400 Bad Request"))

    def _answer(self, peer: _Peer, call: Call) -> None:
        content: Any = {"success": True, "status": "ok", "version": "truth"}
        if call.path.endswith("/completions") and call.method == "POST":
            wish = read_wish(call)
            if wish.streams:
                self._begin(peer, wish)
                return
            content = wish.whole()
        elif call.path == "/log":
            content = [
                [row.name, row.arrived_ns, row.due_ns, row.sent_ns, row.sizes] for row in self._log
            ]
            self._log = []
        elif call.path == "/v1/models":
            content = {"object": "list", "data": [{"id": "m", "object": "model"}]}
        self._send(peer, plain(content, head_only=call.method == "HEAD"))

    def _begin(self, peer: _Peer, wish: Wish) -> None:
        peer.answer = Answered(wish.name, peer.read_ns, peer.read_ns + self._ttft_ns)
        self._log.append(peer.answer)
        peer.due_ns = peer.answer.due_ns
        peer.gaps_ns = itertools.cycle(self._gaps_ns)
        peer.left = wish.tokens
        peer.piece = wish.chunk(self._size)
        peer.last = wish.chunk((wish.tokens - 1) % self._size + 1, "length")
        peer.end = wish.end()
        self._send(peer, STREAM_HEAD)
        self._plan(peer)

    def _plan(self, peer: _Peer) -> None:
        heapq.heappush(self._agenda, (peer.due_ns, next(self._order), peer))

    def _send_due(self) -> None:
        """A few of the tokens whose time has come: requests must be read in between."""
        agenda = self._agenda
        for _ in range(MOST_AT_ONCE):
            if not agenda or agenda[0][0] > (now := time.monotonic_ns()):
                return
            _, _, peer = heapq.heappop(agenda)
            answer = peer.answer
            if answer is None:
                continue
            if peer.unsent:
                peer.waits = True
                continue
            size = min(self._size, peer.left)
            peer.left -= size
            answer.sent_ns.append(now)
            answer.sizes.append(size)
            if peer.left:
                self._send(peer, peer.piece)
                peer.due_ns += next(peer.gaps_ns)
                self._plan(peer)
            else:
                peer.answer = None
                self._send(peer, peer.last)
                self._send(peer, peer.end)
                if peer.received:
                    self._answer_next(peer)

    def _send(self, peer: _Peer, data: bytes) -> None:
        if peer.unsent:
            peer.unsent += data
            return
        try:
            sent = peer.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(peer)
            return
        if sent < len(data):
            peer.unsent += data[sent:]
            self._epoll.modify(peer.socket, select.EPOLLIN | select.EPOLLOUT)

    def _flush(self, peer: _Peer) -> None:
        data = bytes(peer.unsent)
        peer.unsent.clear()
        self._epoll.modify(peer.socket, select.EPOLLIN)
        self._send(peer, data)
        if peer.waits and not peer.unsent:
            peer.waits = False
            self._plan(peer)


@contextlib.contextmanager
def truth_server(ttft_s: float, gaps_s: list[float], tokens_per_chunk: int = 1) -> Iterator[str]:
    """A server in a process of its own; yields its address with ``/v1``."""
    command = [sys.executable, "-m", "harness.cli.truth.server", f"--ttft-ms={ttft_s * 1e3!r}"]
    command += [f"--tokens-per-chunk={tokens_per_chunk}", "--gap-ms"]
    command += [repr(gap * 1e3) for gap in gaps_s]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def take_log(url: str) -> list[Answered]:
    """What the server did since the last call."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url.removesuffix('/v1')}/log", timeout=60) as response:
        return [Answered(*row) for row in json.loads(response.read())]


def main() -> None:
    """Serve with the times of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ttft-ms", type=float, default=20.0)
    parser.add_argument("--gap-ms", type=float, nargs="+", default=[5.0])
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    chosen = parser.parse_args()
    gaps_s = [gap / 1e3 for gap in chosen.gap_ms]
    server = TruthServer(chosen.ttft_ms / 1e3, gaps_s, chosen.tokens_per_chunk)
    print(server.url, flush=True)
    server.serve(sys.stdin.fileno())


if __name__ == "__main__":
    main()
