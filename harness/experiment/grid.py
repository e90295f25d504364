"""Lists of an experiment file expand as a grid: each combination of their values once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from harness.core.errors import UserError
from harness.experiment.limits import Limits
from harness.experiment.section import YamlSection


def expand(
    options: Mapping[str, Any],
    lists: Mapping[str, bool],
    section: YamlSection,
    limits: Limits,
    limit: str,
) -> Iterator[dict[str, Any]]:
    """Each combination of the options' values. Where `lists` says that an option's own value is a
    list, a list of lists is its axis. Raises `UserError` for an empty list, and for a grid larger
    than the `limit` of this name, before any of it is made."""
    axes = []
    for key, value in options.items():
        own_list = lists.get(key, False)
        many = isinstance(value, list) and (not own_list or _is_list_of_lists(value))
        choices = value if many else [value]
        if not choices:
            raise UserError(f"{section.label(key)}: an empty list makes an empty grid")
        axes.append([(key, choice) for choice in choices])
    cells = math.prod(len(axis) for axis in axes)
    limits.refuse(section.label(), limit, "cells of a grid", cells)
    return (dict(combination) for combination in itertools.product(*axes))


def _is_list_of_lists(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(item, list) for item in value)
