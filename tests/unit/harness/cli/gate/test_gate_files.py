"""The gate file as people write it, and the answer as others read it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from harness.cli.gate.gate_file import read_rules, rules_text
from harness.cli.gate.written import (
    as_junit,
    as_markdown,
    refusal_as_junit,
    refusal_as_markdown,
)
from harness.core.errors import UserError
from results.compare.gate.comparison import compare_runs
from results.compare.gate.margins import GateRules, MarginRule
from tests.support.results.reduced_runs import cell, timed_run, wandering


def test_rules_are_read_as_they_are_written(tmp_path: Path) -> None:
    rules = [
        MarginRule("tpot_s", 0.05, load="closed c=8"),
        MarginRule("quality", 0.01),
        MarginRule("ttft_s", 1.505),
        MarginRule("n_errors", 2),
    ]
    file = tmp_path / "gate.yaml"
    file.write_text(rules_text(rules, 0.1, "one\ntwo"))
    found = read_rules(file)
    assert list(found.rules) == rules
    assert found.alpha == 0.1
    file.write_text("margins: [{metric: ttft_s_p99, margin: 12%}]")
    assert read_rules(file).rules[0].margin == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a mapping with alpha, margins, found nothing"),
        ("margin: []", "unknown key 'margin'; did you mean 'margins'?"),
        ("margins: []", "margins: expected a list of rules"),
        ("margins: [{metric: tpot_s}]", r"margins\[0\]: 'margin' is missing"),
        ("margins: [{metric: tpot, margin: 1%}]", "unknown metric 'tpot'; did you mean 'tpot_s'"),
        ("margins: [{metric: speedup, margin: 1%}]", "unknown metric 'speedup'"),
        ("margins: [{metric: tpot_s, margin: fast}]", "margin: expected 0.05 or 5%, got 'fast'"),
        ("margins: [{metric: tpot_s, margin: -0.1}]", "expected 0 to 10"),
        ("margins: [{metric: tpot_s, margin: .nan}]", "expected 0 to 10"),
        ("margins: [{metric: tpot_s, margin: 5}]", "margin: 5 is 500%; expected 5% or 500%"),
        ("margins: [{metric: quality, margin: 100%}]", "'quality' is a share; expected less than"),
        ("margins: [{metric: exact_match, margin: 250%}]", "'exact_match' is a share"),
        ("margins: [{metric: tpot_s, margin: true}]", "expected 0.05 or 5%, got True"),
        ("margins: [{metric: tpot_s, margin: 1%, load: 8}]", "load: expected text, got 8"),
        ("margins: [{metric: tpot_s, margin: 1%, direction: large}]", "did you mean 'larger'"),
        ("margins: [{metric: output_tokens, margin: 1%}]", "neither good nor bad"),
        ("margins: [{metric: n_errors, margin: 1%}]", "'n_errors' is a number of requests"),
        ("margins: [{metric: n_errors, margin: -1}]", "margin -1.0: expected"),
        ("margins: [{metric: tpot_s, margin: 0}]", "'tpot_s' is measured by the clock"),
        (
            "margins: [{metric: consistency, margin: 1%, direction: smaller}]",
            "'consistency' is better larger; expected no direction",
        ),
        (
            "margins: [{metric: quality, margin: 1%, direction: smaller}]",
            "'quality' is better larger",
        ),
        (
            "margins: [{metric: tpot_s, margin: 1%, direction: larger}]",
            "'tpot_s' is better smaller",
        ),
        ("alpha: 2\nmargins: [{metric: tpot_s, margin: 1%}]", "alpha: expected a number"),
    ],
)
def test_what_is_wrong_with_a_gate_file_is_said(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=words):
        read_rules(file)


def test_markdown_and_junit_take_any_name() -> None:
    name = cell("a|b<script>\x00")
    base = timed_run("BASE", wandering(np.random.default_rng(0), 4, wander=0.005), cell=name)
    slow = wandering(np.random.default_rng(1), 4, wander=0.005, slower=0.3)
    new = timed_run("NEW", slow, cell=name)
    decision = compare_runs(base, new, GateRules((MarginRule("tpot_s", 0.05),)))
    page = as_markdown(decision)
    assert "<script>" not in page
    assert r"a\|b&lt;script&gt;" in page
    assert "decodebench compare: fail" in page
    suite = ElementTree.fromstring(as_junit(decision))
    assert suite.attrib["failures"] == "1"
    assert [child.tag for child in suite[0]] == ["failure"]


def test_a_job_that_is_refused_shows_a_failure() -> None:
    """Inconclusive rows are skipped tests, beside which a CI's page would show none that failed."""
    chance = np.random.default_rng(0)
    runs = [timed_run(name, wandering(chance, 2, wander=0.05)) for name in ("BASE", "NEW")]
    decision = compare_runs(runs[0], runs[1], GateRules((MarginRule("tpot_s", 0.01),)))
    assert decision.verdict == "inconclusive"
    suite = ElementTree.fromstring(as_junit(decision))
    assert (suite.attrib["failures"], suite.attrib["skipped"]) == ("1", "1")
    (failure,) = suite.iter("failure")
    assert failure.attrib["message"].startswith("inconclusive (1 inconclusive")


def test_what_was_not_compared_is_told_in_the_files_too() -> None:
    why = "a and b may not be compared, they differ in cpu (x|y / z)"
    assert r"x\|y" in refusal_as_markdown(why)
    suite = ElementTree.fromstring(refusal_as_junit(why))
    assert (suite.attrib["tests"], suite.attrib["errors"]) == ("1", "1")
    (error,) = suite.iter("error")
    assert error.attrib["message"] == why
