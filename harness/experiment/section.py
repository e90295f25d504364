"""Reading a mapping of a YAML file key by key, with errors a person can act on.

Every error is one line: file, key, what was found, what was expected, the nearest valid name.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.core.errors import UserError, nearest

_MISSING = object()
MAX_COUNT = 10_000_000
"""More requests, rows or repeats than this is a slip of the finger, and would fill the memory."""
MAX_SEED = 2**63 - 1


class YamlSection:
    """A mapping whose keys are taken one at a time; `finish` refuses what was not taken."""

    def __init__(self, data: Any, where: str, path: str = "") -> None:
        if not isinstance(data, Mapping):
            label = f"{where}: {path}" if path else where
            raise UserError(f"{label}: expected a mapping of keys, got {_shown(data)}")
        self.where = where
        self.path = path
        self._left = dict(data)
        self._asked: set[str] = set()
        for key in self._left:
            if not isinstance(key, str):
                raise UserError(f"{self.label()}: expected keys that are names, got {key!r}")

    def label(self, key: str = "") -> str:
        """``file: path.to.key`` for the beginning of an error line."""
        inner = ".".join(part for part in (self.path, key) if part)
        return f"{self.where}: {inner}" if inner else self.where

    def error(self, key: str, what: str, found: str, known: Iterable[str]) -> UserError:
        """An error about a name that is not among the known ones."""
        known = list(known)
        hint = nearest(found, known) if known else "it takes none"
        return UserError(f"{self.label(key)}: {what}; {hint}")

    def wrong(self, key: str, expected: str, found: Any) -> UserError:
        """An error about a value of the wrong type or range."""
        got = "nothing" if found is None else _shown(found)
        return UserError(f"{self.label(key)}: expected {expected}, got {got}")

    def take(self, key: str, default: Any = _MISSING) -> Any:
        """The value under `key`, taken out; without a default the key is required."""
        self._asked.add(key)
        value = self._left.pop(key, default)
        if value is _MISSING:
            raise UserError(f"{self.label()}: the key '{key}' is missing{self._near_miss(key)}")
        return value

    def _near_miss(self, key: str) -> str:
        hint = nearest(key, self._left) if self._left else ""
        return f" (found '{hint[14:-2]}')" if hint.startswith("did you mean") else ""

    def left(self) -> list[str]:
        """What was not taken yet."""
        return list(self._left)

    def rest(self) -> dict[str, Any]:
        """All that was not taken yet, taken now."""
        rest, self._left = self._left, {}
        return rest

    def plain(self, key: str, value: Any) -> None:
        """Raise `UserError` for what JSON cannot hold: dates, bytes, sets, infinity, cycles."""
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            expected = "texts, finite numbers, true, false, lists and mappings only"
            raise self.wrong(key, expected, value) from None

    def finish(self, elsewhere: Mapping[str, str] | None = None) -> None:
        """Raise `UserError` when a key is left that nobody asked for. `elsewhere`: keys that are
        known in another place, with the words that say in which."""
        for key in self._left:
            if elsewhere and key in elsewhere:
                raise UserError(f"{self.label(key)}: unknown key; {elsewhere[key]}")
            raise self.error(key, "unknown key", key, self._asked)

    def text(self, key: str, default: Any = _MISSING) -> str:
        """A non-empty string."""
        value = self.take(key, default)
        if not isinstance(value, str) or (not value and default is _MISSING):
            raise self.wrong(key, "a text", value)
        return value

    def optional_text(self, key: str) -> str | None:
        """A non-empty string; None where the key is absent or null."""
        value = self.take(key, None)
        if value is not None and not (isinstance(value, str) and value):
            raise self.wrong(key, "a text", value)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return value

    def integer(
        self, key: str, default: Any = _MISSING, *, least: int, most: int = MAX_COUNT
    ) -> int:
        """A whole number from `least` to `most`."""
        return self.as_integer(key, self.take(key, default), least=least, most=most)

    def as_integer(self, key: str, value: Any, *, least: int, most: int = MAX_COUNT) -> int:
        """`value`, checked to be a whole number from `least` to `most`."""
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(key, f"a whole number of at least {least}", value)
        if value > most:
            raise self.wrong(key, f"a whole number up to {most}", value)
        return value

    def number(
        self,
        key: str,
        default: Any = _MISSING,
        *,
        above: float = -math.inf,
        least: float = -math.inf,
        most: float = math.inf,
    ) -> float:
        """A finite number inside the bounds."""
        value = self.take(key, default)
        return self.as_number(key, value, above=above, least=least, most=most)

    def as_number(
        self,
        key: str,
        value: Any,
        *,
        above: float = -math.inf,
        least: float = -math.inf,
        most: float = math.inf,
    ) -> float:
        """`value`, checked to be a finite number inside the bounds (`above` is exclusive)."""
        ok = isinstance(value, int | float) and not isinstance(value, bool)
        # not math.isfinite, which cannot take an int beyond the floats
        finite = ok and abs(value) <= sys.float_info.max
        if not finite or not (above < value and least <= value <= most):
            raise self.wrong(key, "a number" + _bounds(above, least, most), value)
        return float(value)

    def section(self, key: str) -> YamlSection:
        """The mapping under `key`; an absent one is empty."""
        inner = ".".join(part for part in (self.path, key) if part)
        return YamlSection(self.take(key, {}), self.where, inner)

    def sections(self, key: str, name_key: str = "name") -> Iterator[YamlSection]:
        """The list under `key`; a bare text in it stands for a mapping with only `name_key`."""
        value = self.take(key)
        if not isinstance(value, list) or not value:
            raise self.wrong(key, "a list with at least one entry", value)
        for index, item in enumerate(value):
            path = f"{self.path}.{key}[{index}]" if self.path else f"{key}[{index}]"
            yield YamlSection({name_key: item} if isinstance(item, str) else item, self.where, path)


def _bounds(above: float, least: float, most: float) -> str:
    parts = []
    if above > -math.inf:
        parts.append(f"above {above:g}")
    if least > -math.inf:
        parts.append(f"of at least {least:g}")
    if most < math.inf:
        parts.append(f"up to {most:g}")
    return " " + " and ".join(parts) if parts else ""


def _shown(value: Any) -> str:
    try:
        text = repr(value).replace("\n", " ")
    except ValueError:  # Python writes out no number of more than 4,300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
