"""Plain values as bytes, for what passes between a program and its tests (`runner`).

A program's answer reaches the tests as built-in values only: no pickles, no classes of its own. A
value of a subclass is what the built-in part of it holds, whatever its methods claim, so that a
``Counter`` is the dict that it is and an ``int`` that equals everything is its number. A function
becomes a number by which it can be called where it lives. Anything else is `Opaque`: true or false,
perhaps iterable, and equal to itself alone.

Imports nothing of the project and no name that a program could take away: see `builtins` below.
"""

from __future__ import annotations

import builtins
import struct
import sys
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Export = Callable[[Callable[..., object]], int]
    Remote = Callable[[int, str], Callable[..., object]]

globals()["__builtins__"] = {**vars(builtins)}
"""Functions below find their built-ins here, so a program that replaces ``len`` replaces its own
only. It must stand before them."""

_HEADER = struct.Struct("<cI")
_FLOAT, _COMPLEX = struct.Struct("<d"), struct.Struct("<dd")
_MOST_ITEMS = 100_000
"""Of an iterator, which may have no end."""
_NUMBERS = (("decimal", "Decimal"), ("fractions", "Fraction"))


class Opaque:
    """Stands for an object that no built-in value says; equal to nothing but itself."""

    def __init__(self, kind: str, truth: bool, items: list[object] | None) -> None:
        self._kind, self._truth, self._items = kind, truth, items

    def __repr__(self) -> str:
        return f"<{self._kind} object>"

    def __bool__(self) -> bool:
        return self._truth

    def __iter__(self) -> Iterator[object]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def __getitem__(self, place: int) -> object:
        return self._known()[place]

    def _known(self) -> list[object]:
        if self._items is None:
            raise TypeError(f"'{self._kind}' object has no items")
        return self._items


def _int_bytes(value: int) -> bytes:
    return int.to_bytes(value, int.bit_length(value) // 8 + 1, "little", signed=True)


_SCALARS: dict[type, tuple[bytes, Callable[..., bytes], Callable[[bytes], object]]] = {
    type(None): (b"N", lambda v: b"", lambda b: None),
    bool: (b"T", lambda v: b"1" if v is True else b"", bool),
    int: (b"I", _int_bytes, lambda b: int.from_bytes(b, "little", signed=True)),
    float: (b"D", _FLOAT.pack, lambda b: _FLOAT.unpack(b)[0]),
    complex: (
        b"C",
        lambda v: _COMPLEX.pack(complex.real.__get__(v), complex.imag.__get__(v)),
        lambda b: complex(*_COMPLEX.unpack(b)),
    ),
    str: (
        b"S",
        lambda v: str.encode(v, "utf-8", "surrogatepass"),
        lambda b: b.decode("utf-8", "surrogatepass"),
    ),
    bytes: (b"B", lambda v: bytes.join(b"", (v,)), bytes),
    bytearray: (b"A", lambda v: bytes.join(b"", (v,)), bytearray),
}
_CONTAINERS: dict[type, tuple[bytes, Callable[..., Iterator[object]]]] = {
    list: (b"L", list.__iter__),
    tuple: (b"U", tuple.__iter__),
    set: (b"E", set.__iter__),
    frozenset: (b"Z", frozenset.__iter__),
}
_READ_SCALAR = {tag: read for tag, _, read in _SCALARS.values()}
_MAKE_CONTAINER: dict[bytes, Callable[[list[object]], object]] = {
    b"L": list,
    b"U": tuple,
    b"E": set,
    b"Z": frozenset,
    b"R": iter,
}


def encode(value: object, export: Export) -> bytes:
    """The bytes of a value; functions in it are handed to `export`, which numbers them.

    Raises:
        RecursionError: for a value that holds itself, or is nested too deeply.
        Exception: what iterating over the value raises.
    """
    out = bytearray()
    _write(out, value, export)
    return bytes(out)


def _write(out: bytearray, value: object, export: Export) -> None:
    for kind in type(value).__mro__:
        if kind in _SCALARS:
            tag, scalar_bytes, _ = _SCALARS[kind]
            _write_bytes(out, tag, scalar_bytes(value))
            return
        if kind in _CONTAINERS:
            tag, items_of = _CONTAINERS[kind]
            _write_items(out, tag, list(items_of(value)), export)
            return
        if kind is dict:
            pairs: list[tuple[object, object]] = list(dict.items(value))  # type: ignore[arg-type]
            _write_items(out, b"M", [part for pair in pairs for part in pair], export)
            return
    _write_other(out, value, export)


def _write_other(out: bytearray, value: object, export: Export) -> None:
    for module, name in _NUMBERS:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(value, kind):
            _write_items(out, b"X", [module, name, str(value)], export)
            return
    kind_name = str(type(value).__name__)
    if callable(value):
        out += _HEADER.pack(b"F", export(value))
        _write(out, str(getattr(value, "__name__", kind_name)), export)
    elif hasattr(type(value), "__next__"):
        _write_items(out, b"R", list(islice(value, _MOST_ITEMS)), export)  # type: ignore[call-overload]
    else:
        has_items = hasattr(type(value), "__iter__")
        items = list(islice(value, _MOST_ITEMS)) if has_items else None  # type: ignore[call-overload]
        _write_items(out, b"O", [kind_name, bool(value), items], export)


def _write_bytes(out: bytearray, tag: bytes, content: bytes) -> None:
    out += _HEADER.pack(tag, len(content))
    out += content


def _write_items(out: bytearray, tag: bytes, items: list[object], export: Export) -> None:
    out += _HEADER.pack(tag, len(items))
    for item in items:
        _write(out, item, export)


def decode(data: bytes, remote: Remote) -> object:
    """The value that bytes say; `remote` makes a function of a number and a name.

    Whatever the bytes are, nothing but built-in values, `Decimal`, `Fraction`, `Opaque` and what
    `remote` gives comes out.

    Raises:
        Exception: for bytes that say no value.
    """
    value, end = _read(data, 0, remote)
    if end != len(data):
        raise ValueError("bytes after the value")
    return value


def _read(data: bytes, place: int, remote: Remote) -> tuple[object, int]:
    tag, size = _HEADER.unpack_from(data, place)
    place += _HEADER.size
    if tag in _READ_SCALAR:
        if place + size > len(data):
            raise ValueError("bytes are missing")
        return _READ_SCALAR[tag](data[place : place + size]), place + size
    if tag == b"F":
        name, place = _read(data, place, remote)
        return remote(size, str(name)), place
    items: list[object] = []
    for _ in range(size):
        item, place = _read(data, place, remote)
        items.append(item)
    return _made(tag, items), place


def _made(tag: bytes, items: list[object]) -> object:
    if tag == b"M":
        return dict(zip(items[::2], items[1::2], strict=True))
    if tag == b"X":
        module, name, text = items
        if (module, name) not in _NUMBERS:
            raise ValueError(f"no number is a {name}")
        return getattr(__import__(str(module)), str(name))(str(text))
    if tag == b"O":
        kind, truth, known = items
        if not (known is None or type(known) is list):
            raise ValueError("items are no list")
        return Opaque(str(kind), bool(truth), known)
    return _MAKE_CONTAINER[tag](items)
