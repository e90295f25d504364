"""What tells the rows of a folder apart is asked once of each trial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.nouns import canonical_json
from reports.words.doubts import apart
from tests.support.results.make_trials import record, trial


def test_each_trials_cell_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told once for each setting, which took most of the time of a large folder."""
    told: list[str] = []

    def counted(value: object) -> str:
        told.append(canonical_json(value))
        return told[-1]

    monkeypatch.setattr(apart, "canonical_json", counted)
    records = [record(trial(repeat=n, requests=2 + n % 2, max_new_tokens=8), []) for n in range(6)]
    assert set(apart.apart(records).values()) == {"requests 2", "requests 3"}
    assert len(told) == len(records)


def test_repeats_with_engines_of_their_own_stand_apart_from_those_that_share_one() -> None:
    records = [record(replace(trial(repeat=n), reload=n > 0 or None), []) for n in range(3)]
    assert list(apart.apart(records).values()) == ["reload False", "reload True", "reload True"]
