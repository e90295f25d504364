"""The page of a history: what changed, where, and the way to the runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports.history.page import write_history
from reports.page import write_report
from results.history.series import history
from tests.support.results.history_runs import write_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(
        tmp_path_factory.mktemp("a runs"), 22,
        lambda n, b: 1.1 if b == "vllm" and n >= 11 else 1.0,
        doubted=lambda n: n == 3,
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(runs: Path) -> str:
    (before,) = runs.glob("run-*-10")
    write_report(before)
    target = runs / "history.html"
    write_history(history([runs], ["tpot_s_p50"]), target)
    return target.read_text()


def test_the_change_stands_in_the_table_with_its_runs(page: str) -> None:
    (row,) = re.findall(r"<tr>\s*<td><a href=\"#(?P<anchor>[\w-]+)\".*?</tr>", page, re.DOTALL)
    assert f'<figure id="{row}">' in page
    table = page[page.index('id="changes"') : page.index('id="series"')]
    for text in (" ms</td>", "%, worse", "c011", "vllm 0.31 → 0.32"):
        assert text in table, text
    # only one of the two runs has a report
    assert re.findall(r'href="(run[^"]*)">(\w+)<', table) == [("run-4-10/report.html", "c010")]


def test_series_that_changed_come_first_and_dots_tell_their_run(page: str) -> None:
    first, second = re.findall(r"<figcaption>.*?</figcaption>", page, re.DOTALL)
    assert "vllm" in first
    assert "worse between c010 and c011" in first
    assert "autoregressive" in second
    assert "between" not in second
    assert "c005: " in page
    assert "c003: " not in page, "not sound: a hollow dot without a value"


def test_it_says_what_was_left_out_and_loads_nothing(page: str) -> None:
    assert "2 values of trials that are not sound left out" in page
    assert "1 change in 2 series over 22 runs" in page
    assert not re.search(r'(src|href)="https?:', page)
    assert "<script" not in page


def test_short_histories_say_that_they_are_short(tmp_path: Path) -> None:
    found = history([write_runs(tmp_path, 3)], ["tpot_s_p50"])
    write_history(found, tmp_path / "h.html")
    text = (tmp_path / "h.html").read_text()
    assert "2 of 2 series may miss a change" in text
    assert "the longest has 3" in text
    assert 'id="changes"' not in text


def test_everything_unsound_is_still_a_page(tmp_path: Path) -> None:
    found = history([write_runs(tmp_path, 3, doubted=lambda n: True)], ["tpot_s_p50"])
    write_history(found, tmp_path / "h.html")
    assert (tmp_path / "h.html").read_text().count("<figure") == 2


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    folder = write_runs(tmp_path, 22, lambda n, b: 1.0 if n < 11 else 1.3,
                        environment=lambda n: {"commit": f"<b>{n}"})  # fmt: skip
    write_history(history([folder], ["tpot_s_p50"]), tmp_path / "h.html")
    assert "<b>" not in (tmp_path / "h.html").read_text()


def test_values_near_to_each_other_are_told_apart(tmp_path: Path) -> None:
    """A wander of 0.1% was drawn between ticks of one label, with notes of one number."""
    folder = write_runs(tmp_path, 6, noise=0.0005)
    write_history(history([folder], ["tpot_s_p50"]), tmp_path / "h.html")
    for figure in re.findall("<figure.*?</figure>", (tmp_path / "h.html").read_text(), re.DOTALL):
        for pattern in (r">([\d.]+)</text>", r"<title>\w+: ([\d.]+) ms</title>"):
            told = re.findall(pattern, figure)
            assert len(told) == len(set(told)) > 2, told
