"""The throughput of labels over runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.nouns import Load
from results.history.series import history
from tests.support.results.history_runs import write_runs
from tests.support.results.label_runs import label_run

RATES = ("output_tok_per_s", "request_per_s")


def followed(folder: Path, load: Load, *metrics: str) -> dict[str, list[float]]:
    """By metric, the first rival's values in two runs."""
    for day, slower in ((1, 1.0), (2, 2.0)):
        label_run(folder / str(day), [load], slower=[slower] * 3, day=day)
    found = [one for one in history([folder], metrics).series if "early" in one.cell.backend]
    return {one.key: [point.value for point in one.points] for one in found}


def test_labels_are_followed_by_requests_a_second(tmp_path: Path) -> None:
    found = followed(tmp_path, Load("closed", concurrency=1))
    assert found["request_per_s"] == pytest.approx([250.0, 125.0])
    assert "output_tok_per_s" not in found


def test_the_rate_of_an_open_load_is_its_own(tmp_path: Path) -> None:
    load = Load("poisson", rate=4.0)
    assert not followed(tmp_path, load).keys() & {*RATES}
    assert list(followed(tmp_path, load, "request_per_s")) == ["request_per_s"], "asked for"


def test_texts_are_followed_by_tokens_a_second(tmp_path: Path) -> None:
    found = history([write_runs(tmp_path, 2)]).series
    assert {one.key for one in found} & {*RATES} == {"output_tok_per_s"}
    asked = history([tmp_path], RATES).series
    assert {one.key for one in asked} == {*RATES}
