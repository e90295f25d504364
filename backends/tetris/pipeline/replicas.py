"""Stages that have several workers each: how many there may be, and which are whose."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise, product
from typing import Any

from harness.core.errors import UserError

MOST_WORKERS = 64
"""Processes of a pipeline; a stage has at least one."""


def check_replicas(name: str, stages: int, replicas: Sequence[Any]) -> None:
    """Raise `UserError` unless these are the workers of so many stages of backend `name`."""
    where = f"backend '{name}': option 'replicas':"
    if not all(type(one) is int for one in replicas):
        raise UserError(f"{where} expected whole numbers, got {replicas!r}")
    if len(replicas) != stages:
        told = f"names workers of {len(replicas)} stages; expected {stages} (option 'stages')"
        raise UserError(f"{where} {told}")
    if sum(replicas) > MOST_WORKERS:
        told = f"add up to {sum(replicas)} workers; expected at most {MOST_WORKERS}"
        raise UserError(f"{where} {told}")


def numbered(replicas: Sequence[int]) -> list[range]:
    """The numbers of each stage's workers, from the first stage on."""
    above = accumulate(replicas)
    return [range(most - count, most) for most, count in zip(above, replicas, strict=True)]


def worker_names(replicas: Sequence[int]) -> list[str]:
    """Of the workers, in order, for messages: stages and their replicas from 1, as the report has
    them."""
    return [
        f"stage {stage}" + (f", replica {number} of {count}" if count > 1 else "")
        for stage, count in enumerate(replicas, start=1)
        for number in range(1, count + 1)
    ]


def hand_overs(replicas: Sequence[int]) -> list[tuple[int, int]]:
    """Each worker with each of the next stage, in order."""
    return [pair for some, others in pairwise(numbered(replicas)) for pair in product(some, others)]
