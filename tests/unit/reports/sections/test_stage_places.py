"""The section "stages" says where stages ran."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from reports.cells import overview
from reports.collect import Samples
from reports.page import write_report
from reports.sections import stages
from tests.support.results.stored_runs import run_of
from tests.unit.reports.sections.test_stages import of


def test_a_stage_says_where_it_ran_if_that_was_elsewhere(tmp_path: Path) -> None:
    listed = [{"name": "tetris", "options": {"kernels": "native"}}]
    seen = overview(run_of(tmp_path, of("tetris", "gsm8k", 0), backends=listed))

    def told(*repeats: list[dict[str, Any]]) -> list[str]:
        samples = Samples()
        for cell in seen.cells:
            samples.workers[cell] += repeats
        made = stages.section(seen, samples)
        assert made is not None
        assert made.table is not None
        return [row.cells[2].small for row in made.table.rows]

    def worker(stage: int, **more: Any) -> dict[str, Any]:
        return {"stage": stage, "replica": 1, "host": "h", "device": "GPU9", **more}

    assert told() == ["", ""]
    assert told([worker(1), worker(2)]) == ["", ""], "cores of this machine"
    half = {"node": "10.0.0.2", "card": "0", "reserved": {"GPU": 0.5}}
    there = [worker(1, **half), worker(1, **half), worker(2, card="1")]
    assert told(there) == ["2 × GPU9 (0.5 of it) on 10.0.0.2", "GPU9 GPU 1"]
    moved = [worker(1, **half), worker(1, **{**half, "node": "10.0.0.3"}), worker(2, card="1")]
    assert told(there, moved) == [
        "2 × GPU9 (0.5 of it) on 10.0.0.2, elsewhere in other repeats",
        "GPU9 GPU 1",
    ]
    any_stage = [{"worker": 1, "device": "CPU9", "node": "10.0.0.2"}]
    assert told(any_stage) == ["CPU9 on 10.0.0.2"] * 2


def test_the_page_has_where_stages_ran_and_not_among_the_environment(tmp_path: Path) -> None:
    where = {"device": "Model-9", "host": "h", "node": "10.0.0.2"}
    workers = [{"stage": 1, "replica": 1, **where}, {"stage": 2, "replica": 1, **where}]
    one = of("tetris", "gsm8k", 0)
    one = dataclasses.replace(one, environment={**one.environment, "workers": workers})
    run_of(tmp_path, one, backends=[{"name": "tetris", "options": {"kernels": "native"}}])
    page = write_report(tmp_path).read_text()
    assert page.count("Model-9 on 10.0.0.2") == page.count("Model-9") == 2
