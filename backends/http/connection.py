"""One connection: bytes out, an HTTP/1.1 answer in, and the moment at which each byte arrived.

The stamp is the kernel's own, so that a client that reads late still knows when the bytes came.
With TLS there is none.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import time
from collections.abc import Iterator

from backends.http import stamps
from backends.http.reply import LARGEST_REFUSAL, Reply
from backends.http.route import Route

READ_BYTES = 1 << 18
IN, OUT = select.EPOLLIN | select.EPOLLRDHUP, select.EPOLLOUT


class Connection:
    """A socket that opens, sends and reads without ever waiting.

    `mask` is what to wait for next. All methods raise `OSError` (`ssl.SSLError` is one) when the
    connection is of no more use.
    """

    def __init__(self, route: Route, tls: ssl.SSLContext | None) -> None:
        self._route, self._tls = route, tls
        self._socket = route.connect()
        self.number = self._socket.fileno()
        self._opening: Iterator[int] | None = self._open()
        self._unsent = memoryview(b"")
        self.reply = Reply()
        self.read_ns = 0
        """When its bytes were read last; the reader keeps it."""
        self.mask: int = next(self._opening)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent at once."""
        return self._opening is None

    def advance(self) -> None:
        """Go on with opening."""
        if self._opening is None:
            return
        try:
            self.mask = next(self._opening)
        except StopIteration:
            self._opening, self.mask = None, IN
            if self._tls is None:
                stamps.enable(self._socket)

    def ask(self, request: bytes) -> int:
        """Send as much of `request` as the kernel takes; `go_on` sends the rest. The connection
        must be open and have no answer under way. Returns the time at which it left, ns."""
        self.reply.begin()
        self._unsent = memoryview(request)
        self.go_on()
        return time.monotonic_ns()

    def go_on(self) -> None:
        """Send what is left of a request."""
        with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        self.mask = IN | OUT if self._unsent else IN

    @property
    def is_sending(self) -> bool:
        """Whether a part of the request has not left yet."""
        return bool(self._unsent)

    def is_quiet(self) -> bool:
        """Whether the server has neither closed nor said anything since the last answer. One that
        has is of no more use."""
        try:
            self._socket.recv(1)  # through TLS, which sends session tickets when it likes
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def receive(self, wall_ahead_ns: int) -> tuple[bytes, int | None] | None:
        """(bytes, the kernel's stamp of the last of them), None when nothing is there, no bytes
        when the server has closed. `wall_ahead_ns` is the wall clock minus the monotonic one."""
        try:
            if self._tls is not None:
                return self._receive_all(), None
            return stamps.read(self._socket, READ_BYTES, wall_ahead_ns)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()
        self.reply.close()

    def _open(self) -> Iterator[int]:
        """The steps to an open connection; each yields what has to be waited for."""
        yield OUT
        if error := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))
        if self._route.tunnel:
            self._socket.send(self._route.tunnel)
            said = b""
            while b"\r\n\r\n" not in said:
                yield IN
                data = self._socket.recv(4096)
                said += data
                if not data or len(said) > LARGEST_REFUSAL:
                    raise ConnectionError("the proxy gave no answer")
            line = said.partition(b"\r\n")[0]
            if not line.startswith(b"HTTP/1.") or line.split()[1:2] != [b"200"]:
                raise ConnectionError(f"the proxy refused: {line.decode('latin-1')[:80]}")
        if self._tls is not None:
            name = self._route.host
            self._socket = wrapped = self._tls.wrap_socket(
                self._socket, server_hostname=name, do_handshake_on_connect=False
            )
            while True:
                try:
                    wrapped.do_handshake()
                    return
                except ssl.SSLWantReadError:
                    yield IN
                except ssl.SSLWantWriteError:
                    yield OUT

    def _receive_all(self) -> bytes:
        """TLS: whole records wait inside the library, where epoll does not see them."""
        found: list[bytes] = []
        while True:
            try:
                data = self._socket.recv(READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if found:
                    return b"".join(found)
                raise BlockingIOError from None
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:
                return b"".join(found)
            found.append(data)
