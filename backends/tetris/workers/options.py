"""The options that say where stages run."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backends.tetris.live.devices import check_ray
from backends.tetris.workers.places import ProcessPlace, StagePlace
from harness.core.backend import Option
from harness.core.errors import UserError, nearest
from harness.core.names import OTHER_MACHINES
from harness.core.processes.cores import usable_cores

HERE = "local"
"""A Ray of this machine alone, which is started for the stages."""
CPU, GPU, MEMORY = "CPU", "GPU", "memory"

PLACE_OPTIONS: dict[str, Option] = {
    "ray": Option(
        str,
        None,
        "run the stages as actors of the Ray cluster with this address (HOST:PORT), or of a Ray "
        f"that is started on this machine ({HERE}); default: processes of this machine",
    ),
    "ray_resources": Option(
        dict,
        {},
        "what Ray reserves for each actor, by Ray's names, as {GPU: 0.5} or {CPU: 2, fast: 1}; "
        "stages run on a GPU where GPU is among it. Default: a CPU on a cluster, else nothing",
    ),
}


def check_place(backend: str, options: Mapping[str, Any]) -> None:
    """Raise `UserError` for resources that Ray cannot reserve, where Ray is not installed, and for
    an address at which nobody answers."""
    where, resources = f"backend '{backend}': option", options["ray_resources"]
    if options["ray"] is None:
        if resources:
            raise UserError(f"{where} 'ray_resources': means nothing without option 'ray'")
        return
    for name, amount in resources.items():
        told = f"{where} 'ray_resources': '{name}'"
        if not isinstance(name, str):
            raise UserError(f"{told}: expected a name")
        known = {one.lower(): one for one in (CPU, GPU, MEMORY)}
        if known.get(name.lower(), name) != name:
            raise UserError(f"{told}: {nearest(known[name.lower()], known.values())}")
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not is_number or not 0 < amount < math.inf:
            raise UserError(f"{told}: expected a number above 0, got {amount!r}")
        if name == GPU and amount > 1 and amount != int(amount):
            raise UserError(f"{told}: expected a part of one or a whole number, got {amount!r}")
    _answers(_address(options), f"{where} 'ray'")


def place_of(
    backend: str,
    module: str,
    options: Mapping[str, Any],
    *,
    shared: Sequence[int] = (),
    needed: Iterable[Path] = (),
) -> StagePlace:
    """Where the stages of options that passed `check_place` run: `main` of a module.

    Args:
        shared: file descriptors that processes of this machine are given.
        needed: files and folders that have to be on other machines, too, and the same.
    """
    if options["ray"] is None:
        return ProcessPlace(module, shared)
    from backends.tetris.workers.actors import ActorPlace
    from backends.tetris.workers.node_files import marks_of

    marks = {} if is_here(options) else marks_of(needed)
    return ActorPlace(backend, module, _address(options), reserved(options), marks)


def reserved(options: Mapping[str, Any]) -> dict[str, float]:
    """What Ray reserves for each actor."""
    return options["ray_resources"] or ({} if is_here(options) else {CPU: 1})


def is_here(options: Mapping[str, Any]) -> bool:
    """Whether all stages run on this machine."""
    return options["ray"] in (None, HERE)


def capabilities(options: Mapping[str, Any]) -> frozenset[str]:
    """Of a backend with these stages."""
    return frozenset() if is_here(options) else frozenset({OTHER_MACHINES})


def default_threads(options: Mapping[str, Any], workers: int) -> int:
    """Of a stage: the cores that can be used here are shared out, those of a cluster are
    reserved."""
    if not is_here(options):
        return max(1, int(reserved(options).get(CPU, 1)))
    return max(1, usable_cores() // workers)


def stage_device(options: Mapping[str, Any], here: str) -> str:
    """What stages run on, cpu or cuda: `here` what this process would; actors with a GPU on it."""
    if options["ray"] is None:
        return here
    return "cuda" if reserved(options).get(GPU) else "cpu"


def _address(options: Mapping[str, Any]) -> str | None:
    return None if options["ray"] == HERE else options["ray"]


_answers = functools.cache(check_ray)
"""Asked once: a sweep checks its options again and again."""
