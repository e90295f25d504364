"""The page over a folder of runs: what each says, and only what is newer is read again."""

from __future__ import annotations

import os
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main as cli
from reports import index
from reports.page import render, write_report
from reports.words.ranking.choices import Choice, choices
from tests.support.results.report_runs import ENGINES, LOADS, write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, engines in (("first", ENGINES[:2]), ("second & <b>third", ENGINES[:1])):
        write_run(tmp_path / name, engines=engines, workloads=["gsm8k"], loads=LOADS[:1], repeats=2)
        for written in ("trials", "experiment.yaml"):
            os.utime(tmp_path / name / written, (10**9, 10**9))
    return tmp_path


def test_each_run_is_listed_with_its_choice_and_a_link(runs: Path) -> None:
    page = index.write_index(runs).read_text()
    assert page.count('class="muted"') >= 2
    assert 'href="first/report.html"' in page
    assert 'href="second%20%26%20%3Cb%3Ethird/report.html"' in page
    assert (runs / "first/report.html").is_file()
    assert "<b>third" not in page
    assert page.count("at a time): <strong>") == 1, "the second has nothing to choose from"


def test_reports_are_written_again_only_for_what_is_new(runs: Path) -> None:
    index.write_index(runs)
    written: list[str] = []

    def write(run: Path) -> Path:
        written.append(run.name)
        return write_report(run)

    index.write_index(runs, write)
    assert written == []
    stamp = (runs / "first/report.html").stat().st_mtime_ns + 10**9
    os.utime(runs / "first/trials", ns=(stamp, stamp))
    index.write_index(runs, write)
    assert written == ["first"]
    (runs / "first/report.html").write_text("<html><head><title>another version's</title>")
    os.utime(runs / "first/report.html", ns=(stamp + 1, stamp + 1))
    index.write_index(runs, write)
    assert written == ["first", "first"]
    index.write_index(runs, write, anew=True)
    assert written[2:] == ["first", "second & <b>third"]


def test_a_trial_that_is_stored_while_its_page_is_made_is_newer(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page stayed without it for good."""
    run = runs / "first"
    first, *rest = sorted((run / "trials").glob("*.json"))
    text = first.read_bytes()
    first.unlink()

    def rendered(*arguments: Any) -> str:
        made = render(*arguments)
        first.write_bytes(text)
        return made

    monkeypatch.setattr("reports.page.render", rendered)
    write_report(run)
    monkeypatch.undo()
    short = (run / "report.html").read_text()
    index.write_index(runs)
    assert (run / "report.html").read_text() != short
    assert f"{len(rest) + 1} trials" in (run / "report.html").read_text()


def test_a_broken_run_is_listed_with_the_reason(runs: Path) -> None:
    (runs / "broken").mkdir()
    (runs / "broken/experiment.yaml").write_text("x: [")
    (runs / "empty").mkdir()
    page = index.write_index(runs).read_text()
    assert "No report: " in page
    assert "not readable as YAML" in page
    assert "empty" not in page
    assert page.index('<a href="first') < page.index("<h2>broken"), "what has no date is last"


def test_a_run_of_many_choices_is_listed_with_all_of_them(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its page says of itself was cut off, and no run was listed."""

    def many(*arguments: Any) -> list[Choice]:
        return [replace(one, load=f"load {n}") for one in choices(*arguments) for n in range(400)]

    monkeypatch.setattr("reports.words.ranking.scoped.choices", many)
    page = index.write_index(runs).read_text()
    assert (runs / "first/report.html").read_text().index("<style>") > 2**16
    assert page.count("at a time): <strong>") == 400
    assert 'href="second' in page


def test_a_report_that_does_not_say_what_it_is_of_is_a_line_of_the_index(runs: Path) -> None:
    def write(run: Path) -> Path:
        (run / "report.html").write_text("<html><head><style></style></head><body></body></html>")
        return run / "report.html"

    page = index.write_index(runs, write).read_text()
    assert page.count("No report: report.html was written, and does not say what is in it") == 2


def test_a_tag_that_never_closes_is_not_read_to_its_end_nor_anew_for_each_piece(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece was read with all that came before it, without an end."""
    fed: list[int] = []
    feed = HTMLParser.feed

    def counted(self: HTMLParser, data: str) -> None:
        fed.append(len(self.rawdata) + len(data))
        feed(self, data)

    def write(run: Path) -> Path:
        (run / "report.html").write_text('<html><meta content="' + "x" * 6 * 2**20)
        return run / "report.html"

    monkeypatch.setattr(HTMLParser, "feed", counted)
    page = index.write_index(runs, write).read_text()
    assert page.count("does not say what is in it") == 2
    assert max(fed) <= 4 * 2**20
    assert sum(fed) <= 2 * 2 * max(fed), "of two runs"


def test_a_run_is_no_folder_of_runs(runs: Path) -> None:
    assert index.runs_below(runs / "first") == []
    assert index.runs_below(runs / "missing") == []
    assert next(path.name for path in index.runs_below(runs)) == "first"


def test_the_command_takes_either(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, page in ((runs, runs / "index.html"), (runs / "first", runs / "first/report.html")):
        monkeypatch.setattr("sys.argv", ["decodebench", "report", str(folder)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert caught.value.code == 0
        assert capsys.readouterr().out == f"report: {page}\n"
        assert page.is_file()
