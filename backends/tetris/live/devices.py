"""Emulated devices: one Ray actor each."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from typing import Any

from harness.core.errors import UserError

ANSWERS_S = 10.0
MOST_LOCAL = 64
"""Processes that a Ray of its own starts on this machine."""
_HEALTH = """
import sys
from ray.scripts.scripts import main
print("asking", flush=True)
sys.argv[0] = "ray"
main()
"""


def start_ray(
    address: str | None = None, option: str = "--live", *, cpus: float | None = None
) -> Any:
    """The module `ray`, connected: to a Ray of its own on this machine, or to the one at `address`
    (HOST:PORT). Raises `UserError` as `check_ray` does, and where Ray does not start. `cpus`: that
    an actor will ask for, which needs a Ray that counts this machine's."""
    check_ray(address, option)
    import ray

    told: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        told |= {"address": "local", "include_dashboard": False, "num_cpus": None if cpus else 1}
    else:
        told["address"] = address
    try:
        ray.init(**told)
    except (RuntimeError, ValueError, OSError) as error:
        why = " ".join(str(error).split())
        what = "Ray does not start on this machine"
        if address is not None:
            what = f"this machine is no node of the cluster at {address}, or"
        raise UserError(f"{option}: {what}: {why:.300}") from None
    return ray


def check_ray(address: str | None = None, option: str = "--live") -> None:
    """Raise `UserError` where Ray is not installed, or nobody answers at `address` in 10 s.
    `option`: what asks for Ray; a flag has its address in ``--address``."""
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            f"{option}: Ray is not installed; expected it from the set-up, or: pip install ray"
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address is not None:
        is_flag = option.startswith("--")
        _health(address, f"--address {address}" if is_flag else f"{option}: {address}")


def check_devices(count: int, address: str | None = None) -> None:
    """Raise `UserError` for more emulated devices than a Ray on this machine has room for."""
    if address is None and count > MOST_LOCAL:
        told = (
            f"expected at most {MOST_LOCAL} devices on this machine, a process each, or --address"
        )
        raise UserError(f"--live: {told} of a Ray cluster; the plan has {count}")


def _health(address: str, where: str) -> None:
    command = [sys.executable, "-c", _HEALTH, "health-check", "--address", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as asker:
        # to import Ray takes long on a busy machine, and says nothing about the cluster
        assert asker.stdout is not None
        asker.stdout.readline()
        try:
            asker.communicate(timeout=ANSWERS_S)
        except subprocess.TimeoutExpired:
            asker.kill()
    if asker.returncode != 0:
        told = f"no Ray cluster answers within {ANSWERS_S:g} s; expected HOST:PORT of one"
        raise UserError(f"{where}: {told}")


def device_actor(ray: Any) -> Any:
    """The actor class. It is defined here so that Ray sends it by value: a cluster's workers need
    nothing of this project."""

    class EmulatedDevice:
        def ready(self) -> int:
            return os.getpid()

        def run(
            self, requests: list[int], depths: list[int], end: int, took_ms: float
        ) -> tuple[list[int], list[int], float]:
            import time

            begin = time.monotonic()
            time.sleep(took_ms / 1e3)
            going = [one for one, deep in zip(requests, depths, strict=True) if deep > end]
            left = [one for one, deep in zip(requests, depths, strict=True) if deep <= end]
            return left, going, 1e3 * (time.monotonic() - begin)

    # nothing is computed, so that many devices share a core; Ray repeats nothing by itself
    return ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(EmulatedDevice)
