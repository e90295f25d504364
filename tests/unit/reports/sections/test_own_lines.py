"""The line of a section says what the section shows, and from the same cells."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.core.nouns import REPLAYED
from reports.cells import Overview, overview
from reports.collect import Samples
from reports.numbers import percent
from reports.sections.answers import tradeoff
from reports.sections.exits import techniques
from reports.sections.speed import load as over_load
from results import load
from tests.support.results.report_pages import leaving
from tests.support.results.report_runs import LOADS, MadeUpBackend, write_run

REFERENCE = MadeUpBackend("vllm", 0.010)
FAST = MadeUpBackend("fast", 0.005)
SHOWN = (
    "shown to be faster than the reference (each by its own interval: about 0.05 of 2 equal ones "
    "would be too)"
)


def written(folder: Path, *engines: MadeUpBackend) -> Overview:
    run = write_run(folder, engines=engines, workloads=["gsm8k"], loads=LOADS[:2], requests=8)
    return overview(load(run))


def test_replays_have_speed_ups_and_no_answers_to_draw(tmp_path: Path) -> None:
    replays = [dataclasses.replace(e, provenance=REPLAYED) for e in (REFERENCE, FAST)]
    found = tradeoff.section(written(tmp_path, *replays), Samples())
    assert found.finding.startswith("Of 2 valid cells with replayed decisions 2 are shown to")
    assert found.note == "Nothing to draw: decisions were replayed, which says nothing of answers."


@pytest.mark.parametrize(
    ("lows", "replayed", "line"),
    [
        (
            [0.9],
            True,
            "The 1 valid cell with replayed decisions is not shown to be faster than the ",
        ),
        ([1.1], True, "The 1 valid cell with replayed decisions is shown to be faster than the "),
        ([0.9, 0.9], False, "None of 2 valid cells is shown to be faster than the reference."),
        ([0.9, 1.1], False, f"Of 2 valid cells 1 is {SHOWN}, with all "),
        ([1.1, 1.1], False, f"Of 2 valid cells 2 are {SHOWN}, 2 of these"),
    ],
)
def test_the_line_counts_one_and_none_as_one_says_it(
    tmp_path: Path, lows: list[float], replayed: bool, line: str
) -> None:
    seen = written(tmp_path, REFERENCE, FAST)
    own = [cell for cell in seen.cells if not cell.variant.is_reference]
    cells = tuple(
        dataclasses.replace(
            cell,
            variant=dataclasses.replace(cell.variant, is_replay=replayed),
            metrics={**cell.metrics, "speedup_low": low},
        )
        for cell, low in zip(own, lows, strict=False)
    )
    assert tradeoff._finding(dataclasses.replace(seen, cells=cells)).startswith(line)


def test_no_cell_of_one_repeat_is_shown_to_be_faster(tmp_path: Path) -> None:
    seen = written(tmp_path, REFERENCE, FAST)
    cells = tuple(
        dataclasses.replace(cell, metrics={**cell.metrics, "speedup_repeats": 1})
        for cell in seen.cells
    )
    found = tradeoff._finding(dataclasses.replace(seen, cells=cells))
    assert found == "None of 2 valid cells is shown to be faster than the reference."


def test_without_a_speed_up_nothing_could_be_compared(tmp_path: Path) -> None:
    found = tradeoff.section(written(tmp_path, REFERENCE), Samples())
    assert found.note == "Nothing to draw: no backend could be compared with the reference."


def test_noise_leaves_skipped_layers_in_the_line_as_in_the_table(leaving_dir: Path) -> None:
    seen = overview(load(leaving_dir))
    least, *_, most = sorted(leaving(seen), key=lambda c: c.value("early_exit_rate") or 0.0)
    noise = {"machine-noisy": (2, "noisy")}
    cells = tuple(
        cell if cell is least else dataclasses.replace(cell, valid_trials=0, reasons=noise)
        for cell in seen.cells
    )
    found = techniques.section(dataclasses.replace(seen, cells=cells), Samples())
    assert found is not None
    assert f" to {percent(most.value('early_exit_rate') or 0.0)}% (" in found.finding


def test_growth_of_one_backend_is_no_span(tmp_path: Path) -> None:
    seen = written(tmp_path, REFERENCE)
    said = over_load.section(seen, Samples()).finding
    assert said.count(" times (vllm), on average over the workloads.") == 1
    assert "to 8 requests at a time throughput grows " in said
    assert said.count("(vllm)") == 1


def test_growth_that_is_not_valid_is_named_as_that(tmp_path: Path) -> None:
    """The title named the only backend that is valid at both ends, as if none had grown more."""
    seen = written(tmp_path, REFERENCE, FAST)
    plain = over_load._finding(seen)
    noise = {"machine-noisy": (1, "noisy")}

    def grown(times: float) -> str:
        cells = tuple(
            dataclasses.replace(
                cell,
                valid_trials=0,
                reasons=noise,
                metrics={**cell.metrics, "output_tok_per_s": 100 * times ** (cell.order > 0)},
            )
            if cell.variant.backend == "fast"
            else cell
            for cell in seen.cells
        )
        return over_load._finding(dataclasses.replace(seen, cells=cells))

    assert "valid" not in plain
    assert grown(50).endswith(
        "; valid at both: 1 of 2 backends; higher, but not valid: 50.00 times (fast)."
    )
    assert grown(0.5).endswith("; lower, but not valid: 0.50 times (fast).")


def test_loads_of_which_none_is_valid_are_still_loads(tmp_path: Path) -> None:
    seen = written(tmp_path, REFERENCE)
    noise = {"machine-noisy": (1, "noisy")}
    void = tuple(dataclasses.replace(c, valid_trials=0, reasons=noise) for c in seen.cells)
    said = over_load._finding(dataclasses.replace(seen, cells=void))
    assert said.startswith("No backend has a valid cell at both")
