"""What a reader takes away: addresses that hold filters and places, plots and tables as files."""

from __future__ import annotations

import csv
import io
import re
import shutil
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from reports.index import write_index
from tests.support.browsing import choose, run_script

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from tests.browser.conftest import Open

pytestmark = pytest.mark.slow
ROWS = "[...document.querySelectorAll('#results tbody tr')]"
SHOWN = f"return {ROWS}.filter(r => r.offsetHeight > 0).length"
PNG = b"\x89PNG\r\n\x1a\n"


def _saved(browser: Chrome, folder: Path, button: str, ending: str, part: str = "body") -> bytes:
    """Press the first `button` of a part of the page and wait for the file."""
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)}
    )
    run_script(
        browser,
        "[...document.querySelectorAll(`${arguments[1]} .tool`)]"
        ".find(b => b.textContent.startsWith(arguments[0])).click()",
        button,
        part,
    )
    for _ in range(1200):
        if found := list(folder.glob(f"*.{ending}")):
            return found[0].read_bytes()
        time.sleep(0.05)
    raise AssertionError(f"no .{ending} came")


def test_an_address_holds_the_filters_and_the_place(open_report: Open) -> None:
    browser = open_report()
    every = run_script(browser, SHOWN)
    choose(browser, "workload", "gsm8k")
    run_script(browser, "document.querySelector('nav a[href=\"#quality\"]').click()")
    address = browser.current_url
    assert address.endswith("#quality&workload=gsm8k")
    browser.get("about:blank")
    browser.get(address)
    shown = run_script(browser, SHOWN)
    assert 0 < shown < every
    assert (
        run_script(browser, "return document.querySelector('#filters select[name=workload]').value")
        == "gsm8k"
    )
    top = run_script(
        browser, "return document.getElementById('quality').getBoundingClientRect().top"
    )
    assert -5 <= top < 200
    run_script(browser, "document.querySelector('#filters button[type=reset]').click()")
    browser.execute_async_script("setTimeout(arguments[0], 100)")
    assert run_script(browser, SHOWN) == every
    assert browser.current_url.endswith("#quality")


def test_an_address_that_names_nothing_shows_everything(open_report: Open) -> None:
    browser = open_report()
    every, page = run_script(browser, SHOWN), browser.current_url
    for hash_ in ("#nowhere&workload=none&x=<script>", "#&&=", "#%E0%A4&load=", "#results.v9.x.y"):
        browser.get("about:blank")
        browser.get(page + hash_)
        assert run_script(browser, SHOWN) == every, hash_
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_each_row_has_a_link_of_its_own(open_report: Open) -> None:
    browser = open_report()
    ids = run_script(browser, "return [...document.querySelectorAll('tr[id]')].map(r => r.id)")
    assert len(ids) == len(set(ids)) > 20
    row = run_script(browser, "return document.querySelectorAll('#results tbody tr')[17].id")
    run_script(
        browser, "document.getElementById(arguments[0]).querySelector('.permalink').click()", row
    )
    address = browser.current_url
    browser.get("about:blank")
    browser.get(address)
    place = "const r = document.getElementById(arguments[0]).getBoundingClientRect();"
    assert run_script(browser, place + "return r.top > 0 && r.bottom < innerHeight", row)
    assert run_script(browser, "return document.querySelector('.here').id") == row


def test_an_address_opens_what_is_folded_around_its_place(open_report: Open) -> None:
    browser = open_report()
    page = browser.current_url
    find = (
        "return document.querySelectorAll('#drafts tbody tr, #parts tbody tr, #techniques tr[id]')"
    )
    row = run_script(browser, f"{find}[3].id")
    shown = "return document.getElementById(arguments[0]).checkVisibility()"
    assert not run_script(browser, shown, row), "folded at first"
    for place in (row, row.partition(".")[0]):
        browser.get("about:blank")
        browser.get(f"{page}#{quote(place)}")
        assert run_script(browser, shown, row), place
        box = "const r = document.getElementById(arguments[0]).getBoundingClientRect();"
        assert run_script(browser, box + "return r.bottom > 0 && r.top < innerHeight", place)


def test_an_address_opens_a_fold_within_a_section(open_report: Open) -> None:
    browser = open_report()
    inner = (
        "const f = document.querySelectorAll('#latency details.fold')[1];"
        "const panel = f.querySelector('figure'); panel.id = 'deep'; return f.open"
    )
    assert not run_script(browser, inner)
    run_script(browser, "location.hash = '#deep'")
    browser.execute_async_script("setTimeout(arguments[0], 100)")
    opened = "return [...document.querySelectorAll('#latency details')].map(d => d.open)"
    assert run_script(browser, opened)[2], "the fold that it is in"
    assert run_script(browser, opened)[0], "and the section around that"


def test_a_link_takes_the_keyboard_along_and_back_leads_back(open_report: Open) -> None:
    browser = open_report()
    run_script(browser, "document.querySelector('nav a[href=\"#quality\"]').click()")
    assert run_script(browser, "return document.activeElement.id") == "quality"
    run_script(browser, "document.querySelector('nav a[href=\"#results\"]').click()")
    browser.back()
    assert browser.current_url.endswith("#quality")
    assert run_script(browser, "return document.activeElement.id") == "quality"


def test_the_index_leads_to_the_reports(open_report: Open, report: Path, tmp_path: Path) -> None:
    folder = tmp_path / "<script>window.pwned=1<script>"
    for name in ("run", "<img src=x onerror=window.pwned=1>"):
        shutil.copytree(report.parent, folder / name)
    page = write_index(folder)
    for width in (1280, 390):
        browser = open_report(width)
        browser.get(page.as_uri())
        assert run_script(browser, "return document.documentElement.scrollWidth") <= width
        assert run_script(browser, "return window.pwned") is None
        assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
        links = "return [...document.querySelectorAll('.runs h2 a')].map(a => a.href)"
        addresses = run_script(browser, links)
        assert len(addresses) == 2
        for address in addresses:
            browser.get(address)
            assert run_script(browser, "return document.querySelector('#results') !== null")


def test_plots_are_saved_as_svg_and_png(open_report: Open, tmp_path: Path) -> None:
    browser = open_report(dark=True)
    drawn = _saved(browser, tmp_path, "SVG", "svg").decode()
    root = ET.fromstring(drawn)
    assert float(root.attrib["width"]) > 100
    assert "var(" not in drawn
    ground = run_script(browser, "return getComputedStyle(document.body).backgroundColor")
    assert ground in drawn
    picture = _saved(browser, tmp_path, "PNG", "png")
    assert picture.startswith(PNG)
    assert len(picture) > 5000
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_tables_are_saved_with_the_rows_that_are_shown(open_report: Open, tmp_path: Path) -> None:
    browser = open_report()
    choose(browser, "workload", "gsm8k")
    whole = "document.querySelector('#results tbody tr:not([hidden]):not(.invalid)')"
    run_script(browser, f"{whole}.cells[4].classList.add('struck')")  # void in part
    text = _saved(browser, tmp_path, "CSV", "csv", "#results").decode()
    head, *rows = csv.reader(io.StringIO(text))
    assert len(rows) == run_script(browser, SHOWN)
    assert {len(row) for row in rows} == {len(head)}
    assert len(set(head)) == len(head)
    speed = next(n for n, name in enumerate(head) if name.startswith("Throughput"))
    assert all(row[speed] == "" or float(row[speed]) > 0 for row in rows)
    assert {row[head.index("Workload")] for row in rows} == {"gsm8k (bundled)"}
    void = run_script(
        browser,
        "return [...document.querySelectorAll('#results tbody tr:not([hidden])')].map("
        "(row) => row.matches('.invalid') ? 'all' : row.querySelector('.struck') ? 'some' : '')",
    )
    assert [row[-1] if row[-1] in ("", "all") else "some" for row in rows] == void
    assert head[-1] == "not valid"
    assert set(void) == {"", "some", "all"}
    (partly,) = (row[-1] for row in rows if row[-1] not in ("", "all"))
    titles = [name for name in head if not name.endswith(" (beside it)")]
    assert partly == titles[4], "the column is named"
    for title, found in (("Speed-up", r"^reference$|\[\d"), ("TPOT ms p99", r"^of 40 only$")):
        at = next(n for n, name in enumerate(head) if name.startswith(title))
        assert head[at + 1] == f"{head[at]} (beside it)"
        told = [row[at + 1] for row in rows if row[at]]
        assert told
        assert all(re.search(found, text) for text in told), told
        assert all(row[at] == "" or float(row[at]) > 0 for row in rows)
    (tmp_path / "larger").mkdir()
    larger = _saved(browser, tmp_path / "larger", "CSV", "csv", "#stored-sizes").decode()
    (head, *rows) = csv.reader(io.StringIO(larger))
    assert len(set(head)) == len(head), "the sizes stand under two headings"
    assert len(rows) > 3
