"""The section on searched rates, and that probes stand nowhere else."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Load, Slo
from reports.cells import overview
from reports.collect import Samples
from reports.page import render, write_report
from reports.sections.searched import without_probes
from reports.sections.speed import goodput, sustained
from reports.words.ranking.rates import ranking
from results import load
from tests.support.results.report_runs import MadeUpBackend, write_run

ENGINES = (
    MadeUpBackend("vllm", 0.010, provenance="official code"),
    MadeUpBackend("adadecode", 0.0135, tokens_per_step=2),
    MadeUpBackend("speculative", 0.0135, tokens_per_step=2),
)
SWEPT = Load("closed", concurrency=1)
PROBES = (Load("poisson", rate=4.0), Load("poisson", rate=8.0))


def searched(folder: Path, found: dict[str, Any], swept: tuple[Load, ...] = (SWEPT,)) -> Path:
    """A run whose open loads are probes; `found`: backend -> (rate, low, high) or None."""
    write_run(
        folder, engines=ENGINES, workloads=["gsm8k"], loads=[*swept, *PROBES], repeats=1, requests=8
    )
    keys: dict[str, list[str]] = {}
    for stored in load(folder).stored:
        if stored.record.trial.load.kind == "poisson":
            keys.setdefault(stored.record.trial.backend, []).append(stored.record.key)
    probes = [
        {"rate": r, "rate_came_about": r * 1.1, "share": s, "low": s - 0.1, "high": s, "judged": 8}
        for r, s in ((4.0, 1.0), (8.0, 0.5))
    ]
    systems = [
        {
            **dict(
                zip(("rate_per_s", "low_per_s", "high_per_s"), rates or (None,) * 3, strict=True)
            ),
            "limit": "TTFT",
            "answers": {
                "score": "exact_match",
                "mean": 0.5,
                "low": 0.25,
                "high": 0.75,
                "scored": 16,
                "right_per_s": 1.5,
                "prompts": 16,
            },
            "scales": [
                {"scale": 2.0, "rate_per_s": 9.0, "low_per_s": 8.0, "high_per_s": 9.5},
                {"scale": 0.5, "rate_per_s": None, "low_per_s": None, "high_per_s": None},
            ],
            "ended": "probes used up",
            "probes": probes,
            "keys": keys[name],
        }
        for name, rates in found.items()
    ]
    trials = sorted(key for own in keys.values() for key in own)
    answer = {"share": 0.99, "confidence": 0.95, "systems": systems, "trials": trials}
    (folder / "goodput.json").write_text(json.dumps(answer))
    return folder


def section(text: str, name: str) -> str:
    match = re.search(rf'<section id="{name}">.*?</section>', text, re.DOTALL)
    assert match
    return match.group()


APART = {"vllm": (4.0, 3.5, 4.5), "adadecode": (6.0, 5.0, 7.0), "speculative": (6.5, 5.5, 7.5)}


def test_the_section_has_curve_table_and_ranking(tmp_path: Path) -> None:
    text = section(write_report(searched(tmp_path, APART)).read_text(), "sustained")
    assert (
        "speculative (6.50/s [5.50, 7.50]), adadecode (6.00/s [5.00, 7.00]) (among which no order "
        "can be claimed: the intervals overlap) sustained more than vllm (4.00/s [3.50, 4.50])."
    ) in text
    assert text.count("<svg") >= 1
    assert text.count(">probes used up<") == 3
    assert "50.0% [40.0, 50.0] at 8.80/s" in text
    # the realised rate of the probe nearest to the found one, and what was asked
    assert "4.40" in text
    assert "asked 4.00, 100% within" in text
    assert "exact match 0.500 [0.250, 0.750]" in text
    assert "Sustained rate over the objective, times so much: gsm8k" in text
    assert "9.00/s [8.00, 9.50] at 2.00 times" in text


def test_probes_change_nothing_else_on_the_page(tmp_path: Path) -> None:
    folder = searched(tmp_path / "both", APART)
    plain = write_run(
        tmp_path / "plain", engines=ENGINES, workloads=["gsm8k"], loads=[SWEPT], repeats=1,
        requests=8,
    )  # fmt: skip
    # of the probes' loads the experiment knows nothing
    (folder / "experiment.yaml").write_bytes((plain / "experiment.yaml").read_bytes())
    both, alone = render(load(folder)), render(load(plain))
    for name in ("verdict", "results", "throughput", "latency", "validity"):
        assert section(both, name) == section(alone, name), name
    assert 'id="sustained"' not in alone


def test_a_run_of_probes_alone_has_the_one_section(tmp_path: Path) -> None:
    text = render(load(searched(tmp_path, APART, swept=())))
    ids = re.findall(r'<section id="([^"]+)"', text)
    assert ids == ["verdict", "sustained", "environment", "definitions"]
    assert "#requests" not in text
    verdict = section(text, "verdict")
    assert "sustained more than vllm (4.00/s [3.50, 4.50])." in verdict
    assert "searched for the highest sustained rates" in verdict
    assert '<details class="section" open>' in section(text, "sustained")


def test_a_search_that_was_broken_off_at_once_is_told(tmp_path: Path) -> None:
    text = render(load(searched(tmp_path, {}, swept=())))
    assert "was broken off before it came to an end for any system" in section(text, "verdict")


def test_probes_of_a_broken_off_search_are_no_sweep(tmp_path: Path) -> None:
    searched(tmp_path, {})
    _, seen = without_probes(load(tmp_path))
    assert [cell.load for cell in seen.cells] == [SWEPT.label()] * 3
    assert seen.searched == ()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"vllm": (4, 3, 5), "adadecode": (6, 4.5, 7)}, "The intervals overlap, so no order can"),
        ({"vllm": (4, 3, 5), "adadecode": None}, "Only vllm (4.00/s [3.00, 5.00]) was found to"),
        ({"vllm": (4, 3, 5), "adadecode": None}, "No rate was found of adadecode."),
        # the first overlaps the last, so that the middle one's narrower interval orders nothing
        (
            {"vllm": (4, 3, 5), "adadecode": (6, 5.5, 6.5), "speculative": (7, 4.5, 9)},
            "no order can be claimed among speculative",
        ),
    ],
)
def test_an_order_is_claimed_only_between_intervals_apart(
    tmp_path: Path, found: dict[str, Any], words: str
) -> None:
    _, seen = without_probes(load(searched(tmp_path, found)))
    (said,) = ranking(seen.searched)
    assert words in said
    assert "sustained more than" not in said


def test_a_ranking_of_trials_that_are_not_valid_says_so(tmp_path: Path) -> None:
    _, seen = without_probes(load(searched(tmp_path, APART)))
    sound = [one._replace(not_valid=0) for one in seen.searched]
    noisy = [sound[0]._replace(not_valid=2), *sound[1:]]
    said = [next(ranking(found)) for found in (sound, noisy)]
    assert said[1] == said[0] + " Not to be relied on: trials of vllm are not valid."


def test_replays_are_ranked_among_themselves(tmp_path: Path) -> None:
    _, seen = without_probes(load(searched(tmp_path, APART)))
    (said,) = ranking(seen.searched)
    assert "sustained more than" in said
    replay = dataclasses.replace(seen.searched[-1].cell.variant, is_replay=True)
    cell = dataclasses.replace(seen.searched[-1].cell, variant=replay)
    mixed = [*seen.searched[:-1], seen.searched[-1]._replace(cell=cell)]
    assert not any(replay.label in told for told in ranking(mixed)), "it is alone among replays"


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    searched(tmp_path, APART)
    (tmp_path / "goodput.json").write_text('{"share": 1}')
    with pytest.raises(UserError, match=r"goodput\.json: is broken \(KeyError: 'confidence'\)"):
        render(load(tmp_path))


def test_a_note_names_every_objective(tmp_path: Path) -> None:
    folder = searched(tmp_path, APART)
    seen = overview(load(folder))
    one = "TTFT ≤ 60 ms, TPOT ≤ 11 ms"
    assert goodput.objectives(seen.cells) == one
    other = dataclasses.replace(seen.cells[0], slo=Slo(e2e_ms=900))
    assert goodput.objectives([*seen.cells, other]) == f"{one}; of other rows end to end ≤ 900 ms"
    _, probed = without_probes(load(folder))
    first, *rest = probed.searched
    first = first._replace(cell=dataclasses.replace(first.cell, slo=Slo(e2e_ms=900)), share=0.9)
    made = sustained.section(dataclasses.replace(probed, searched=(first, *rest)), Samples())
    assert made is not None
    assert f"(end to end ≤ 900 ms; of other rows {one})" in made.note
    assert "at which 90 or 99% of the requests" in made.note


def test_rows_and_figures_follow_the_filters(tmp_path: Path) -> None:
    """They vanished under any load, and under a workload whose label is more than its name."""
    folder = searched(tmp_path, APART)
    for path in (folder / "trials").glob("*.json"):
        stored = json.loads(path.read_text())
        workload, rate = stored["trial"]["workload"], stored["trial"]["load"]["rate"]
        workload["options"] = {"chat": {"system": "Be brief."}}
        if rate is not None:  # each probe draws rows of its own
            workload["checksum"] += f" at {rate}"
        path.write_text(json.dumps(stored))
    text = write_report(folder).read_text()
    label = "gsm8k (system &#34;Be brief.&#34;)"
    assert f'<option value="{label}">' in text
    own = section(text, "sustained")
    heads = re.findall(r"<(?:tr class|figure)[^>]*>", own)
    assert len(heads) == 3 + 2
    assert all(f' data-workload="{label}"' in head for head in heads)
    assert "data-load" not in own + section(text, "same_text")


def test_settings_of_one_workload_are_told_apart(tmp_path: Path) -> None:
    """Entries of one workload stood in one panel under one name, and were ranked."""
    folder = searched(tmp_path, APART, swept=())
    for path in (folder / "trials").glob("*.json"):
        stored = json.loads(path.read_text())
        stored["trial"]["max_new_tokens"] = 4 if stored["trial"]["backend"] == "vllm" else 16
        path.write_text(json.dumps(stored))
    _, seen = without_probes(load(folder))
    assert [one.workload for one in seen.searched] == ["gsm8k"] * 3
    text = section(render(load(folder)), "sustained")
    assert "over the rate: gsm8k, max new tokens 4" in text
    assert "gsm8k, max new tokens 16: speculative (6.50/s" not in text
    assert "gsm8k, max new tokens 16: The intervals overlap" in text
    assert "sustained more than" not in text


def test_probes_of_other_rows_are_of_one_workload_and_other_options_are_not(tmp_path: Path) -> None:
    folder = searched(tmp_path, APART, swept=())
    for path in (folder / "trials").glob("*.json"):
        stored = json.loads(path.read_text())
        trial = stored["trial"]
        trial["workload"]["checksum"] += f" at {trial['load']['rate']}"
        trial["seed"] = int(trial["load"]["rate"])
        if trial["backend"] == "vllm":
            trial["workload"]["options"] = {"mix": "1:3"}
        path.write_text(json.dumps(stored))
    _, seen = without_probes(load(folder))
    assert {one.place for one in seen.searched} == {"gsm8k bundled mix=1:3", "gsm8k bundled"}


HELD = (None, 8.0, None)


def test_a_system_that_missed_no_rate_is_led_by_its_lower_bound(tmp_path: Path) -> None:
    """The page said that it sustained none."""
    _, seen = without_probes(load(searched(tmp_path, {"vllm": HELD})))
    made = sustained.section(seen, Samples())
    assert made is not None
    assert made.finding == "At least 8.00 requests per second sustained, 1 system searched."
    text = section(write_report(tmp_path).read_text(), "sustained")
    assert ">at least 8.00<" in text
    assert "no rate was missed: probes used up" in text
    assert "asked 8.00, 50.0% within" in text, "of the probe at that rate"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            {"vllm": HELD, "adadecode": (6.0, 5.0, 7.0)},
            "A limit was found of adadecode (6.00/s [5.00, 7.00]) alone. No limit was seen of vllm "
            "(at least 8.00/s; probes used up).",
        ),
        (
            {"vllm": HELD, "adadecode": None},
            "No order can be claimed, since no limit was found. No limit was seen of vllm (at "
            "least 8.00/s; probes used up). No rate was found of adadecode.",
        ),
        ({**APART, "vllm": HELD}, ". No limit was seen of vllm (at least 8.00/s; probes used up)."),
    ],
)
def test_a_lower_bound_is_told_and_not_ranked(
    tmp_path: Path, found: dict[str, Any], words: str
) -> None:
    _, seen = without_probes(load(searched(tmp_path, found)))
    (said,) = ranking([one._replace(not_valid=0) for one in seen.searched])
    assert said.endswith(words)
