"""What becomes of a speed-up as the model grows: drawn, told in words, doubted where it is due."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.core.nouns import Measured, Model
from reports.cells import Cell, Overview, overview
from reports.collect import Samples
from reports.sections import Section
from reports.sections.speed import sizes, steps
from reports.words.break_even import pays_from, plain_beside
from reports.words.doubts.overhead import is_overhead_bound, overhead_share, shrinking
from results import load
from tests.support.results.report_runs import ENGINES, LOADS, PLAIN, MadeUpBackend, write_run

MODELS = tuple(Model("0.1b", shape=True, layers=layers) for layers in (1, 2, 4))
SIZES = {"0.1b, 1 layer": 100, "0.1b, 2 layers": 200, "0.1b, 4 layers": 400}
ADADECODE = MadeUpBackend("adadecode", 0.004, {"gamma": 0.75})
"""2.5 times as fast as the reference on one layer, and slower with each more (`write_run`)."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Overview:
    folder = tmp_path_factory.mktemp("sizes")
    engines = (ENGINES[0], ADADECODE, ENGINES[1], PLAIN)
    small: dict[str, Any] = {"workloads": ["gsm8k"], "loads": LOADS[:1], "repeats": 2}
    return overview(load(write_run(folder, engines=engines, models=MODELS, requests=12, **small)))


def with_bytes(seen: Overview, told: Mapping[str, Any] | None = None) -> Overview:
    """The same with what passes read, and metrics of steps for all cells."""

    def known(cell: Cell) -> Cell:
        size = SIZES[cell.model]
        read = {"layer": size // 4, "layers": 3, "head": size - 3 * (size // 4), "kv": 1}
        return dataclasses.replace(
            cell,
            measured=Measured(
                pass_bytes={name: n * 10**6 for name, n in read.items()} | {"layers": 3}
            ),
            metrics={**cell.metrics, **(told or {})},
        )

    return dataclasses.replace(seen, cells=tuple(map(known, seen.cells)))


def changed(seen: Overview, backend: str, **metrics: float | None) -> Overview:
    cells = [
        dataclasses.replace(cell, metrics={**cell.metrics, **metrics})
        if cell.variant.backend == backend
        else cell
        for cell in seen.cells
    ]
    return dataclasses.replace(seen, cells=tuple(cells))


SOUND = {"step_s": 0.01, "overhead_share": 0.1, "floor_share": 0.8}


def test_each_method_has_a_line_over_the_sizes_and_crossings_are_told(run: Overview) -> None:
    seen = with_bytes(run, SOUND)
    found = sizes.section(seen, Samples())
    assert found is not None
    assert found.table is not None
    assert len(found.table.rows) == 9, "three methods on three models, the reference left out"
    (words,) = found.words
    assert words.startswith("Falls below 1, in weights: ")
    assert "adadecode, closed c=1, gsm8k above about 0.25 GB" in words, "2.5, then 1.25, then 0.62"
    assert found.finding == (
        "Of 3 speed-ups from 0.1b, 1 layer to 0.1b, 4 layers 3 fall below 1 as the model grows."
    )
    assert not found.is_open
    assert [len(group.panels) for group in found.groups] == [1]


def test_what_is_not_valid_is_told_so_and_nothing_follows_from_it(run: Overview) -> None:
    def doubtful(cell: Cell) -> Cell:
        return dataclasses.replace(
            cell, valid_trials=0, metrics={**cell.metrics, "void_metrics": []}
        )

    seen = with_bytes(run, SOUND)
    largest = [cell.model == "0.1b, 4 layers" for cell in seen.cells]
    cells = [doubtful(c) if last else c for c, last in zip(seen.cells, largest, strict=True)]
    found = sizes.section(dataclasses.replace(seen, cells=tuple(cells)), Samples())
    assert found is not None
    (text,) = found.words
    assert text.startswith("Not valid: adadecode, closed c=1, gsm8k on 0.1b, 4 layers; ")
    assert text.count(" on 0.1b, 4 layers") == 3
    assert found.finding == (
        "Of 3 speed-ups from 0.1b, 1 layer to 0.1b, 4 layers none is shown to pass 1 as the model "
        "grows; 3 not valid on some of them."
    )


@pytest.mark.parametrize(
    ("own", "share"),
    [
        # 0.75 of the bytes are layers: all of them take 0.0075 s of the plain step
        (0.004, 0.8 - 0.006 / 0.0075),
        (0.0085, 0.6),
        (0.01, 0.8),
        (0.013, 1.2),
        (0.001, 0.0),
    ],
)
def test_leaving_early_pays_from_the_layers_that_it_costs(
    run: Overview, own: float, share: float
) -> None:
    seen = with_bytes(run, {"step_s": 0.01, "overhead_share": 0.0, "early_exit_rate": 0.8})
    seen = changed(seen, "vllm-early-exit", step_s=own)
    seen = dataclasses.replace(
        seen, cells=tuple(c for c in seen.cells if c.variant.backend != "adadecode")
    )
    early = [cell for cell in seen.cells if cell.variant.backend == "vllm-early-exit"]
    assert early
    assert [pays_from(seen, cell) for cell in early] == [pytest.approx(share)] * len(early)
    plain = next(cell for cell in seen.cells if cell.variant.backend == "vllm")
    assert plain_beside(seen, early[0]) is plain
    assert pays_from(seen, plain) is None
    doubted = [
        dataclasses.replace(c, valid_trials=0) if c.variant.backend == "vllm" else c
        for c in seen.cells
    ]
    assert pays_from(dataclasses.replace(seen, cells=tuple(doubted)), early[0]) is None
    assert pays_from(changed(seen, "vllm", overhead_share=None), early[0]) is None
    for floor, known in ((0.8, True), (0.4, False)):
        told = changed(seen, "vllm", overhead_share=None, floor_share=floor)
        assert (pays_from(told, early[0]) == pytest.approx(share)) is known
    alone = dataclasses.replace(seen, cells=tuple(early))
    assert pays_from(alone, early[0]) is None
    for high, known in ((3.9, True), (4.1, False)):
        wide = changed(seen, "vllm-early-exit", speedup_low=2.0, speedup_high=high)
        first = next(cell for cell in wide.cells if cell.variant.backend == "vllm-early-exit")
        assert (pays_from(wide, first) is not None) is known


def test_one_size_says_nothing_about_others(run: Overview) -> None:
    seen = with_bytes(run)
    alone = tuple(cell for cell in seen.cells if cell.model == "0.1b, 1 layer")
    assert sizes.section(dataclasses.replace(seen, cells=alone), Samples()) is None
    assert sizes.section(run, Samples()) is None, "no bytes are known"


def marked(seen: Overview) -> tuple[Section, dict[str, set[str]]]:
    """The section, and by backend what stands at the ends of its rows."""
    found = sizes.section(seen, Samples())
    assert found is not None
    assert found.table is not None
    marks: dict[str, set[str]] = {}
    for row in found.table.rows:
        assert row.variant is not None
        marks.setdefault(row.variant.backend, set()).add(row.cells[-1].text)
    return found, marks


def test_a_ratio_with_an_overhead_bound_side_is_marked(run: Overview) -> None:
    seen = changed(with_bytes(run, SOUND), "vllm", floor_share=0.49)
    found, marks = marked(seen)
    assert marks == {
        "adadecode": {"over the reference overhead-bound: changes with size"},
        "autoregressive": {"overhead-bound: changes with size"},
        "vllm-early-exit": {"overhead-bound: changes with size"},
    }
    (told,) = [text for text in found.words if "beyond it nothing is known: " in text]
    assert told.count("closed c=1") == 3
    assert "; 3 overhead-bound up to 0.1b, 4 layers" in found.finding
    assert {cell.variant.backend for cell in shrinking(seen.cells)} == {
        "adadecode", "vllm-early-exit", "autoregressive",
    }  # fmt: skip


def test_a_ratio_over_plain_decoding_has_sides_of_its_own(run: Overview) -> None:
    seen = changed(with_bytes(run, SOUND), "autoregressive", floor_share=0.49)
    _, marks = marked(seen)
    assert marks == {
        "adadecode": {"over plain overhead-bound: changes with size"},
        "autoregressive": {"overhead-bound: changes with size"},
        "vllm-early-exit": {""},
    }


def test_what_nothing_is_known_of_is_neither_marked_nor_called_sound(run: Overview) -> None:
    found = sizes.section(with_bytes(run), Samples())
    assert found is not None
    assert all("overhead-bound" not in text for text in found.words)
    assert shrinking(run.cells) == set()


def test_an_early_exit_is_predicted_from_plain_layers_checks_and_fills(run: Overview) -> None:
    told = {"early_exit_rate": 0.5, "check_time_share": 0.1, "fill_time_share": 0.1}
    seen = changed(with_bytes(run, SOUND), "vllm-early-exit", **told, step_s=0.008)
    (own,) = [
        one
        for one in sizes.sized(seen)
        if (one.cell.variant.backend, one.cell.model) == ("vllm-early-exit", "0.1b, 1 layer")
    ]
    took = 0.010 * (1 - 0.9 * 0.75 * 0.5) + 0.008 * 0.9 * 0.2
    assert sizes.predicted(own) == pytest.approx(0.010 / took)
    exits = {"1": {"checks": 100, "exits": 60}, "2": {"checks": 40, "exits": 20}}
    reused = dataclasses.replace(
        own.cell,
        effective={"measure": "softmax", "heads": "original"},
        metrics={**own.cell.metrics, "exits_by_layer": exits},
    )
    took -= 0.010 * 0.9 * 0.25 * 0.8
    assert sizes.predicted(own._replace(cell=reused)) == pytest.approx(0.010 / took), (
        "four of five tokens come from the logits of a check"
    )
    assert own.over_plain == own.cell.value("speedup")
    untold = changed(seen, "vllm", step_s=None)
    assert {
        sizes.predicted(o)
        for o in sizes.sized(untold)
        if o.cell.variant.backend == "vllm-early-exit"
    } == {None}


def test_adadecode_is_set_against_our_own_plain_decoding(run: Overview) -> None:
    seen = changed(with_bytes(run, SOUND), "adadecode", predicted_speedup=1.7)
    found = {(o.cell.variant.backend, o.cell.model): o for o in sizes.sized(seen)}
    own = found["adadecode", "0.1b, 2 layers"]
    assert sizes.predicted(own) == 1.7
    crowd = own._replace(cell=dataclasses.replace(own.cell, load_value=8))
    assert sizes.predicted(crowd) is None, "what shared passes cost is not in it"
    assert own.over_plain == own.cell.value("speedup_native")
    assert own.over_plain != own.cell.value("speedup")
    assert found["autoregressive", "0.1b, 2 layers"].over_plain is None


def test_a_step_is_shown_in_its_parts(run: Overview) -> None:
    seen = with_bytes(run, SOUND)
    parts = steps.parts(seen.cells[0])
    assert (parts.floor, parts.passes, parts.engine) == pytest.approx((0.8, 0.1, 0.1))
    found = steps.section(seen, Samples())
    assert found is not None
    assert found.table is not None
    assert len(found.table.rows) == len(seen.cells)
    assert [len(group.panels) for group in found.groups] == [1]
    assert found.words == []


def test_waiting_for_prompts_is_told_beside_the_steps(run: Overview) -> None:
    far = {"step_s": 0.01, "overhead_share": 0.1, "floor_share": 0.3}
    found = steps.section(with_bytes(run, {**far, "prompts_share": 0.5}), Samples())
    assert found is not None
    above, waits = found.words
    assert "In 12 of 12 valid cells over half of a step lies above its floor" in above
    assert waits.startswith("Requests wait for others' prompts up to 50.0% of the time between")
    assert found.table is not None
    assert "for prompts" in {column.title for column in steps.COLUMNS}


@pytest.mark.parametrize(
    ("told", "parts", "share"),
    [
        ({"floor_share": 1.04, "overhead_share": 0.1}, (1.0, 0.0, 0.0), 0.0),
        ({"floor_share": 0.3, "overhead_share": None}, (0.3, 0.7, None), 0.7),
        ({"floor_share": 0.3, "overhead_share": None, "draft_share": 0.6}, (0.3, 0.7, None), 0.25),
        ({"floor_share": 0.3, "overhead_share": 0.2}, (0.3, 0.5, 0.2), 0.7),
        ({"floor_share": None, "overhead_share": 0.6}, (0.0, 0.4, 0.6), 0.6),
        ({"floor_share": None, "overhead_share": None}, (0.0, 1.0, None), None),
    ],
)
def test_parts_add_up_and_what_is_not_known_is_not_shown(
    run: Overview, told: dict[str, Any], parts: tuple[float, ...], share: float | None
) -> None:
    cell = with_bytes(run, {"step_s": 0.01, **told}).cells[0]
    assert tuple(steps.parts(cell)) == pytest.approx(parts)
    assert overhead_share(cell) == (None if share is None else pytest.approx(share))
    assert is_overhead_bound(cell) == (share is not None and share > 0.5)


def test_without_a_bandwidth_the_note_says_how_to_get_one(run: Overview) -> None:
    seen = with_bytes(run, {"step_s": 0.01, "overhead_share": 0.6, "floor_share": None})
    found = steps.section(seen, Samples())
    assert found is not None
    assert "doctor --bandwidth" in found.note
    assert not found.groups
    assert "In 12 of 12 valid cells over half of a step is the engine's overhead" in found.words[0]
    assert steps.section(run, Samples()) is None


def test_the_page_has_both_sections_only_where_there_is_something_to_say(
    run: Overview, tmp_path: Path
) -> None:
    from reports.page import write_report

    small: dict[str, Any] = {"workloads": ["gsm8k"], "loads": LOADS[:1], "repeats": 1}
    text = write_report(write_run(tmp_path, engines=ENGINES[:2], requests=8, **small)).read_text()
    assert 'id="sizes"' not in text
    assert 'id="steps"' not in text
