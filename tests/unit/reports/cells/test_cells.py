"""What a cell says of its metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.cells import overview
from results import load
from tests.support.results.report_runs import write_run


def test_a_name_that_no_metric_has_is_an_error(tmp_path: Path) -> None:
    """It would read as a number that is not there, or as one that may be believed."""
    (cell, *_) = overview(load(write_run(tmp_path))).cells
    for asked in (cell.value, cell.holds):
        with pytest.raises(KeyError, match="no metric 'e2e_p50_s'"):
            asked("e2e_p50_s")
    assert cell.value("e2e_s_p50") is not None
