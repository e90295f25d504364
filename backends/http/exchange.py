"""A request under way, from its sending to its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.http.connection import Connection
from backends.http.stream import EventReader, StreamedAnswer


@dataclass(slots=True, eq=False)
class Exchange:
    """A request under way."""

    request_id: str
    payload: bytes
    answer: StreamedAnswer
    reader: EventReader = field(default_factory=EventReader)
    streams: bool | None = None
    """Whether the answer can be read as events; None: its head has not come yet."""
    refused: bytes = b""
    sent_ns: int | None = None
    """Until it has been told."""
    stamp: tuple[int, int] = (0, 0)
    """Of the last event that had something of the answer: when it came, and by how much that is
    late at most, ns."""
    connection: Connection | None = None
    lingers: bool = False
    again: bool = False
    """Sent a second time, and so on an unused connection."""
    over: bool = False

    def may_be_sent_again(self, error: Exception) -> bool:
        """Whether the server had closed a connection that it had answered on before, and so has
        not seen this request: it is sent once more then, and its time goes on (RFC 9112, 9.3.1)."""
        if self.connection is None or not isinstance(error, ConnectionError):
            return False
        return self.connection.reply.answers > 0 and not self.connection.reply.has_begun
