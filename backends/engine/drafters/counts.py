"""What one verification tells of drafts, by the same definitions wherever they were made."""

from __future__ import annotations

import functools
from collections.abc import Mapping


@functools.lru_cache(maxsize=4096)
def draft_counts(
    drafted: int, accepted: int, *, ended: bool, beside: int = 0
) -> Mapping[str, float]:
    """The counts of one verification, for the telemetry.

    A draft is judged when all before it stood: `judged_at_I` and `accepted_at_I` count it, I from
    1. Their quotients are the acceptance at each position; the product of the first I is the share
    of verifications in which the first I drafts stand, were as many made. What lies behind a
    token that ended the answer was never judged, and drafts that were not made are not rejected.

    Args:
        drafted: tokens that were proposed, one after another.
        accepted: those of them that the answer has now.
        ended: the last of these ended the answer, so that no token of the model's own follows.
        beside: further tokens that were proposed for the same positions (`drafters.trees`).

    Returns:
        Kept for the next ones, so not to be written to. A plain dictionary: a read-only view of one
        takes four times as long to copy, for each sequence of each step.
    """
    judged = min(drafted, accepted if ended else accepted + 1)
    counts: dict[str, float] = {"drafted": drafted + beside, "accepted": accepted}
    for place in range(1, judged + 1):
        counts[f"judged_at_{place}"] = 1
        counts[f"accepted_at_{place}"] = float(place <= accepted)
    return counts


NO_DRAFTS: Mapping[str, float] = draft_counts(0, 0, ended=False)
"""Of a verification of nothing but the last token."""
