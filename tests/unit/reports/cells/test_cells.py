"""What a cell says of its metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from harness.core.nouns import Load
from reports.cells import overview
from reports.figures.throughput import against_load
from results import load
from tests.support.results.report_runs import ENGINES, write_run


def test_a_name_that_no_metric_has_is_an_error(tmp_path: Path) -> None:
    """It would read as a number that is not there, or as one that may be believed."""
    (cell, *_) = overview(load(write_run(tmp_path))).cells
    for asked in (cell.value, cell.holds):
        with pytest.raises(KeyError, match="no metric 'e2e_p50_s'"):
            asked("e2e_p50_s")
    assert cell.value("e2e_s_p50") is not None


def test_rates_with_a_limit_are_points_of_a_line_of_their_own(tmp_path: Path) -> None:
    """Other tools hold back what would be too much in flight."""
    loads = [Load("poisson", most, rate=rate) for most in (None, 8) for rate in (4.0, 16.0)]
    one = ENGINES[:1]
    run = write_run(tmp_path, engines=one, workloads=["gsm8k"], loads=loads, repeats=1, requests=8)
    seen = overview(load(run))
    assert seen.loads == [
        *("poisson 4/s", "poisson 4/s, at most 8"),
        *("poisson 16/s", "poisson 16/s, at most 8"),
    ]
    assert [cell.load_value for cell in seen.cells] == [4.0, 4.0, 16.0, 16.0]
    axes = Figure().add_subplot()
    against_load(axes, seen.cells, "requests per second asked for")
    drawn = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    assert [points for points in drawn if points] == [[4.0, 16.0]] * 2
