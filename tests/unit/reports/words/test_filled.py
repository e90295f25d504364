"""Loads that fill no system: said beside their rates, and only there."""

from __future__ import annotations

import dataclasses
import html
from pathlib import Path

import pytest

from harness.core.nouns import Load, Slo
from reports.cells import Cell, Overview, overview
from reports.collect import OpenRepeat, Samples, collect
from reports.page import write_report
from reports.sections.speed import goodput
from reports.words.doubts.filled import offered_load, sentences, told_beside, unfilled
from reports.words.ranking.scoped import scoped_verdicts
from results import load
from tests.support.results.report_pages import rows, section
from tests.support.results.report_runs import ENGINES, write_run

POISSON, CLOSED = "poisson 4/s", "closed c=1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests come in fours every half second and are answered in less."""
    return write_run(
        tmp_path_factory.mktemp("filled"),
        engines=ENGINES[:2],
        workloads=["gsm8k"],
        loads=[Load("closed", concurrency=1), Load("poisson", rate=4.0)],
        repeats=2,
        slo=Slo(ttft_ms=500, tpot_ms=500),
    )


@pytest.fixture(scope="module")
def told(folder: Path) -> tuple[Overview, Samples]:
    """Its cells, and what was collected of its requests."""
    run = load(folder)
    seen = overview(run)
    return seen, collect(run, seen)


def _with(cell: Cell, samples: Samples, answered: float, busy: float, *kept_up: bool) -> bool:
    """Whether the cell's rate is the load's, had so much been answered of 10 a second."""
    changed = {**cell.metrics, "realised_rate_per_s": 10.0, "request_per_s": answered}
    made = dataclasses.replace(cell, metrics=changed)
    samples.open_repeats[made] = [OpenRepeat(busy, one) for one in kept_up or (False,)]
    found = offered_load(made, samples)
    assert found is not None
    return found.is_the_loads


def test_a_rate_is_the_loads_where_all_was_answered_or_the_system_idle(
    told: tuple[Overview, Samples],
) -> None:
    seen, samples = told
    cell = next(c for c in seen.cells if c.load == POISSON)
    assert _with(cell, samples, answered=9.5, busy=1.0), "as many as came"
    assert _with(cell, samples, answered=5.0, busy=0.6), "idle: the last answer was long"
    assert _with(cell, samples, 8.0, 1.0, True, True, False), "no queue grew: the end is long"
    assert not _with(cell, samples, 8.0, 1.0, True, False, False), "in one repeat of three"
    assert not _with(cell, samples, answered=5.0, busy=1.0), "a queue in front of it"


def test_closed_loads_say_nothing(told: tuple[Overview, Samples]) -> None:
    seen, samples = told
    assert {one.cell.load for one in unfilled(seen.cells, samples)} == {POISSON}
    assert list(told_beside(seen.loads, seen.cells, samples)) == [POISSON]
    closed = [cell for cell in seen.cells if cell.load == CLOSED]
    assert list(sentences(closed, samples)) == []


def test_the_words_have_what_came_and_how_busy_they_were(told: tuple[Overview, Samples]) -> None:
    seen, samples = told
    own = [one for c in seen.cells if (one := offered_load(c, samples))]
    assert all(one.is_the_loads for one in own)
    (text,) = sentences(seen.cells, samples)
    assert text.startswith(f"No system is filled by {POISSON}: ")
    assert f"{own[0].offered:.2f}" in text
    assert f"{100 * min(one.busy for one in own):.1f}" in text
    assert "the load's, not the system's" in text


def test_where_some_are_filled_it_says_how_many_are_not(told: tuple[Overview, Samples]) -> None:
    seen, samples = told
    own = [cell for cell in seen.cells if cell.load == POISSON]
    queue = dataclasses.replace(own[0], metrics={**own[0].metrics, "request_per_s": 0.5})
    busy = dataclasses.replace(
        samples,
        open_repeats={queue: [OpenRepeat(1.0, False)], own[1]: samples.open_repeats[own[1]]},
    )
    (text,) = sentences([queue, own[1]], busy)
    assert text.startswith(f"1 of 2 cells are not filled by {POISSON}: ")
    assert "in 1 of 2 cells" in told_beside([POISSON], [queue, own[1]], busy)[POISSON]


def test_it_stands_beside_the_load_wherever_a_rate_does(
    folder: Path, told: tuple[Overview, Samples]
) -> None:
    text = html.unescape(write_report(folder).read_text())
    for row in rows(text, "results"):
        assert row.count("the load's") == (2 if f'data-load="{POISSON}"' in row else 0)
    captions = section(text, "throughput").split("<figcaption>")[1:]
    assert [part.partition("<")[0].partition(" (")[0] for part in captions] == [CLOSED, POISSON]
    assert "fills no system" in captions[1].partition("</figcaption>")[0]
    for name in ("results", "throughput", "load", "goodput"):
        assert f"No system is filled by {POISSON}" in section(text, name), name
    seen, samples = told
    (choice,) = (
        row
        for _, found in scoped_verdicts(seen, samples, 0.05)[0].choices
        for row in found
        if row.load == POISSON
    )
    assert "fills no system" in choice.load_words


def test_the_goodput_sentence_says_whose_rate_it_is(told: tuple[Overview, Samples]) -> None:
    seen, samples = told
    assert "fills no system: rates are the load's" in goodput.section(seen, samples).finding
