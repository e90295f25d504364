"""Rows of data sets on the Hugging Face hub."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

from harness.core.errors import UserError
from workloads import WorkloadInfo
from workloads.readers import Record

HUB_TIMEOUT_S = 4.0
"""For one short answer, where nobody says otherwise. The libraries' own patience is half a minute,
or has no end."""
TIMEOUT_VARIABLE = "HF_HUB_ETAG_TIMEOUT"
"""The client library's own, in seconds: for a hub, or a mirror of it, that is slow."""


def hub_records(name: str, info: WorkloadInfo, split: str, revision: str) -> Iterator[Record]:
    """Yield the rows of a data set's split at a revision. Raises `UserError` for what the hub has
    not, and without an answer from it for what is not in the cache."""
    import datasets

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it reports every retry
    silence: list[str] = []
    try:
        with _offline_unless_reached(info.hub, revision, silence):
            table = datasets.load_dataset(info.hub, info.config, split=split, revision=revision)
    except Exception as error:  # the library raises whatever its many layers raise
        first = (str(error).strip() or type(error).__name__).split("\n")[0]
        told = "".join(f"; {line}" for line in silence)
        raise UserError(
            f"workload {name}: cannot load {info.hub} (split {split}, revision {revision}) from "
            f"the hub: {first}{told}; without a network give a local file as source, or 'bundled'"
        ) from error
    for number, record in enumerate(table, start=1):
        yield f"{info.hub}, split {split}, row {number}", record


def timeout_s() -> float:
    """Seconds that the hub has for a short answer."""
    with contextlib.suppress(ValueError):
        if (asked := float(os.environ.get(TIMEOUT_VARIABLE, ""))) > 0:
            return asked
    return HUB_TIMEOUT_S


@contextlib.contextmanager
def _offline_unless_reached(hub_id: str, revision: str, silence: list[str]) -> Iterator[None]:
    """Without an answer from the hub to one short question, let the libraries look into their
    caches only: they would ask again for half a minute. `silence` gets a line that says so."""
    import datasets
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    flags: tuple[Any, ...] = (datasets.config, huggingface_hub.constants)
    before = [module.HF_HUB_OFFLINE for module in flags]
    limit = timeout_s()
    try:
        huggingface_hub.HfApi().dataset_info(hub_id, revision=revision, timeout=limit)
    except HfHubHTTPError:
        pass  # an answer: what it means is said when the rows are loaded
    except Exception:  # the client library's own errors, whichever library that is
        silence.append(
            f"it gave no answer within {limit:g} s ({TIMEOUT_VARIABLE} waits longer), so that the "
            "cache alone was looked into"
        )
        for module in flags:
            module.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for module, flag in zip(flags, before, strict=True):
            module.HF_HUB_OFFLINE = flag
