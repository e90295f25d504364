"""Data as JSON that is equal for equal data: what keys and digests are made of."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

LATER: Mapping[str, Any] = {"later": True}
"""Metadata of a field that is left out where it is None: keys of what has none of it stay."""


def later() -> Any:
    """A field that came later: in no key and no text of what has none of it."""
    return dataclasses.field(default=None, metadata=LATER, repr=False)


def to_json(value: Any) -> Any:
    """Plain JSON data for a dataclass, recursively; mappings and sets sorted."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {f.name: to_json(v) for f, v in own if v is not None or f.metadata != LATER}
    if isinstance(value, Mapping):
        return {str(k): to_json(value[k]) for k in sorted(value, key=str)}
    if isinstance(value, set | frozenset):
        return sorted(to_json(v) for v in value)
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    return value


def canonical_json(value: Any) -> str:
    """JSON text that is equal for equal data, whatever the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
