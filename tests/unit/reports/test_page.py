"""The written page: complete, self-contained, escaped, the same for the same results."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.errors import UserError
from harness.core.nouns import Load, Slo
from reports.page import script_hash, write_report
from results.store.folder import Store
from tests.support.results.report_runs import ENGINES, MadeUpBackend, write_run

SECTIONS = [
    "verdict", "stored-sizes", "results", "throughput", "latency", "distributions", "load",
    "tradeoff", "goodput", "same_text", "quality", "validity", "failures", "requests",
    "environment", "definitions",
]  # fmt: skip
HOSTILE = (
    "<script>window.pwned = 1</script></script><!-- <img src=x onerror=alert(1)> "
    "\x00\x07\u202e{{ 7 * 7 }} ]]> &amp;"
)
ONE = (Load("closed", concurrency=1),)
FAILED = MadeUpBackend("vllm", 0.01, status="failed")
_VOID = {"meta", "link", "br", "img", "input"}


class _Page(HTMLParser):
    """Elements and text of a page; complains about tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def _text(folder: Path) -> str:
    return write_report(folder).read_text()


def _section(text: str, name: str) -> str:
    found = re.search(rf'<section id="{name}">.*?</section>', text, re.DOTALL)
    assert found
    return found.group()


def test_the_page_holds_every_section_in_reading_order(run_text: str) -> None:
    page = _Page(run_text)
    assert [a["id"] for tag, a in page.elements if tag == "section"] == SECTIONS
    links = [
        a["href"]
        for tag, a in page.elements
        if tag == "a" and a["href"] != "#results" and a.get("class") != "permalink"
    ]
    assert {f"#{name}" for name in SECTIONS} == {*links, "#results"}


def test_ids_are_unique(run_text: str) -> None:
    ids = [a["id"] for _, a in _Page(run_text).elements if "id" in a]
    assert len(ids) == len(set(ids))


def test_equal_results_give_equal_bytes(run_dir: Path, run_text: str) -> None:
    assert write_report(run_dir).read_text() == run_text


def test_nothing_is_fetched_and_only_the_own_script_may_run(run_text: str) -> None:
    page = _Page(run_text)
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            value = attributes.get(name) or "#"
            assert value.startswith("#") or (tag, value) == ("link", "data:,")
        assert not [name for name in attributes if name.startswith("on")]
    (policy,) = (
        a["content"]
        for tag, a in page.elements
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    _, script = page.scripts
    assert f"script-src '{script_hash(script)}'" in policy
    assert "@import" not in run_text


def test_the_verdict_gives_speed_answers_and_trust_in_words(run_text: str) -> None:
    verdict = _section(run_text, "verdict")
    speed = r"(\d\.\d\d)× the decode speed of vllm \[(\d\.\d\d), (\d\.\d\d)\]"
    found = re.search(rf"adadecode \(re-implementation\) was the fastest: {speed}", verdict)
    assert found
    value, low, high = map(float, found.groups())
    assert 1 < low <= value <= high < 2
    assert "with the same answers." in verdict
    assert "All 32 trials are valid." in verdict
    assert re.search(r"different answers to \d+\.\d% of the requests", verdict)


def test_provenance_stands_in_every_row(troubled_text: str) -> None:
    rows = re.findall(r"<tr class=.*?</tr>", _section(troubled_text, "results"), re.DOTALL)
    assert len(rows) == 4 * 2 * 2
    for row in rows:
        assert re.search("official code|re-implementation|simulation|never started", row)


def test_the_table_shows_what_the_metrics_say(run_dir: Path, run_text: str) -> None:
    from results import load
    from results import rows as metrics

    text = _section(run_text, "results")
    for cell in metrics.cells(load(run_dir)):
        assert f'data-sort="{cell["output_tok_per_s"]!r}"' in text
        assert f'data-sort="{cell["tpot_s_p99"]!r}"' in text
        assert f'data-sort="{cell["goodput_req_per_s"]!r}"' in text


def test_goodput_at_scale_one_is_the_goodput_of_the_table(run_dir: Path) -> None:
    import numpy as np

    from reports.cells import overview
    from reports.collect import SCALES, collect
    from results import load

    run = load(run_dir)
    seen = overview(run)
    samples = collect(run, seen)
    one = int(np.argmin(np.abs(np.array(SCALES) - 1)))
    assert SCALES[one] == pytest.approx(1.0, abs=1e-12)
    for cell in seen.cells:
        curve = np.median(samples.goodput[cell], axis=0)
        assert curve[one] == pytest.approx(cell.value("goodput_req_per_s"))
        assert (np.diff(curve) >= 0).all()


def test_failed_and_invalid_trials_are_told_with_their_reasons(troubled_text: str) -> None:
    text = troubled_text
    assert "RuntimeError: out of &lt;pages&gt;" in _section(text, "failures")
    validity = _section(text, "validity")
    assert "machine-noisy: others used 30% of the machine" in validity
    assert "2 of 2" in validity
    verdict = _section(text, "verdict")
    assert "Every trial failed" in verdict
    assert "Not valid, because others used 30% of the machine." in verdict
    assert "tetris was not clearly faster than vllm on average over all 4 pairs" in verdict
    results = _section(text, "results")
    assert results.count("✕ not valid") == 4
    assert results.count("✕ failed") == 4
    assert "every trial of this cell failed" in results


def test_hostile_text_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    texts = {f"gsm8k-{i}": HOSTILE for i in (0, 10)}
    run = write_run(tmp_path, workloads=["gsm8k"], loads=ONE, repeats=1, requests=12, texts=texts)
    text = _text(run)
    page = _Page(text)
    assert "<script>window" not in text
    assert "<img" not in text
    assert "&lt;script&gt;window.pwned = 1&lt;/script&gt;" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", text)
    assert "{{ 7 * 7 }}" in text
    data = json.loads(page.scripts[0])
    shown = {item["id"]: item for block in data["workloads"] for item in block["items"]}
    assert shown["gsm8k-10"]["prompt"].startswith("<script>window.pwned = 1</script>")
    assert "␀␇⟨U+202E⟩" in shown["gsm8k-10"]["prompt"]


def test_names_from_files_are_escaped(tmp_path: Path) -> None:
    engines = (ENGINES[0], MadeUpBackend("<b>evil</b>", 0.009, {"k": "</td>$\\frac$"}))
    run = write_run(
        tmp_path, engines=engines, workloads=["gsm8k"], loads=ONE,
        repeats=1, requests=4,
    )  # fmt: skip
    content = yaml.safe_load((run / "experiment.yaml").read_text())
    Store(run).write_experiment(yaml.safe_dump({**content, "name": "<i>name</i>"}))
    text = _text(run)
    _Page(text)
    assert "<b>evil" not in text
    assert "<i>name" not in text
    assert "&lt;b&gt;evil&lt;/b&gt;" in text


@pytest.mark.parametrize(("repeats", "requests", "marks"), [(1, 24, 1), (2, 8, 2), (2, 100, 0)])
def test_what_a_small_run_cannot_tell_is_said(
    tmp_path: Path, repeats: int, requests: int, marks: int
) -> None:
    """One repeat says nothing about drift; a p95 needs 20 requests and a p99 a hundred."""
    run = write_run(
        tmp_path, engines=ENGINES[:2], workloads=["gsm8k"], loads=ONE,
        repeats=repeats, requests=requests,
    )  # fmt: skip
    text = _text(run)
    assert ("The one valid speed-up rests on 1 repeat." in text) == (repeats == 1)
    latencies = 3
    assert text.count(f"of {requests} only") == 2 * latencies * marks


def test_many_requests_are_limited_and_the_page_says_so(tmp_path: Path) -> None:
    run = write_run(
        tmp_path, engines=ENGINES[:1], workloads=["gsm8k"], loads=ONE,
        repeats=1, requests=150,
    )  # fmt: skip
    text = _text(run)
    assert "40 shown, 110 left out" in text
    assert "results.load(DIR).requests" in text
    page = _Page(text)
    assert sum(a.get("class") == "request" for _, a in page.elements) == 3
    assert len(json.loads(page.scripts[0])["workloads"][0]["items"]) == 37


def test_no_trials_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    with pytest.raises(UserError, match="no trials in it") as caught:
        write_report(tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no such folder"):
        write_report(tmp_path / "absent")
    assert not (tmp_path / "report.html").exists()


def test_a_run_of_failures_only_says_so(tmp_path: Path) -> None:
    engines = (MadeUpBackend("vllm", 0.01, status="out_of_memory"),)
    text = _text(write_run(tmp_path, engines=engines, workloads=["gsm8k"], loads=ONE, repeats=1))
    _Page(text)
    assert "Every trial failed, so there is nothing to compare." in _section(text, "verdict")
    assert "out of memory" in _section(text, "failures")
    assert 'role="img"' not in text
    assert "No trial has answers." in text


@pytest.mark.parametrize(
    ("engines", "reason"),
    [
        (ENGINES[1:], "the reference, vllm, was not run"),
        ((FAILED, ENGINES[3]), "every trial of the reference, vllm, failed"),
    ],
)
def test_without_the_reference_the_page_says_why_there_are_no_speedups(
    tmp_path: Path, engines: Any, reason: str
) -> None:
    text = _text(
        write_run(tmp_path, engines=engines, workloads=["gsm8k"], loads=ONE, repeats=1, requests=6)
    )
    _Page(text)
    assert f"Speed-ups over the reference cannot be computed: {reason}." in _section(
        text, "verdict"
    )
    assert f'title="{reason}">–' in _section(text, "results")


def test_without_an_objective_goodput_is_a_dash_that_says_why(tmp_path: Path) -> None:
    run = write_run(tmp_path, workloads=["gsm8k"], loads=ONE, repeats=1, requests=6, slo=Slo())
    text = _text(run)
    assert 'title="no objective (slo) was set">–' in _section(text, "results")
    assert "goodput would be throughput, and is left out" in _section(text, "goodput")


def test_an_unfinished_run_says_how_much_is_missing(tmp_path: Path) -> None:
    run = write_run(tmp_path, workloads=["gsm8k"], loads=ONE, repeats=2, requests=6)
    gone = sorted((run / "trials").glob("*.json"))[:3]
    for path in gone:
        path.unlink()
    assert "3 of 8 trials have not been run" in _section(_text(run), "verdict")


def test_a_folder_that_cannot_be_written_to_keeps_the_old_report(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _text(run_dir)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("reports.page.write_atomic", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(run_dir)
    assert (run_dir / "report.html").read_text() == before
