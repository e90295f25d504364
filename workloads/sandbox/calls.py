"""Calls between a program and its tests, which live in two processes (`workloads.sandbox.runner`).

Each side has a `Peer` on one end of a socket. A call carries its arguments as plain values
(`workloads.sandbox.values`) and comes back with the result, or an exception by the name of its
type, and with the new content of the lists, dicts and sets among the arguments that it changed.
While it waits for an answer a side serves calls of the other's, so that tests can pass functions.

Imports nothing of the project but its neighbour.
"""

from __future__ import annotations

import builtins
from os import read, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from workloads.sandbox.values import decode, encode
else:
    from sandbox_values import decode, encode

globals()["__builtins__"] = {**vars(builtins)}
"""As in `sandbox_values`."""

_BUILTIN = {**vars(builtins)}
_MUTABLE = (list, dict, set, bytearray)
_LENGTH_BYTES = 4
_LONGEST_MESSAGE_BYTES = 64 * 1024 * 1024


class Peer:
    """One end of the channel: calls functions of the other side and serves calls of its own."""

    def __init__(self, handle: int, broken: Callable[[str], NoReturn]) -> None:
        """Speak over an open socket.

        Args:
            handle: the socket's descriptor.
            broken: called when the other side has gone or sends no message; must not return.
        """
        self._handle, self._broken = handle, broken
        self._exported: list[Callable[..., object]] = []
        self.calls = 0
        """Calls made to the other side so far."""
        self.last_raised: BaseException | None = None
        """The last exception that came from there."""

    def export(self, function: Callable[..., object]) -> int:
        """The number by which the other side can call this function; the first one has 0."""
        for number, known in enumerate(self._exported):
            if known is function:
                return number
        self._exported.append(function)
        return len(self._exported) - 1

    def remote(self, number: int, name: str) -> Callable[..., object]:
        """A function that calls the other side's function of this number."""

        def function(*arguments: object, **named: object) -> object:
            return self.call(number, arguments, named)

        function.__name__ = function.__qualname__ = name
        return function

    def call(self, number: int, arguments: tuple[object, ...], named: dict[str, object]) -> object:
        """Call a function of the other side; raises what it raised."""
        self.calls += 1
        self.send("call", number, arguments, named)
        result, changes = self.wait(2)
        for place, content in changes:  # type: ignore[attr-defined]
            _overwrite(arguments[place], content)
        return result

    def send(self, *message: object) -> None:
        """Send one message."""
        self._write(encode(message, self.export))

    def wait(self, parts: int) -> tuple[object, ...]:
        """Serve calls until a "return" comes; its content, which has so many parts."""
        while True:
            message = self._receive()
            kind, content = message[0], message[1:]
            if kind == "call" and len(content) == 3:
                self._write(self._served(*content))  # type: ignore[arg-type]
            elif kind == "return" and len(content) == parts:
                return content
            elif kind == "raise" and len(content) == 2:
                self.last_raised = _exception(*content)  # type: ignore[arg-type]
                raise self.last_raised
            else:
                self._broken("sent no message")

    def serve(self) -> NoReturn:
        """Serve calls for ever."""
        self.wait(-1)
        self._broken("sent no message")

    def raised(self, error: BaseException) -> bytes:
        """The message that a call, or the program itself, raised this."""
        names = [kind.__name__ for kind in type(error).__mro__]
        try:
            return encode(("raise", names, error.args), self.export)
        except BaseException:
            return encode(("raise", names, ()), self.export)

    def send_raised(self, error: BaseException) -> None:
        """Send `raised`."""
        self._write(self.raised(error))

    def _served(
        self, number: int, arguments: tuple[object, ...], named: dict[str, object]
    ) -> bytes:
        try:
            before = [self._content(argument) for argument in arguments]
            result = self._exported[number](*arguments, **named)
            changes = [
                (place, argument)
                for place, argument in enumerate(arguments)
                if before[place] != self._content(argument)
            ]
            return encode(("return", result, changes), self.export)
        except BaseException as error:
            return self.raised(error)

    def _content(self, argument: object) -> bytes:
        return encode(argument, self.export) if type(argument) in _MUTABLE else b""

    def _write(self, message: bytes) -> None:
        data = len(message).to_bytes(_LENGTH_BYTES, "little") + message
        try:
            while data:
                data = data[write(self._handle, data) :]
        except OSError:
            self._broken("ended")

    def _receive(self) -> tuple[object, ...]:
        size = int.from_bytes(self._read(_LENGTH_BYTES), "little")
        if size > _LONGEST_MESSAGE_BYTES:
            self._broken("sent too much")
        data = self._read(size)
        try:
            message = decode(data, self.remote)
        except BaseException as error:
            self._broken(f"sent no message ({type(error).__name__})")
        if type(message) is not tuple or not message:
            self._broken("sent no message")
        return message

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = read(self._handle, min(size - len(parts), 1 << 20))
            except OSError:
                part = b""
            if not part:
                self._broken("ended")
            parts += part
        return bytes(parts)


def _overwrite(argument: object, content: object) -> None:
    """Give an argument the content that the call left in the other side's copy of it."""
    if type(argument) is not type(content):
        raise TypeError("an argument came back as another type")
    if type(argument) in (list, bytearray):
        argument[:] = content  # type: ignore[index]
    elif type(argument) in (dict, set):
        argument.clear()  # type: ignore[attr-defined]
        argument.update(content)  # type: ignore[attr-defined]


def _exception(names: list[str], arguments: tuple[object, ...]) -> BaseException:
    """The exception of the first of these types that Python itself has."""
    for name in names:
        kind = _BUILTIN.get(name)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            continue
        try:
            own: type[BaseException] = (
                kind if name == names[0] else type(str(names[0]), (kind,), {})
            )
            return own(*arguments)
        except Exception:  # UnicodeDecodeError wants five arguments
            continue
    return Exception(*names[:1])
