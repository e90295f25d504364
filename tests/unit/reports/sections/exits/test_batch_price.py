"""What leaving together costs a batch: table, curves and sentences of the section "exitbatch"."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from reports.cells import Cell, Overview, overview
from reports.collect import Samples
from reports.page import write_report
from reports.sections.exits import batch_price
from reports.words import techniques
from results import load
from results.metrics import batch_exits
from tests.support.batch_steps import BatchSteps
from tests.support.results.report_pages import leaving, rows, section, written
from tests.support.results.report_runs import BATCHES, ENGINES, MadeUpBackend


@pytest.fixture(scope="module")
def seen(leaving_dir: Path) -> Overview:
    return overview(load(leaving_dir))


@pytest.fixture(scope="module")
def text(leaving_dir: Path) -> str:
    return write_report(leaving_dir).read_text()


def test_exits_on_a_schedule_are_no_sequences_of_their_own(tmp_path: Path) -> None:
    turns = BatchSteps((0.5, 0.5, 0.5), measure="schedule")
    engines = (
        ENGINES[0],
        MadeUpBackend("vllm-early-exit", 0.3, {"measure": "schedule"}, exits=turns),
    )
    text = section(written(tmp_path, *engines, loads=BATCHES[1:2]), "exitbatch")
    assert "Nothing is drawn" in text
    assert "a sequence alone would leave" not in text


def test_the_price_of_the_batch_is_what_was_counted(seen: Overview, text: str) -> None:
    found = rows(text, "exitbatch")
    cells = leaving(seen)
    assert len(found) == len(cells) == 20
    for cell, row in zip(cells, found, strict=True):
        own, steps = batch_exits.profile(cell.metrics), batch_exits.measured(cell.metrics)
        assert own is not None
        layers = [own.layer(1), batch_exits.mean_layer(batch_exits.expected(steps, own))]
        for layer in (*layers, batch_exits.mean_layer(steps)):
            assert f'data-sort="{layer!r}"' in row
        for name in ("mixed_step_share", "mean_decode_batch"):
            assert f'data-sort="{cell.value(name)!r}"' in row
        untimed = cell.effective["measure"] == "state"
        assert ("the run took no times of steps" in row) == untimed
        if not untimed:
            assert f'data-sort="{cell.value("check_time_share")!r}"' in row
            assert f'data-sort="{cell.value("fill_time_share")!r}"' in row


def test_headings_under_a_shared_one_explain_themselves_too(text: str) -> None:
    heads = re.findall(r"<thead>.*?</thead>", section(text, "exitbatch"), re.DOTALL)[0]
    assert re.search(r'<th [^>]*title="where the batches left">measured</th>', heads)


def test_theory_from_the_least_load_is_told_beside_the_load_s_own(seen: Overview) -> None:
    soft = [c for c in leaving(seen) if c.workload == "gsm8k" and c.variant.index == 2]
    one, four = soft
    drawn = batch_price.section(dataclasses.replace(seen, cells=tuple(soft)), Samples())
    assert drawn is not None
    assert drawn.table is not None
    alone, steps = batch_exits.profile(one.metrics), batch_exits.measured(four.metrics)
    assert alone is not None
    told = [item.sort for item in drawn.table.rows[1].cells]
    assert told[7] == repr(batch_exits.mean_layer(batch_exits.expected(steps, alone)))
    assert told[6] != told[7]


def test_the_sentence_says_what_batches_keep(seen: Overview, text: str) -> None:
    (sentence,) = re.findall(
        r"<p>(vllm-early-exit under closed c=4: .*?)</p>", section(text, "exitbatch")
    )
    words = r"layer ([\d.]+) of 8.* leave at ([\d.]+); they left at ([\d.]+), .* ([\d.]+)% of"
    alone, theory, measured, kept = map(float, re.findall(words, sentence.replace("&#39;", "'"))[0])
    assert kept == pytest.approx(100 * (8 - measured) / (8 - alone), abs=0.5)
    assert measured == pytest.approx(theory, abs=0.15), "made-up sequences are independent"
    assert "means over 8 cells" in sentence
    assert "closed c=1," not in section(text, "exitbatch").partition('<p class="note">')[0]


def test_curves_are_drawn_for_techniques_whose_exits_vary(text: str) -> None:
    drawn = section(text, "exitbatch")
    titles = re.findall(r"<title[^>]*>Exit layer against batch size: ([^<]+)</title>", drawn)
    assert len(titles) == 8
    assert not [title for title in titles if title.startswith("static")]
    notes = re.findall(
        r"closed c=4, 4 in the batch, [\d,]+ steps: layer [\d.]+, independent", drawn
    )
    assert len(notes) == 3 * 8, "a dot, a ring and a bar for each"
    assert drawn.count("theory, exits counted over") == 8


def test_each_backend_has_a_sentence_of_its_own(seen: Overview) -> None:
    own = [cell for cell in leaving(seen) if cell.load == "closed c=4"]
    other = dataclasses.replace(own[0].variant, backend="tetris", index=99)
    cells = [*own, *(dataclasses.replace(cell, variant=other) for cell in own[:8])]
    made = batch_price.section(dataclasses.replace(seen, cells=tuple(cells)), Samples())
    assert made is not None
    whose = [words.partition(":")[0] for words in made.words]
    assert whose == ["vllm-early-exit under closed c=4", "tetris under closed c=4"]
    alone = batch_price.section(dataclasses.replace(seen, cells=tuple(own)), Samples())
    assert alone is not None
    assert alone.words[0] == made.words[0], "what another one does is not in it"


def test_a_rounding_of_sums_is_no_layer(seen: Overview, monkeypatch: pytest.MonkeyPatch) -> None:
    """A static exit leaves where its sequences would, whatever is added up in between."""
    exact = batch_price._layer
    monkeypatch.setattr(batch_price, "_layer", lambda found: exact(found) + 2.66e-14)
    static = [c for c in leaving(seen) if c.load == "closed c=1"][:1]
    made = batch_price.section(dataclasses.replace(seen, cells=tuple(static)), Samples())
    assert made is not None
    assert "e-" not in str(made.finding)
    assert "0.0000" not in str(made.finding)
    assert "Batches left up to 0 layers deeper" in str(made.finding)


def test_rows_of_several_backends_are_told_apart(seen: Overview) -> None:
    own = leaving(seen)[0]
    assert techniques.naming([own])(own) == techniques.label(own)
    other = dataclasses.replace(own, variant=dataclasses.replace(own.variant, backend="tetris"))
    named = techniques.naming([own, other])
    assert named(other) == f"tetris {techniques.label(own)}"
    assert named(own) != named(other)


def alike(cell: Cell, backend: str, **changes: Any) -> Cell:
    """The cell as another backend's, of which everybody left where it was confident itself."""
    counts = {
        layer: {**one, "exits": one["own_exits"]}
        for layer, one in cell.metrics["exits_by_layer"].items()
    }
    return dataclasses.replace(
        cell,
        variant=dataclasses.replace(cell.variant, backend=backend, index=99),
        metrics={**cell.metrics, "exits_by_layer": counts, **changes},
    )


def test_sequences_that_leave_one_by_one_have_no_theory_of_batches(seen: Overview) -> None:
    (four,) = (
        c for c in leaving(seen)
        if (c.workload, c.variant.index, c.load) == ("gsm8k", 2, "closed c=4")
    )  # fmt: skip
    made = batch_price.section(
        dataclasses.replace(seen, cells=(four, alike(four, "tetris"))), Samples()
    )
    assert made is not None
    assert made.table is not None
    assert [group.title for group in made.groups] == [four.variant.label]
    assert "Sequences of tetris leave one by one, and wait for no other. ●" in made.note
    assert "each left by itself, at layer " in made.words[1]
    assert [bool(row.cells[6].text) for row in made.table.rows] == [True, False]
    alone = batch_price.section(
        dataclasses.replace(seen, cells=(alike(four, "tetris"),)), Samples()
    )
    assert alone is not None
    assert alone.finding == "Sequences leave one by one: no batch holds them back."
    assert "A step ends when" not in alone.note


def test_few_steps_stand_in_the_table_alone(seen: Overview) -> None:
    (four,) = (
        c for c in leaving(seen)
        if (c.workload, c.variant.index, c.load) == ("gsm8k", 2, "closed c=4")
    )  # fmt: skip
    few = {"exits_by_batch": {"4": {"steps": 49.0, "layers": 300.0}}}
    cell = dataclasses.replace(four, metrics={**four.metrics, **few})
    made = batch_price.section(dataclasses.replace(seen, cells=(cell,)), Samples())
    assert made is not None
    assert made.table is not None
    assert (made.groups, made.words, len(made.table.rows)) == ([], [], 1)
    assert made.finding == "No load has 50 steps without a prompt."
