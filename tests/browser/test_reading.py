"""What a reader sees: the verdict of what is chosen, values on hover, a phone, a desk, paper."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.core.nouns import Model
from reports.page import write_report
from tests.support.browsing import choose, run_script
from tests.support.results.report_runs import ENGINES, LOADS, write_run

if TYPE_CHECKING:
    from tests.browser.conftest import Open

pytestmark = pytest.mark.slow
SHOWN = "[...document.querySelectorAll('[data-verdict]')].filter(p => p.offsetHeight > 0)"
HEADLINE = f"return {SHOWN}.map(p => p.querySelector('.headline').innerText).join('|')"
UNIT = re.compile(
    r"[\d∞]\]?( ms| tokens/s| requests/s| GiB|×|%|/s|\])( |,|;|$|\()"
    r"|judged|layer \d|over [\d,]+ tokens"
)
WIDER = """return [...document.querySelectorAll('body *')]
  .filter(e => !e.closest('svg, .scroll, nav') && e.getBoundingClientRect().width > innerWidth + 1)
  .map(e => e.outerHTML.slice(0, 200))"""

OPEN_SECTIONS = "document.querySelectorAll('details.section').forEach(d => { d.open = true; })"
COLUMNS = """const x = e => Math.round(e.getBoundingClientRect().left);
const left = li => [...li.children].map(x);
const rows = [...document.querySelectorAll('.choices li:not(.engine)')].filter(l => l.offsetHeight);
return rows.filter(li => left(li).join() !== left(rows[0]).join()).map(li => li.innerText)"""
"""Rows of what to run whose columns do not line up with the first row's."""


def test_the_filters_reach_the_verdict(open_report: Open) -> None:
    browser = open_report()
    whole = run_script(browser, HEADLINE)
    assert "pairs of workload and load" in whole
    choose(browser, "workload", "gsm8k")
    choose(browser, "load", "closed c=8")
    part = run_script(browser, HEADLINE)
    assert part != whole
    assert "|" not in part, "one of them at a time"
    note = f"return {SHOWN}[0].querySelector('.note').innerText"
    assert run_script(browser, note).endswith("gsm8k, closed c=8.")
    captions = f"return {SHOWN}[0].querySelectorAll('.verdicts .caption')[0].innerText"
    assert run_script(browser, captions)
    address = browser.current_url
    browser.get("about:blank")
    browser.get(address)
    assert run_script(browser, HEADLINE) == part, "the address holds it"
    browser.find_element("css selector", "#filters button").click()
    browser.execute_async_script("setTimeout(arguments[0], 50)")
    assert run_script(browser, HEADLINE) == whole


def test_without_javascript_there_is_the_whole_verdict(open_report: Open) -> None:
    browser = open_report(scripts=False)
    shown = [e for e in browser.find_elements("css selector", "[data-verdict]") if e.is_displayed()]
    assert len(shown) == 1
    assert "pairs of workload and load" in shown[0].text


def test_what_is_drawn_says_its_value_with_a_unit(open_report: Open) -> None:
    browser = open_report()
    titles = run_script(
        browser,
        "return [...document.querySelectorAll('figure svg [data-variant] > title')]"
        ".map(t => [t.closest('section').id, t.textContent])",
    )
    assert len({section for section, _ in titles}) > 6
    told = [(section, text) for section, text in titles if re.search(r": .*\d", text)]
    assert len(told) > 500
    assert [pair for pair in told if not UNIT.search(pair[1])] == []
    for section, unit in (("throughput", "tokens/s"), ("latency", "ms"), ("tradeoff", "×")):
        assert all(unit in text for own, text in told if own == section)


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_gets_a_short_page_whose_headings_open(open_report: Open, width: int) -> None:
    browser = open_report(width)
    height = "return document.documentElement.scrollHeight"
    assert run_script(browser, height) < 15_000
    assert run_script(browser, WIDER) == []
    box = "return document.querySelector('#latency figure').checkVisibility()"
    assert not run_script(browser, box)
    browser.find_element("css selector", "#latency > details > summary").click()
    assert run_script(browser, box)
    assert run_script(browser, WIDER) == []
    run_script(browser, "document.querySelector('nav a[href=\"#quality\"]').click()")
    opened = "return document.querySelector('#quality > details').open"
    assert run_script(browser, opened), "a link opens what it leads to"
    results = "return document.querySelector('#results > details').open"
    assert run_script(browser, results), "the results are open at any width"
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_shows_speed_ups_and_whole_filters(open_report: Open, width: int) -> None:
    """What a row is of stands below its backend, so that the first numbers are in sight."""
    browser = open_report(width)
    column = (
        "[...document.querySelectorAll('#results th')].find(t => t.innerText.includes('Speed'))"
    )
    edge = f"return [{column}.getBoundingClientRect().right, document.body.clientWidth]"
    right, whole = run_script(browser, edge)
    assert right <= whole
    where = "document.querySelector('#results tbody th'), '::after').content"
    assert "closed c=1" in run_script(browser, f"return getComputedStyle({where}")
    outside = (
        "return [...document.querySelectorAll('#filters select, #filters button')]"
        ".filter(e => e.getBoundingClientRect().right > document.body.clientWidth).length"
    )
    assert run_script(browser, outside) == 0


@pytest.mark.parametrize("scripts", [True, False])
def test_a_table_that_scrolls_says_so(open_report: Open, scripts: bool) -> None:
    browser = open_report(1240, scripts=scripts)
    seen = """const box = document.querySelector('#results .scroll');
    const [outer, own] = [box, box.querySelector('.row-count')].map(e => e.getBoundingClientRect());
    return [box.scrollHeight > box.clientHeight, outer.bottom - own.bottom, own.width]"""
    hides_rows, below, wide = run_script(browser, seen)
    assert hides_rows
    assert 0 <= below < 3, "at the lower end of what is shown"
    assert wide > 1000
    told = browser.find_element("css selector", "#results .row-count").text
    rows = browser.find_elements("css selector", "#results tbody tr")
    assert told == f"{len(rows)} rows in all"


def test_on_a_desk_every_table_fits_the_page(open_report: Open) -> None:
    browser = open_report(1240)
    run_script(browser, OPEN_SECTIONS)
    wide = "document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth)"
    tables = f"return [...{wide}.map(s => [s.closest('section').id, s.scrollWidth])"
    assert run_script(browser, tables) == []


def test_the_answer_comes_first_and_every_section_is_listed(open_report: Open) -> None:
    browser = open_report(1240)
    order = (
        f"const part = {SHOWN}[0]; const top = s => part.querySelector(s)?."
        "getBoundingClientRect().top; return [top('.choices'), top('.headline')]"
    )
    choices, words = run_script(browser, order)
    assert choices < words
    hidden = (
        "const nav = document.querySelector('.bar-top nav'), end = nav.getBoundingClientRect();"
        "return [...nav.children].map(a => [a.innerText, a.getBoundingClientRect()])"
        ".filter(([, r]) => r.right > end.right + 1 || r.bottom > end.bottom + 1).map(([t]) => t)"
    )
    assert run_script(browser, hidden) == []
    assert run_script(browser, COLUMNS) == []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert run_script(browser, COLUMNS) == [], "on paper, too"


def test_paper_has_everything_open_and_no_controls(open_report: Open) -> None:
    browser = open_report()
    closed = "return document.querySelectorAll('details:not([open])').length"
    before = run_script(browser, closed)
    assert before > 15
    run_script(browser, "window.dispatchEvent(new Event('beforeprint'))")
    assert run_script(browser, closed) == 0
    run_script(browser, "window.dispatchEvent(new Event('afterprint'))")
    assert run_script(browser, closed) == before, "the page is as it was"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    controls = (
        "return [...document.querySelectorAll('.bar-top, .tools, .permalink')]"
        ".filter(e => e.offsetHeight > 0).length"
    )
    assert run_script(browser, controls) == 0
    bound = (
        "return [...document.querySelectorAll('.scroll')]"
        ".every(s => getComputedStyle(s).maxHeight === 'none')"
    )
    assert run_script(browser, bound)


@pytest.mark.parametrize("scripts", [True, False])
def test_what_is_folded_is_printed(open_report: Open, scripts: bool) -> None:
    """With and without scripts: the pages of a print are as many as those of an open page."""
    counts = []
    for opened in (True, False):
        browser = open_report(scripts=scripts)
        if opened:  # the first and the last of what a reader would open
            for name in ("throughput", "definitions"):
                browser.find_element("css selector", f"#{name} > details > summary").click()
        printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
        pages = re.findall(rb"/Type /Page\b", base64.b64decode(printed["data"]))
        counts.append(len(pages))
    assert counts[0] == counts[1] > 8


def test_a_folded_page_is_short_and_opens_at_a_button(open_report: Open) -> None:
    browser = open_report(1240)
    height = "return document.documentElement.scrollHeight"
    folded = run_script(browser, height)
    closed = "return document.querySelectorAll('details.section:not([open])').length"
    sections = run_script(browser, closed)
    assert sections > 15
    browser.find_element("id", "all-sections").click()
    assert run_script(browser, closed) == 0
    assert run_script(browser, height) > 3 * folded
    browser.find_element("id", "all-sections").click()
    assert run_script(browser, closed) > sections, "then all are closed"
    lines = (
        "return [...document.querySelectorAll('details.section:not([open]) > summary')]"
        ".filter(s => s.offsetHeight > 90).map(s => s.innerText)"
    )
    assert run_script(browser, lines) == [], "a folded section is a line or two"


def test_findings_can_be_read_without_opening(open_report: Open) -> None:
    browser = open_report(1240)
    read = (
        "return [...document.querySelectorAll('details.section > summary')]"
        ".map(s => [s.closest('section').id, s.querySelector('.finding')?.offsetHeight ?? 0])"
    )
    hidden = [name for name, height in run_script(browser, read) if not height]
    assert set(hidden) <= {"sizes", "stored-sizes", "results"}


def test_the_results_fit_on_paper(open_report: Open) -> None:
    """On A4: what stands beside a number is smaller than it, and no column is cut off."""
    browser = open_report(794)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    wide = (
        "return [...document.querySelectorAll('#results .scroll, #stored-sizes .scroll')]"
        ".filter(s => s.scrollWidth > s.clientWidth + 1).map(s => s.closest('section').id)"
    )
    assert run_script(browser, wide) == []
    sizes = (
        "const size = e => parseFloat(getComputedStyle(e).fontSize);"
        "return [...document.querySelectorAll('td .interval')]"
        ".filter(e => size(e) >= size(e.parentElement)).length"
    )
    assert run_script(browser, sizes) == 0


@pytest.mark.parametrize("width", [360, 390])
def test_a_phone_shows_the_last_size_and_what_decisions_have_to_bring(
    open_report: Open, tmp_path: Path, width: int
) -> None:
    models = tuple(Model("0.1b", shape=True, layers=layers) for layers in (1, 2, 4))
    run = write_run(
        tmp_path / "sizes", engines=ENGINES[:3], models=models, workloads=["gsm8k"],
        loads=LOADS[:1], repeats=2, requests=12,
    )  # fmt: skip
    browser = open_report(width)
    browser.get(write_report(run).as_uri())
    edges = (
        "const t = document.querySelector('.by-size table');"
        "return [t.getBoundingClientRect().right, t.parentElement.getBoundingClientRect().right]"
    )
    right, whole = run_script(browser, edges)
    assert right <= whole
    over = "return document.querySelector('.by-size tbody th').dataset.where"
    assert run_script(browser, over) == "closed c=1 (one request at a time), vllm"
    assert run_script(browser, WIDER) == []
