"""Emulated devices: one Ray actor each."""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import subprocess
import sys
from typing import Any

from harness.core.errors import UserError

ANSWERS_S = 10.0
MOST_LOCAL = 64
"""Processes that a Ray of its own starts on this machine."""
LARGEST_PORT = 2**16 - 1
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
    # what it has of lost nodes goes to standard output by screens, whatever log_to_driver says
    ray._private.worker._worker_logs_enabled = False
    if address is None:
        _set_own()
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


def _set_own() -> None:
    """What a Ray of its own is started with, unless the user has set it.

    It listens on every interface, and so asks for a token. One of ours keeps Ray from writing one
    to ~/.ray/auth_token, for which any cluster that is started here later would ask."""
    os.environ.setdefault("RAY_worker_niceness", "0")
    given = os.environ.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
    if not given and os.environ.get("RAY_AUTH_MODE") != "disabled":
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def check_address(address: str, option: str = "--live") -> None:
    """Raise `UserError` for an `address` that is none: HOST:PORT. `option`: see `check_ray`."""
    where = _where(address, option)
    scheme, is_url, _ = address.partition("://")
    if scheme == "ray" and is_url:
        told = "ray:// is for Ray clients; expected the port of the head (6379), as HOST:6379"
        raise UserError(f"{where}: {told}")
    host, _, port = address.rpartition(":")
    found = None
    if is_url:
        found = f"{scheme}://"
    elif ":" not in address or not port:
        found = "no port"
    elif not host:
        found = "no host"
    elif not (port.isascii() and port.isdigit() and 0 < int(port) <= LARGEST_PORT):
        found = f"port '{port}'"
    if found is not None:
        local = "" if option.startswith("--") else ", or local"
        raise UserError(f"{where}: expected HOST:PORT of a Ray cluster{local}; found {found}")


def _where(address: str, option: str) -> str:
    told = address or "''"
    return f"--address {told}" if option.startswith("--") else f"{option}: {told}"


def check_ray(address: str | None = None, option: str = "--live") -> None:
    """Raise `UserError` where Ray is not installed, for an `address` that is none, and where nobody
    answers there in 10 s. `option`: what asks for Ray; a flag has its address in ``--address``."""
    if address is not None:
        check_address(address, option)
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            f"{option}: Ray is not installed; expected it from the set-up, or: pip install ray"
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address is not None:
        _health(address, _where(address, option))


def check_devices(count: int, address: str | None = None) -> None:
    """Raise `UserError` for more emulated devices than a Ray on this machine has room for."""
    if address is None and count > MOST_LOCAL:
        told = (
            f"expected at most {MOST_LOCAL} devices on this machine, a process each, or --address"
        )
        raise UserError(f"--live: {told} of a Ray cluster; the plan has {count}")


def _health(address: str, where: str) -> None:
    command = [sys.executable, "-c", _HEALTH, "health-check", "--address", address]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    told = ""
    with subprocess.Popen(command, **pipes) as asker:
        # to import Ray takes long on a busy machine, and says nothing about the cluster
        assert asker.stdout is not None
        asker.stdout.readline()
        try:
            _, told = asker.communicate(timeout=ANSWERS_S)
        except subprocess.TimeoutExpired:
            asker.kill()
    if asker.returncode != 0:
        raise UserError(f"{where}: {_refusal(told)}")


def _refusal(told: str) -> str:
    """Why a cluster cannot be used, of which Ray's check has said so much."""
    if not told.strip():
        return f"no Ray cluster answers within {ANSWERS_S:g} s; expected HOST:PORT of one"
    why = told.strip().splitlines()[-1]
    if "authentication token" in told.lower():
        why = (
            "it needs a token, and no other one; set RAY_AUTH_MODE=token, with its token in "
            "~/.ray/auth_token or RAY_AUTH_TOKEN"
        )
    return f"refuses the connection: {why:.200}"


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
