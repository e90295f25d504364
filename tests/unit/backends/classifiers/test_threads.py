from __future__ import annotations

import pytest
import torch

from backends.classifiers.backend import set_threads
from harness.core.processes import cores


@pytest.mark.parametrize(("asked", "given"), [(None, 3), (7, 7)])
def test_a_classifier_takes_what_its_quota_is_worth_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, given: int
) -> None:
    told: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    monkeypatch.setattr(cores, "own_cores", lambda: frozenset(range(16)))
    monkeypatch.setattr(cores, "cpu_quota", lambda: 2.5)
    assert set_threads({"threads": asked}) == given
    assert told == [given]
