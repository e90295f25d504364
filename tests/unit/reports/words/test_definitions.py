"""Whatever stands on the page is said somewhere on it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import backends
from reports.cells import Cell
from reports.page import write_report
from results import registry
from tests.support.results.report_pages import section
from tests.support.results.report_runs import ENGINES, LOADS, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(
        tmp_path_factory.mktemp("defined"),
        engines=ENGINES,
        workloads=["gsm8k"],
        loads=LOADS[:1],
        repeats=2,
        requests=12,
    )


def _terms(text: str) -> dict[str, str]:
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", section(text, "definitions"), re.DOTALL)
    return {html.unescape(term): html.unescape(said) for term, said in found}


def test_every_backend_is_told_in_the_words_of_list(folder: Path) -> None:
    terms = _terms(write_report(folder, told=backends.about).read_text())
    for name in {engine.name for engine in ENGINES}:
        assert terms[f"{name} (backend)"] == backends.about(name).replace("`", "")
    unknown = _terms(write_report(folder).read_text())
    assert not [term for term in unknown if term.endswith("(backend)")]


@pytest.mark.parametrize("name", sorted(backends.BACKENDS))
def test_what_a_backend_is_takes_a_sentence(name: str) -> None:
    text = backends.about(name)
    assert len(text.split()) >= 12, text
    assert text.endswith(".")


def test_nothing_is_said_of_a_backend_that_is_not_there() -> None:
    assert backends.about("none-such") == ""


def test_every_metric_that_gave_a_number_is_defined(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[str] = set()
    value = Cell.value

    def noted(cell: Cell, name: str) -> float | None:
        found = value(cell, name)
        if found is not None:
            asked.add(name)
        return found

    monkeypatch.setattr(Cell, "value", noted)
    text = write_report(folder).read_text()
    defined = {term.partition(",")[0].partition(" ")[0] for term in _terms(text)}
    names = {m.name for m in registry.METRICS if asked & set(m.keys)}
    assert len(names) > 10
    assert names <= defined


def test_every_column_that_needs_words_has_them_in_the_list(folder: Path) -> None:
    text = write_report(folder).read_text()
    said = set(_terms(text).values())
    helps = set(map(html.unescape, re.findall(r'<th scope="col[^>]* title="([^"]+)"', text)))
    assert len(helps) > 5
    assert helps <= said
