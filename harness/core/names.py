"""Words that a backend and its readers share: what it can do, and what it counts."""

from __future__ import annotations

SERVER = "server"
"""Capability of a backend whose work is done by processes outside the sweep."""
