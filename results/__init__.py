"""Stored trials, their metrics, and the statistics that compare them.

What is offered here is imported when it is asked for: backends read `results.traces`, and neither
their start nor what their trials are pinned by (`harness.core.closure`) is to hold the metrics.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.run import Run, load
    from results.store.folder import Store

__all__ = ["Run", "Store", "load"]
_HOMES = {"Run": ".run", "load": ".run", "Store": ".store.folder"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
