"""Which requests and trials belong together."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import results
from results.metrics import cells
from results.pairing import data_rows
from tests.unit.results.make import generation, record, trial


def test_a_row_that_is_asked_again_is_found_by_its_id() -> None:
    rows = data_rows(["g-0", "g-1", "g-0#2", "g-1#2", "g-0#3"])
    assert rows is not None
    assert rows.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    "ids", [[], ["a", "b"], ["issue#1", "issue#2"], ["a", "a#b"], ["a#", "#2"]]
)
def test_ids_of_rows_that_hold_the_sign_themselves_are_rows_of_their_own(ids: list[str]) -> None:
    assert data_rows(ids) is None


def test_a_cell_of_one_row_asked_often_claims_no_interval(tmp_path: Path) -> None:
    """Eight pairs of eight rows have one; eight pairs of one row are a single piece of evidence."""
    bounds = []
    for names in ([f"r{n}" for n in range(8)], ["r", *(f"r#{n}" for n in range(2, 9))]):
        store = results.Store(tmp_path / names[0])
        store.write_experiment(yaml.safe_dump({"name": "t", "reference": "vllm"}))
        for backend, step in (("vllm", 20.0), ("fast", 10.0)):
            generations = [generation(name, [0, step + place]) for place, name in enumerate(names)]
            store.write(record(trial(backend), generations))
        (cell,) = [c for c in cells(results.load(store.path)) if c["backend"] == "fast"]
        assert cell["speedup"] == pytest.approx(1.758, abs=0.001)
        bounds.append(cell["speedup_low"])
    assert bounds[0] is not None
    assert bounds[1] is None
