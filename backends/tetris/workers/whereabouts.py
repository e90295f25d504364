"""Where a stage's process is, as it sees it itself."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backends.tetris.pipeline.replicas import numbered
from harness.core.errors import UserError
from harness.core.processes.gpus import VISIBLE
from harness.core.processes.processor import cpu_model


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Of one process."""

    host: str
    device: str
    """The name of its GPU, or of its processor."""
    card: str | None = None
    """Which GPU of the host, as CUDA or who started the process numbers them."""
    node: str | None = None
    """The host's address in a Ray cluster."""
    reserved: Mapping[str, float] = field(default_factory=dict)
    """What Ray keeps for it, such as half a GPU."""

    def to_json(self) -> dict[str, Any]:
        """What there is to tell."""
        told = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in told.items() if value}


def here() -> Whereabouts:
    """Of this process, whose layers are open."""
    device, card = _gpu() or (cpu_model(), None)
    return Whereabouts(platform.node(), device, card, *_in_ray())


def _gpu() -> tuple[str, str] | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    number = torch.cuda.current_device()
    seen = [one.strip() for one in os.environ.get(VISIBLE, "").split(",") if one.strip()]
    return torch.cuda.get_device_name(number), seen[number] if number < len(seen) else str(number)


def _in_ray() -> tuple[str | None, Mapping[str, float]]:
    ray = sys.modules.get("ray")
    # what is only told of a stage may not end it
    with contextlib.suppress(Exception):
        if ray is not None and ray.is_initialized():
            reserved = ray.get_runtime_context().get_assigned_resources()
            return ray.util.get_node_ip_address(), dict(reserved)
    return None, {}


def by_stage(replicas: Sequence[int], found: Sequence[Whereabouts | None]) -> list[dict[str, Any]]:
    """Of the workers of stages, in order: as a record of a trial keeps it, stages and their
    replicas from 1. None: that worker has not told."""
    return [
        {"stage": stage, "replica": replica, **where.to_json()}
        for stage, workers in enumerate(numbered(replicas), start=1)
        for replica, worker in enumerate(workers, start=1)
        if (where := found[worker]) is not None
    ]


def check_alike(option: str, found: Sequence[Whereabouts | None]) -> None:
    """Raise `UserError`, which begins with `option`, for workers on devices of several kinds."""
    kinds = {one.device: one.node or one.host for one in found if one is not None}
    if len(kinds) > 1:
        told = ", ".join(f"{device} on {node}" for device, node in sorted(kinds.items()))
        raise UserError(
            f"{option}: takes all workers for one kind of device, and finds {told}; expected nodes "
            "of one kind (a resource that they alone have, in option 'ray_resources'), or 0"
        )
