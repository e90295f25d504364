"""Which records of a run folder stand for its trials, where it holds more than one of a trial.

A run leaves the record of an older state of the code until the same trial, run by today's, ended
well; folders that are copied together hold what both of them measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from results.store.folder import Store
from results.store.records import StoredTrial


def newest(store: Store, stored: Sequence[StoredTrial]) -> list[StoredTrial]:
    """Of each trial on each machine the record that was begun last, however it ended; in the order
    given."""

    def age(one: StoredTrial) -> tuple[str, int]:
        # started_at has whole seconds
        return one.record.started_at, store.payload_state(one.record.key)[1]

    found: dict[str, StoredTrial] = {}
    for one in stored:
        place = one.record.trial.key(str(one.record.environment.get("fingerprint")))
        if place not in found or age(one) > age(found[place]):
            found[place] = one
    kept = {one.record.key for one in found.values()}
    return [one for one in stored if one.record.key in kept]
