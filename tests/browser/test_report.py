"""The report in a real browser: quiet, safe, sortable, readable on a phone and in the dark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browsing import choose, run_script

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from tests.browser.conftest import Open

pytestmark = pytest.mark.slow
ROWS = 10 * 2 * 2
SHOWN_ROWS = "[...document.querySelectorAll('#results tbody tr')].filter(r => r.offsetHeight > 0)"


def _open_all(browser: Chrome) -> None:
    run_script(browser, "document.querySelectorAll('#requests button').forEach(b => b.click())")
    run_script(browser, "document.querySelectorAll('details').forEach(d => { d.open = true; })")
    browser.execute_async_script("setTimeout(arguments[0], 200)")


def test_it_opens_without_errors_and_without_a_single_request(open_report: Open) -> None:
    browser = open_report()
    _open_all(browser)
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert run_script(browser, "return performance.getEntriesByType('resource').length") == 0
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]  # type: ignore[no-untyped-call]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
        and event["params"]["documentURL"].endswith("report.html")
    ]
    assert {re.sub(":.*", "", url, flags=re.DOTALL) for url in asked} <= {"file", "data"}
    assert any(url.endswith("report.html") for url in asked)


def test_the_policy_stops_what_escaping_would_miss(open_report: Open) -> None:
    browser = open_report()
    run_script(
        browser,
        "const s = document.createElement('script'); s.textContent = 'window.pwned = 1';"
        "document.body.append(s);"
        "const i = document.createElement('img'); i.src = 'http://localhost:9/x.png';"
        "document.body.append(i);",
    )
    assert run_script(browser, "return window.pwned") is None
    blocked = [entry["message"] for entry in browser.get_log("browser")]  # type: ignore[no-untyped-call]
    assert sum("Content Security Policy" in message for message in blocked) == 2


def test_an_injected_script_does_not_run_and_is_shown_as_text(open_report: Open) -> None:
    browser = open_report()
    _open_all(browser)
    assert run_script(browser, "return window.pwned") is None
    assert run_script(browser, "return document.querySelectorAll('#requests img').length") == 0
    boxes = run_script(
        browser,
        "return [...document.querySelectorAll('.text-box')].map(b => b.textContent)"
        ".filter(t => t.startsWith('<script>window.pwned'))",
    )
    assert len(boxes) >= 4
    assert all("␀⟨U+202E⟩" in text for text in boxes)


def test_a_page_without_results_has_all_else_that_a_script_does(
    open_report: Open, report: Path, tmp_path: Path
) -> None:
    """As that of a run of probes alone."""
    whole = report.read_text()
    less = re.sub(r'<section id="results">.*?</section>', "", whole, flags=re.DOTALL)
    assert less != whole
    page = tmp_path / "probes.html"
    page.write_text(less)
    browser = open_report()
    browser.get(page.as_uri())
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert run_script(browser, "return !document.getElementById('filters').hidden")


def test_columns_sort_by_mouse_and_keyboard(open_report: Open) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = open_report()
    button = browser.find_element("xpath", "//th[contains(., 'Throughput')]/button")
    keys = (
        "const c = document.querySelector('th[aria-sort]').dataset.column;"
        f"return {SHOWN_ROWS}.map(r => Number(r.children[c].dataset.sort))"
    )
    button.click()
    ascending = run_script(browser, keys)
    assert ascending == sorted(ascending)
    assert len(set(ascending)) > 10
    button.send_keys(Keys.ENTER)
    assert run_script(browser, keys) == sorted(ascending, reverse=True)
    marks = "return [...document.querySelectorAll('th[aria-sort]')].map(t => t.ariaSort)"
    assert run_script(browser, marks) == ["descending"]
    text = "const t = document.querySelector('#results thead'); return t.innerText"
    assert "Throughput" in run_script(browser, text)


def test_filters_hide_rows_plots_and_requests_and_can_be_cleared(open_report: Open) -> None:
    browser = open_report()
    count = f"return {SHOWN_ROWS}.length"
    assert run_script(browser, count) == ROWS
    choose(browser, "workload", "gsm8k")
    assert run_script(browser, count) == ROWS // 2
    choose(browser, "variant", "v1")
    assert run_script(browser, count) == 2
    assert (
        run_script(browser, "return document.querySelector('#filters output').value")
        == f"2 of {ROWS} rows"
    )
    shown = (
        "return [...new Set([...document.querySelectorAll('[data-workload]')]"
        ".filter(e => e.offsetHeight > 0).map(e => e.dataset.workload))]"
    )
    assert run_script(browser, shown) == ["gsm8k"]
    bright = (
        "return [...new Set([...document.querySelectorAll('svg [data-variant]')]"
        ".filter(e => getComputedStyle(e).opacity === '1').map(e => e.dataset.variant))]"
    )
    assert run_script(browser, bright) == ["v1"]
    choose(browser, "variant", "")
    choose(browser, "workload", "")
    choose(browser, "valid", "not valid")
    assert run_script(browser, count) == 4
    browser.find_element("css selector", "#filters button").click()
    browser.execute_async_script("setTimeout(arguments[0], 50)")
    assert run_script(browser, count) == ROWS


def test_more_requests_and_their_answers_appear_when_asked_for(open_report: Open) -> None:
    browser = open_report()
    count = "return document.querySelectorAll('#requests-0 details').length"
    assert run_script(browser, count) == 3
    browser.find_element("css selector", "#requests > details > summary").click()
    browser.find_element("css selector", "#requests-0 button").click()
    assert run_script(browser, count) == 40
    _open_all(browser)
    static, built = run_script(
        browser,
        "return [...document.querySelectorAll('#requests details')].filter(d => "
        "d.dataset.differs === 'yes').map(d => [d.querySelectorAll('.answer').length,"
        "d.querySelectorAll('mark').length > 0]).sort()",
    )[:2]
    assert static[0] >= 2
    assert built[1]
    shapes = run_script(
        browser,
        "return [...document.querySelectorAll('#requests-0 details')].map(d => "
        "[...d.querySelector('.request-body').children].map(c => c.className).join())",
    )
    assert {shape.split(",answer")[0] for shape in shapes} == {","}


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_never_scrolls_sideways(open_report: Open, width: int) -> None:
    browser = open_report(width)
    _open_all(browser)
    assert run_script(browser, "return document.documentElement.scrollWidth") == width
    outside = run_script(
        browser,
        "return [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, nav, "
        "form, svg, .text-box, .skip') && e.getBoundingClientRect().right > innerWidth + 1).map(e "
        "=> e.outerHTML)",
    )
    assert outside == []
    table = "const s = document.querySelector('.scroll'); return s.scrollWidth > s.clientWidth"
    assert run_script(browser, table)


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_enough_contrast(open_report: Open, dark: bool) -> None:
    """WCAG 2 AA: 4.5 to 1 for text, also inside the plots; 3 to 1 for their lines."""
    browser = open_report(dark=dark)
    _open_all(browser)
    surface = _colour(run_script(browser, "return getComputedStyle(document.body).backgroundColor"))
    assert (_luminance(surface) < 0.05) == dark
    pairs = run_script(
        browser,
        """const seen = new Set();
        for (const e of document.querySelectorAll('body *')) {
          const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
          if (!own || e.closest('script, style, title, option')) continue;
          const style = getComputedStyle(e);
          let behind = e;
          while (behind && getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)')
            behind = behind.parentElement;
          const ink = e.closest('svg') ? style.fill : style.color;
          const back = getComputedStyle(behind ?? document.body).backgroundColor;
          seen.add(JSON.stringify([ink, back]));
        }
        return [...seen].map(JSON.parse);""",
    )
    assert len(pairs) > 4
    for ink, behind in pairs:
        assert _contrast(_colour(ink), _colour(behind)) >= 4.5, (ink, behind)
    for slot in range(8):
        script = "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0])"
        value = run_script(browser, script, f"--series-{slot}").strip()
        line = [int(value[i : i + 2], 16) for i in (1, 3, 5)]
        assert _contrast(line, surface) >= 3, value


def test_the_sections_on_exits_follow_the_filters(open_report: Open) -> None:
    browser = open_report()
    _open_all(browser)
    for section in ("exits", "prediction", "ablations", "gamma"):
        box = f"return document.getElementById('{section}').offsetHeight"
        assert run_script(browser, box) > 100, section
    rows = "[...document.querySelectorAll(`#${arguments[0]} tbody tr`)].filter(r => r.offsetHeight)"
    count = f"return {rows}.length"
    assert [run_script(browser, count, name) for name in ("prediction", "ablations")] == [6, 6]
    choose(browser, "workload", "gsm8k")
    assert [run_script(browser, count, name) for name in ("prediction", "ablations")] == [3, 6]
    choose(browser, "load", "closed c=1")
    assert [run_script(browser, count, name) for name in ("prediction", "ablations")] == [3, 3]
    shown = "return [...document.querySelectorAll('#gamma figure')].filter(f => f.offsetHeight)"
    assert run_script(browser, f"{shown}.length") == 3


def test_the_sections_on_early_exit_follow_the_filters(open_report: Open) -> None:
    browser = open_report()
    _open_all(browser)
    rows = "[...document.querySelectorAll(`#${arguments[0]} tbody tr`)].filter(r => r.offsetHeight)"
    count = f"return {rows}.length"
    panels = (
        "return [...document.querySelectorAll(`#${arguments[0]} figure`)]"
        ".filter(f => f.offsetHeight).length"
    )
    names = ("techniques", "gains", "exitbatch", "exits")
    for name in names:
        box = f"return document.getElementById('{name}').offsetHeight"
        assert run_script(browser, box) > 100, name
    assert [run_script(browser, count, name) for name in ("techniques", "exitbatch")] == [12, 8]
    assert [run_script(browser, panels, name) for name in names] == [4, 4, 2, 2]
    choose(browser, "workload", "gsm8k")
    assert [run_script(browser, count, name) for name in ("techniques", "exitbatch")] == [6, 4]
    choose(browser, "load", "closed c=1")
    assert [run_script(browser, count, name) for name in ("techniques", "exitbatch")] == [3, 2]
    assert [run_script(browser, panels, name) for name in names] == [1, 2, 1, 1]


def test_rows_over_all_loads_stay_whatever_load_is_chosen(open_report: Open) -> None:
    browser = open_report()
    _open_all(browser)
    rows = "[...document.querySelectorAll('#same_text tbody tr')].filter(r => r.offsetHeight)"
    every = run_script(browser, f"return {rows}.length")
    assert every > 1
    choose(browser, "load", "closed c=1")
    assert run_script(browser, f"return {rows}.length") == every


def test_without_javascript_everything_that_matters_is_there(open_report: Open) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = open_report(scripts=False)
    for summary in browser.find_elements("css selector", "details.section:not([open]) > summary"):
        summary.click()  # no script is needed to open a section
    text = browser.find_element("tag name", "body").text
    for words in ("Which one to run", "had the highest speed-up", "no difference shown"):
        assert words in text
    for words in ("Throughput", "What the numbers mean", "Example CPU 9000"):
        assert words in text
    assert "more requests are in this file and need JavaScript" in text
    rows = browser.find_elements("css selector", "#results tbody tr")
    assert len(rows) == ROWS
    assert all(row.is_displayed() for row in rows)
    assert not browser.find_element("id", "filters").is_displayed()
    assert not browser.find_elements("css selector", "th button")
    first = browser.find_element("css selector", "#requests-0 details summary")
    first.send_keys(Keys.ENTER)
    assert browser.find_element("css selector", "#requests-0 .answer .text-box").is_displayed()


def _colour(text: str) -> list[int]:
    return [int(float(part)) for part in re.findall(r"[\d.]+", text)[:3]]


def _luminance(colour: list[int]) -> float:
    parts = [c / 255 for c in colour]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: list[int], other: list[int]) -> float:
    light, dark = sorted([_luminance(one), _luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)
