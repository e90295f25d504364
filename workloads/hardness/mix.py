"""The option `mix`: rows in a ratio of easy and hard ones. What lies at the median is easy."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import Any

from harness.core.errors import UserError
from workloads.fields import Row


def parse_mix(value: Any, where: str) -> tuple[int, int]:
    """The parts easy and hard of "80:20". Raises `UserError`, which begins with `where`."""
    if isinstance(value, int) and not isinstance(value, bool):
        raise UserError(f'{where}: YAML reads 80:20 as a number; write "80:20", in quotes')
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", value) if isinstance(value, str) else None
    if match is None or not any(map(int, match.groups())):
        raise UserError(f'{where}: expected easy:hard such as "80:20", got {value!r}')
    return int(match[1]), int(match[2])


def mixed(rows: Sequence[Row], mix: tuple[int, int], count: int, name: str) -> list[Row]:
    """At most `count` rows in the given ratio, in the order given; fewer when a side runs short.
    Raises `UserError` for hard ones of workload `name` where all are alike."""
    if not rows:
        return []
    threshold = statistics.median(row.difficulty for row in rows)
    easy = [row for row in rows if row.difficulty <= threshold]
    hard = [row for row in rows if row.difficulty > threshold]
    if not hard and mix[1]:
        raise UserError(
            f"workload {name}: option 'mix': no row is harder than the median, {threshold:g}"
        )

    def easy_part(total: int) -> int:
        return (2 * total * mix[0] + sum(mix)) // (2 * sum(mix))

    while easy_part(count) > len(easy) or count - easy_part(count) > len(hard):
        count -= 1
    chosen = {row.id for row in easy[: easy_part(count)] + hard[: count - easy_part(count)]}
    return [row for row in rows if row.id in chosen]
