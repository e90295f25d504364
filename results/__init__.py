"""Stored trials, their metrics, and the statistics that compare them."""

from results.store import Store

__all__ = ["Store"]
