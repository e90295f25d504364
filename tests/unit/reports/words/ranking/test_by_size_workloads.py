"""Methods that stand beside each other in the table by size are compared on the same workloads."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import pytest

from harness.core.nouns import Model
from reports.cells import Cell, Overview, overview
from reports.words.ranking.by_size import MethodRow, by_size
from results import load
from tests.support.results.made_effects import made_effects
from tests.support.results.report_runs import ENGINES, LOADS, write_run

MODELS = tuple(Model("0.1b", shape=True, layers=layers) for layers in (1, 2))
FIRST, SECOND = 0.8, 0.9
"""Thresholds of two methods on one engine."""
SPEEDS = {
    (FIRST, "gsm8k"): 1.8,
    (FIRST, "xsum"): 1.1,
    (SECOND, "gsm8k"): 1.6,
    (SECOND, "xsum"): 1.5,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Overview:
    folder = write_run(
        tmp_path_factory.mktemp("workloads"), engines=ENGINES[:3], workloads=["gsm8k", "xsum"],
        loads=LOADS[:1], models=MODELS, repeats=2, requests=4,
    )  # fmt: skip
    return overview(load(folder))


def rows(seen: Overview, void: Collection[tuple[float, str]]) -> Mapping[float, MethodRow]:
    """By threshold, with the speed-ups of `SPEEDS`; those of `void` are not valid."""

    def made(cell: Cell) -> Cell:
        if cell.variant.is_reference:
            return cell
        key = cell.variant.options["threshold"], cell.workload.partition(" ")[0]
        value = SPEEDS[key]
        ends = value - 0.05, value + 0.05
        return dataclasses.replace(
            cell,
            metrics={
                **cell.metrics, "speedup": value, "speedup_low": ends[0], "speedup_high": ends[1],
                "void_metrics": ["speedup"] if key in void else [],
            },
            effects={"speedup": made_effects(value, *ends, cell.workload)},
        )  # fmt: skip

    (table,) = by_size(dataclasses.replace(seen, cells=tuple(map(made, seen.cells))))
    assert {len(row.cells) for row in table.table.rows} == {6}
    alone = [gain.small.endswith(" alone") for row in table.rows for gain in row.on]
    assert table.has_apart == any(alone)
    return {row.variant.options["threshold"]: row for row in table.rows}


def test_a_mean_over_other_workloads_does_not_win(run: Overview) -> None:
    """1.41 over both is less than 1.6 over one, on which it is 1.8."""
    found = rows(run, [(SECOND, "xsum")])
    for at in range(2):
        values = {name: gain.value for name, row in found.items() if (gain := row.gains[at])}
        assert values == pytest.approx({FIRST: 1.8, SECOND: 1.6})
        assert {name: row.best[at] for name, row in found.items()} == {FIRST: True, SECOND: False}
        assert all(row.on[at].small.endswith("], 1 of 2 workloads") for row in found.values())
    assert [row.whole and row.whole.value for row in found.values()] == pytest.approx([1.8, 1.6])
    assert found[FIRST].last.small == "[1.75, 1.85], 1 of 2 workloads"


def test_over_all_workloads_nothing_is_said_of_them(run: Overview) -> None:
    found = rows(run, [])
    first, second = (found[name].gains[0] for name in (FIRST, SECOND))
    assert first is not None
    assert second is not None
    assert (first.value, second.value) == pytest.approx(((1.8 * 1.1) ** 0.5, 2.4**0.5))
    assert {name: row.best[0] for name, row in found.items()} == {FIRST: False, SECOND: True}
    assert not any("workload" in gain.small for row in found.values() for gain in row.on)


def test_without_a_workload_that_is_sound_for_all_none_is_the_best(run: Overview) -> None:
    found = rows(run, [(FIRST, "xsum"), (SECOND, "gsm8k")])
    values = {name: gain.value for name, row in found.items() if (gain := row.gains[0])}
    assert values == pytest.approx({FIRST: 1.8, SECOND: 1.5})
    assert not any(is_best for row in found.values() for is_best in row.best)
    told = [row.on[0].small for row in found.values()]
    assert told == ["[1.75, 1.85], gsm8k alone", "[1.45, 1.55], xsum alone"], (
        "numbers of other workloads looked like numbers of the same one"
    )


def test_who_is_sound_nowhere_is_struck_and_leaves_the_others_theirs(run: Overview) -> None:
    found = rows(run, [(SECOND, "gsm8k"), (SECOND, "xsum")])
    gain = found[FIRST].gains[0]
    assert gain is not None
    assert gain.value == pytest.approx((1.8 * 1.1) ** 0.5)
    assert [row.on[0].marks for row in found.values()] == ["", "struck"]
    assert not any("workload" in gain.small for row in found.values() for gain in row.on)
