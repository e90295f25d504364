"""Where trials run, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass

from backends.tetris.live.devices import check_address
from harness.core.errors import UserError, nearest

EXECUTORS = ("local", "ray")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster."""

    address: str | None
    """HOST:PORT; None: a Ray of its own on this machine."""


def find_place(executor: str, address: str | None) -> Cluster | None:
    """The cluster that the options `--executor` and `--address` name; None: this machine. Raises
    `UserError`."""
    if executor not in EXECUTORS:
        raise UserError(f"--executor: no executor '{executor}'; {nearest(executor, EXECUTORS)}")
    if executor == "local":
        if address is not None:
            raise UserError("--address: is that of a Ray cluster; expected --executor ray with it")
        return None
    if address is not None:
        check_address(address)
    return Cluster(address)
