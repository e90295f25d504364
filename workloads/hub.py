"""Rows of data sets on the Hugging Face hub."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from harness.core.errors import UserError
from workloads import WorkloadInfo
from workloads.readers import Record

HUB_TIMEOUT_S = 4.0
"""For one short answer. The libraries' own patience is half a minute, or has no end."""


def hub_records(name: str, info: WorkloadInfo, split: str, revision: str) -> Iterator[Record]:
    """Yield the rows of a data set's split at a revision. Raises `UserError` for what the hub has
    not, and without an answer from it for what is not in the cache."""
    import datasets

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it reports every retry
    try:
        with _offline_unless_reached(info.hub, revision):
            table = datasets.load_dataset(info.hub, info.config, split=split, revision=revision)
    except Exception as error:  # the library raises whatever its many layers raise
        first = (str(error).strip() or type(error).__name__).split("\n")[0]
        raise UserError(
            f"workload {name}: cannot load {info.hub} (split {split}, revision {revision}) from "
            f"the hub: {first}; without a network give a local file as source, or 'bundled'"
        ) from error
    for number, record in enumerate(table, start=1):
        yield f"{info.hub}, split {split}, row {number}", record


@contextlib.contextmanager
def _offline_unless_reached(hub_id: str, revision: str) -> Iterator[None]:
    """Without an answer from the hub to one short question, let the libraries look into their
    caches only: they would ask again for half a minute."""
    import datasets
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    flags: tuple[Any, ...] = (datasets.config, huggingface_hub.constants)
    before = [module.HF_HUB_OFFLINE for module in flags]
    try:
        huggingface_hub.HfApi().dataset_info(hub_id, revision=revision, timeout=HUB_TIMEOUT_S)
    except HfHubHTTPError:
        pass  # an answer: what it means is said when the rows are loaded
    except Exception:  # the client library's own errors, whichever library that is
        for module in flags:
            module.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for module, flag in zip(flags, before, strict=True):
            module.HF_HUB_OFFLINE = flag
