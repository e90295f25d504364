"""What speed-ups of few repeats are worth is said of each of them, not of the best of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reports.cells import Cell, overview
from reports.words.doubts.few_repeats import sentence
from results import load
from tests.support.results.report_runs import LOADS, MadeUpBackend, write_run


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    """A valid cell beside a reference that is not plain decoding."""
    engines = (MadeUpBackend("vllm", 0.010), MadeUpBackend("fast", 0.005))
    folder = tmp_path_factory.mktemp("few")
    run = write_run(folder, engines=engines, workloads=["gsm8k"], loads=LOADS[:1], requests=8)
    return next(c for c in overview(load(run)).cells if not c.variant.is_reference)


def resting(cell: Cell, over: int, native: int | None = None, void: tuple[str, ...] = ()) -> Cell:
    """The cell with speed-ups that rest on so many repeats."""
    plain: dict[str, Any] = {"speedup_native": native and 1.5, "speedup_native_repeats": native}
    changed = {"speedup": 1.5, "speedup_repeats": over, "void_metrics": void, **plain}
    return replace(cell, metrics={**cell.metrics, **changed})


def test_a_cell_with_many_repeats_hides_no_other(cell: Cell) -> None:
    told = sentence([resting(cell, 4), resting(cell, 2), resting(cell, 2), resting(cell, 3)])
    assert told.startswith("Of 4 valid speed-ups 2 rest on 2 repeats. ")
    assert "in about nine cases of ten with 2 repeats, not in 95%" in told
    assert told.endswith("set repeats to 4, or higher where some are left out.")
    assert sentence([resting(cell, 3)]) == ""


def test_speed_ups_over_plain_decoding_count_too(cell: Cell) -> None:
    told = sentence([resting(cell, 3, 1), resting(cell, 2, 3)])
    assert told.startswith("Of 4 valid speed-ups 1 rests on 1 repeat and 1 rests on 2 repeats. ")
    assert "in about one case of five with 1 repeat, in about nine cases of ten with 2" in told


def test_void_speed_ups_count_where_none_is_valid(cell: Cell) -> None:
    void = resting(cell, 1, void=("speedup",))
    assert sentence([void, resting(cell, 3)]) == ""
    assert sentence([void]).startswith("The one speed-up rests on 1 repeat. ")
    assert sentence([resting(cell, 2)]).startswith("The one valid speed-up rests on 2 repeats. ")
