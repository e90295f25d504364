"""The line of each folded section: a number of the run's own, from the cells that hold."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path

import pytest

from reports.cells import overview
from reports.collect import collect
from reports.numbers import significant
from reports.page import write_report
from reports.sections import sections
from reports.words.findings import LONGEST, extremes, place, span
from results import load
from tests.support.results.report_pages import LEAVING, section
from tests.support.results.report_runs import EXITS, GAMMAS, TECHNIQUES, MadeUpBackend, write_run

OPEN = {"sizes", "stored-sizes", "results"}


@pytest.fixture(scope="module")
def every_text(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Pages that have early predictions, a sweep of gamma, and batches that leave early."""
    kinds = {"exits": EXITS, "gammas": GAMMAS, "leaving": TECHNIQUES}
    folder = tmp_path_factory.mktemp("findings")
    small = {**LEAVING, "requests": 12, "reference": "autoregressive"}
    return [
        write_report(
            write_run(
                folder / name,
                engines=engines,
                **{**small, **({"reference": "vllm"} if name == "leaving" else {})},
            )
        ).read_text()
        for name, engines in kinds.items()
    ]


def _findings(text: str) -> dict[str, str]:
    return {
        name: html.unescape(found)
        for name, found in re.findall(
            r'<section id="([\w-]+)">\n<details class="section"[^>]*><summary><h2>[^<]*</h2>'
            r'(?: <span class="finding">(.*?)</span>)?</summary>',
            text,
        )
    }


def test_every_folded_section_says_what_it_comes_to(
    every_text: list[str], run_text: str, troubled_text: str
) -> None:
    seen: set[str] = set()
    for text in (*every_text, run_text, troubled_text):
        found = _findings(text)
        assert len(found) == text.count("<section id=") - 1, "all but the verdict"
        for name, line in found.items():
            assert name in OPEN or re.search(r"\d", line), (name, line)
            assert len(line) < LONGEST == 420, (name, line)
        seen |= found.keys()
    assert len(seen) > 20


def test_only_the_answer_sizes_and_results_are_open(run_text: str) -> None:
    opened = re.findall(r'<section id="([\w-]+)">\n<details class="section" open>', run_text)
    assert set(opened) == OPEN & _findings(run_text).keys()
    assert re.search(r'<section id="verdict">\n<h2>', run_text)


def test_a_finding_is_not_said_twice(every_text: list[str]) -> None:
    for text in every_text:
        for name, line in _findings(text).items():
            inside = html.unescape(section(text, name)).partition("</summary>")[2]
            assert not line or f"<p>{line}</p>" not in inside


def test_findings_are_of_the_cells_that_hold(troubled_dir: Path) -> None:
    run = load(troubled_dir)
    seen = overview(run)
    found = {one.id: one.finding for one in sections(seen, collect(run, seen))}
    held, _, void = found["throughput"].partition("; higher, but not valid: ")
    assert "noisy" not in held, "its trials are not valid"
    assert re.match(r"[\d,.]+ \(noisy on ", void), "and faster than all that are"
    best = max(
        (c for c in seen.cells if c.holds("output_tok_per_s") and c.value("output_tok_per_s")),
        key=lambda c: c.value("output_tok_per_s") or 0.0,
    )
    most = significant(best.value("output_tok_per_s") or 0.0)
    assert f"{most} ({best.variant.label} on {best.workload}, {best.load})" in found["throughput"]
    assert re.match(r"8 of 32 trials failed: RuntimeError", found["failures"])


def test_the_numbers_follow_the_run(tmp_path: Path) -> None:
    small = {**LEAVING, "workloads": ["gsm8k"], "requests": 12}
    lines = []
    for step_s in (0.010, 0.020):
        engines = [MadeUpBackend("vllm", step_s), MadeUpBackend("other", step_s / 2)]
        folder = write_run(tmp_path / str(step_s), engines=engines, **small)
        lines.append(_findings(write_report(folder).read_text()))
    for name in ("throughput", "latency"):
        assert lines[0][name] != lines[1][name]


def test_extremes_of_what_is_not_valid_say_so(troubled_dir: Path) -> None:
    cells = [c for c in overview(load(troubled_dir)).cells if c.variant.backend == "noisy"]
    assert extremes("Tokens:", cells, "output_tok_per_s", significant).endswith(
        "; none of them valid."
    )
    assert extremes("Tokens:", [], "output_tok_per_s", significant) == ""
    alike = [dataclasses.replace(cells[0], reasons={}) for _ in range(2)]
    assert "in 2 cells" in extremes("Tokens:", alike, "output_tok_per_s", significant)


def test_what_lies_beyond_the_valid_ends_is_named_as_not_valid(troubled_dir: Path) -> None:
    """The title alone gave the lead to the best of the valid cells where another was faster."""
    cells = [c for c in overview(load(troubled_dir)).cells if c.value("output_tok_per_s")]
    every = {c.variant.backend for c in cells}
    told = extremes("Tokens:", cells, "output_tok_per_s", significant)
    sound = [c for c in cells if c.holds("output_tok_per_s")]
    assert every == {"vllm", "noisy", "tetris"}
    assert f", in {len(sound)} valid cells of {len(cells)}; higher, but not valid: " in told
    assert "lower" not in told
    slowest = dict.fromkeys(["output_tok_per_s", "tpot_s_p50"], 0.001)
    slow = dataclasses.replace(
        next(c for c in cells if c.variant.backend == "noisy"), metrics={"spread": {}, **slowest}
    )
    told = extremes("Tokens:", [*sound, slow], "output_tok_per_s", significant)
    assert told.endswith(f"; lower, but not valid: 0.00100 ({place(slow)}).")
    assert "higher" not in told
    told = extremes("Tokens:", [sound[0], slow], "output_tok_per_s", significant)
    assert " in 1 valid cell of 2; lower, but not valid: " in told
    long = extremes("Tokens:", cells, "output_tok_per_s", significant, where=lambda _: 150 * "w")
    assert len(long) < LONGEST
    assert "not valid" not in long


def test_equal_ends_are_one_number() -> None:
    assert span([1.001, 1.002], "{:.2f}".format) == "1.00"
    assert span([1, 2, 3], "{:.0f}".format) == "1 to 3"
    assert span([], "{:.0f}".format) == ""
