"""The HTTP/1.1 answers of one connection, one after the other; `httptools` tells what it reads."""

from __future__ import annotations

import httptools

from backends.http.stream import body_message

LARGEST_REFUSAL = 1 << 16
"""Bytes kept of an answer that is no event stream."""


class Reply:
    """The answer under way, as far as it has come. The parser calls the methods named ``on_``."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self.answers = 0
        """That have come whole."""
        self.begin()

    def begin(self) -> None:
        """Another request is sent."""
        self.status: int | None = None
        self.content_type = ""
        self.reason = ""
        self.location = ""
        self.encoding = "identity"
        self.has_begun = False
        """Whether a byte has come."""
        self.has_head = False
        self.complete = False
        self.keeps_alive = False
        """Whether another request may follow on the connection."""
        self._is_framed = False
        """Whether the head says where the body ends; else it ends with the connection."""
        self._body.clear()

    def close(self) -> None:
        """No answer will follow: let go of the parser, which holds on to this in turn."""
        del self._parser

    def feed(self, data: bytes) -> None:
        """Parse what came. Raises `ConnectionError` for what is no HTTP answer."""
        if self.complete:
            raise ConnectionError("the server sent what nobody asked for")
        self.has_begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, ConnectionError):
                raise cause from None
            raise ConnectionError(f"malformed HTTP answer: {error}") from None

    def end(self) -> None:
        """The server closed: fine where that is what ends the body, else `ConnectionError`."""
        if not self.has_head:
            raise ConnectionError("the server closed the connection without an answer")
        if self._is_framed and not self.complete:
            raise ConnectionError("the connection closed in the middle of the answer")
        self.complete, self.keeps_alive = True, False

    def refusal(self, body: bytes) -> str:
        """One line about an answer that is no event stream."""
        where = f" (go to {self.location})" if self.location else ""
        return f"HTTP {self.status}{where}: {body_message(body, self.reason)}"

    def take(self) -> bytes:
        """The body's bytes since the last call."""
        found = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        return found

    def on_status(self, reason: bytes) -> None:
        """The status line's words."""
        self.reason = reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        name = name.lower()
        if name == b"content-type":
            self.content_type = value.decode("latin-1").partition(";")[0].strip().lower()
        elif name in (b"transfer-encoding", b"content-length"):
            self._is_framed = True
        elif name == b"content-encoding":
            self.encoding = value.decode("latin-1").strip().lower()
        elif name == b"location":
            self.location = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The body follows. Raises `ConnectionError` for one that nobody asked for."""
        if self.encoding != "identity":
            raise ConnectionError(f"the answer is encoded ({self.encoding}), unasked")
        self.status = self._parser.get_status_code()
        self.has_head = True

    def on_body(self, data: bytes) -> None:
        """A part of the body, without its framing."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """The end. Only here the parser still knows whether the connection may go on."""
        if self.status is not None and self.status < 200:  # "100 Continue": the answer follows
            self.begin()
            return
        self.complete = True
        self.answers += 1
        self.keeps_alive = self._is_framed and self._parser.should_keep_alive()
