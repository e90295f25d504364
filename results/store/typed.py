"""Dataclasses out of plain JSON data, held against their annotations: the inverse of
`harness.core.canonical.to_json`.

Data is damaged where a field has another type than its annotation says. It is foreign where it has
a field or a word that the annotations do not know: a later version may have written it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")
_TAKEN_FOR: Mapping[Any, Any] = {int: int, float: (int, float), str: str, bool: bool}
_ENDLESS = (math.inf, -math.inf)
_UNIONS = (Union, UnionType)


class UnknownDataError(ValueError):
    """A field or a word that no annotation has."""


def typed(kind: type[T], data: object, where: str = "") -> T:
    """A `kind` that holds `data`; `where` is its place for the error's line.

    Fields that have defaults may be missing. Raises `UnknownDataError` for what may be of a later
    version, and `ValueError` for all else that does not fit.
    """
    found: T = _made(kind, data, where)
    return found


def check_fields(kind: Any, data: Mapping[str, Any], where: str = "") -> None:
    """Hold those fields that a `kind` has against it; others, and what is None, are passed over.
    Raises as `typed`."""
    known = _fields(kind)[0]
    typed(kind, {n: one for n, one in data.items() if n in known and one is not None}, where)


def _made(kind: Any, data: Any, where: str) -> Any:
    if kind in _TAKEN_FOR:
        strange = isinstance(data, bool) != (kind is bool) or data != data or data in _ENDLESS
        if strange or not isinstance(data, _TAKEN_FOR[kind]):
            raise ValueError(f"{where}: expected {kind.__name__}, found {_told(data)}")
        return data
    outer, inner = _parts(kind)
    if kind is Any or (outer in _UNIONS and data is None and NoneType in inner):
        return data
    if outer in _UNIONS:
        return _made(inner[0], data, where)
    if outer is Literal:
        return _word(inner, data, where)
    if outer is Mapping:
        if not isinstance(data, dict):
            raise ValueError(f"{where}: expected an object, found {_told(data)}")
        if inner[1] is Any:
            return data
        return {key: _made(inner[1], value, f"{where}.{key}") for key, value in data.items()}
    if outer is None:
        return _dataclass(kind, data, where)
    if not isinstance(data, list):
        raise ValueError(f"{where}: expected a list, found {_told(data)}")
    made = [_made(inner[0], one, f"{where}[{place}]") for place, one in enumerate(data)]
    return made if outer is Sequence else outer(made)


@functools.cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(kind), typing.get_args(kind)


def _dataclass(kind: Any, data: object, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where or 'record'}: expected an object, found {_told(data)}")
    known, required = _fields(kind)
    dot = where and f"{where}."
    if unknown := sorted(data.keys() - known.keys()):
        raise UnknownDataError(f"field {dot + unknown[0]!r}")
    if missing := sorted(required - data.keys()):
        raise ValueError(f"no '{dot}{missing[0]}'")
    return kind(**{name: _made(known[name], one, dot + name) for name, one in data.items()})


def _word(words: Sequence[str], data: object, where: str) -> object:
    if not isinstance(data, str):
        raise ValueError(f"{where}: expected a word, found {_told(data)}")
    if data not in words:
        raise UnknownDataError(f"{data[:60]!r} as {where}")
    return data


@functools.cache
def _fields(kind: Any) -> tuple[dict[str, Any], set[str]]:
    """The type of each field, and the fields that must be there."""
    absent = dataclasses.MISSING
    required = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is absent and field.default_factory is absent
    }
    return typing.get_type_hints(kind), required


def _told(data: object) -> str:
    return repr(data)[:60]
