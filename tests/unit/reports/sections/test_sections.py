"""The list of sections: a new plot is one file and one line, as CONTRIBUTING.md says."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

import reports.sections
from reports.page import write_report
from reports.sections import SECTIONS
from tests.support.results.report_pages import section

ROOT = Path(__file__).parents[4]


@pytest.fixture
def example() -> str:
    """The file that CONTRIBUTING.md shows in its section on plots."""
    chapter = (ROOT / "CONTRIBUTING.md").read_text().partition("## A plot\n")[2]
    found = re.search(r"```python\n(.*?)```", chapter.partition("\n## ")[0], re.DOTALL)
    assert found
    return textwrap.dedent(found.group(1))


def test_a_new_plot_is_one_file_and_one_line(
    example: str, tmp_path: Path, run_dir: Path, run_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory_example.py").write_text(example)
    monkeypatch.setattr(reports.sections, "__path__", [*reports.sections.__path__, str(tmp_path)])
    place = SECTIONS.index("speed.latency")
    longer = (*SECTIONS[:place], "memory_example", *SECTIONS[place:])
    monkeypatch.setattr(reports.sections, "SECTIONS", longer)
    text = write_report(run_dir).read_text()
    drawn = section(text, "memory")
    assert drawn.count('role="img"') == 2, "a plot for each load"
    assert "Peak memory by workload and backend, closed c=8</title>" in drawn
    assert re.search(r'data-variant="v1".*?<title>[^<]*: gsm8k, 0\.68 GiB</title>', drawn)
    assert '<a href="#memory">Peak memory</a>' in text
    order = re.findall(r'<section id="(\w+)"', text)
    assert order.index("throughput") + 1 == order.index("memory") == order.index("latency") - 1
    assert not section(run_text, "memory")
    for name in ("latency", "quality", "validity"):
        assert section(text, name) == section(run_text, name), "the others stay as they are"


def test_every_file_of_a_section_is_in_the_list() -> None:
    folder = Path(reports.sections.__file__).parent
    files = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if "\ndef section(" in path.read_text()
    }
    assert sorted(SECTIONS) == sorted(files)


def test_each_page_has_one_macro_that_writes_tables() -> None:
    folder = Path(reports.sections.__file__).parents[1]
    texts = {
        str(p.relative_to(folder)): p.read_text()
        for p in folder.rglob("*")
        if p.suffix in {".py", ".j2"}
    }
    markup = {name: text.count("<table") + text.count("<td") for name, text in texts.items()}
    assert {name: count for name, count in markup.items() if count} == {
        "page.html.j2": 2,
        "history.html.j2": 2,
        "simulated/page.html.j2": 2,
    }
