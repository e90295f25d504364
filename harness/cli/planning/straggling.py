"""Devices that `simulate --straggler` makes slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.core.errors import UserError

if TYPE_CHECKING:
    from backends.tetris.pipeline.stragglers import Slowdown
    from backends.tetris.profile import DeviceCluster


def slowdowns(told: Sequence[str], cluster: DeviceCluster) -> dict[str, Slowdown]:
    """Each DEVICE:TIMES[@SECONDS] by its device, one of the cluster's.

    Raises:
        UserError: for anything else, and for a device that is told twice.
    """
    from backends.tetris.pipeline.stragglers import Slowdown

    found: dict[str, Slowdown] = {}
    for one in told:
        where = f"--straggler {one}"
        device, colon, rest = one.rpartition(":")
        times, _, seconds = rest.partition("@")
        if not colon:
            raise UserError(f"{where}: expected DEVICE:TIMES or DEVICE:TIMES@SECONDS")
        if device not in cluster.names():
            raise UserError(f"{where}: no device '{device}'; expected {_ranges(cluster)}")
        if device in found:
            raise UserError(f"{where}: expected a device once")
        factor = _number(times, f"{where}: TIMES", 1.0)
        found[device] = Slowdown(factor, 1e3 * _number(seconds or "0", f"{where}: SECONDS", 0.0))
    return found


def _ranges(cluster: DeviceCluster) -> str:
    return " or ".join(f"{kind}-0 to {kind}-{n - 1}" for kind, n in cluster.devices.items())


def _number(told: str, where: str, least: float) -> float:
    try:
        number = float(told)
    except ValueError:
        number = math.nan
    if not least <= number < math.inf:
        raise UserError(f"{where}: expected a number of {least:g} or more, found '{told}'")
    return number
