"""Stored trials, their metrics, and the statistics that compare them."""

from results.run import Run, load
from results.store.folder import Store

__all__ = ["Run", "Store", "load"]
