"""Words that backends say and the harness reads."""

from __future__ import annotations

SERVER = "server"
"""Capability: the work is done by processes outside the sweep."""
COLD_RESET = "cold-reset"
"""Capability of a server: `Backend.reset` empties its caches. In-process engines always do."""
CACHE_TELEMETRY = "cache-telemetry"
"""Capability of a server: it counts `CACHED_TOKENS`."""

CACHED_TOKENS = "cached_tokens"
"""Telemetry: prompt tokens that came from a cache of an earlier request's."""
