"""Sentences on drafts: who gains, who loses, and nothing where that is not clear."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from reports.cells import Overview
from reports.page import write_report
from reports.words.drafts import Drafting, drafting
from reports.words.ranking.draft_gains import sentences
from tests.support.results.drafting_runs import changed, one, records, written
from tests.support.results.made_effects import made_effects
from tests.support.results.report_pages import section


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Overview:
    return written(tmp_path_factory.mktemp("drafts"), records())


def told(seen: Overview, *found: Drafting) -> list[str]:
    """What is said where the run has these cells and what they are compared with."""
    # plain decoding on our own engine would be ranked too, and was run on one workload
    plain = [c for c in seen.cells if c.variant.backend == "vllm"]
    return sentences(dataclasses.replace(seen, cells=(*plain, *(one.cell for one in found))), found)


def test_sentences_say_who_gains_and_who_loses(seen: Overview, tmp_path: Path) -> None:
    found = sentences(seen, drafting(seen))
    assert found == [
        "Under closed c=1 these drafts bring more than they cost (decode speed over "
        "autoregressive's): 1.50× [1.50, 1.50] with speculative layerskip "
        "(re-implementation) on gsm8k (2.25 tokens a step, 1.50 needed); 1.12× [1.12, 1.12] with "
        "speculative draft_model (re-implementation) on gsm8k (2.25 tokens a step, 2.00 needed).",
        "Under closed c=1 these drafts cost more than they bring (decode speed over vllm's): 0.90× "
        "[0.90, 0.90] with vllm-speculative (re-implementation) on gsm8k (2.25 tokens a step, "
        "2.50 needed).",
    ], "on xsum plain decoding on our own engine was not run, and it is ranked too"
    written(tmp_path, records())
    drawn = section(write_report(tmp_path).read_text(), "drafts").replace("&#39;", "'")
    first, *others = found
    assert f'<span class="finding">{first}</span>' in drawn, "also while it is folded"
    assert all(f"<p>{sentence}</p>" in drawn for sentence in others)


def test_a_loss_says_what_a_step_brings_and_takes(seen: Overview) -> None:
    (sentence,) = told(seen, one(seen, backend="vllm-speculative"))
    assert sentence.endswith("on gsm8k (2.25 tokens a step, 2.50 needed).")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["gsm8k"], "on gsm8k (2.25 tokens"),
        (["gsm8k", "xsum", "humaneval"], "on average over gsm8k, xsum and humaneval (2.25 tokens"),
        (["gsm8k", "xsum", "humaneval", "qa"], "on average over all 4 workloads (2.25 tokens"),
    ],
)
def test_workloads_are_named_unless_it_is_all_of_them(
    seen: Overview, names: list[str], words: str
) -> None:
    """The fourth workload has a speed-up that is not valid, unless it is named."""
    found = one(seen, backend="vllm-speculative")
    cells = [
        dataclasses.replace(found.cell, workload=name, valid_trials=2 * (name in names))
        for name in ("gsm8k", "xsum", "humaneval", "qa")
    ]
    (sentence,) = told(seen, *(found._replace(cell=cell) for cell in cells))
    assert words in sentence


@pytest.mark.parametrize(
    ("low", "high", "valid", "words"),
    [
        (1.01, 1.2, True, "bring more than they cost"),
        (1.004, 1.2, True, ""),
        (0.9, 1.2, True, ""),
        (0.9, 0.996, True, ""),
        (0.9, 0.99, True, "cost more than they bring"),
        (1.01, 1.2, False, ""),
        (None, None, True, ""),
    ],
)
def test_no_sentence_where_the_interval_touches_1(
    seen: Overview, low: float | None, high: float | None, valid: bool, words: str
) -> None:
    found = one(seen)
    ends = {"speedup_native_low": low, "speedup_native_high": high}
    cell = changed(found.cell, **ends, speedup_native_repeats=3)
    cell = dataclasses.replace(cell, valid_trials=cell.trials * valid)
    said = told(seen, found._replace(cell=cell))
    assert [words in sentence for sentence in said] == [True] * bool(words)


def test_gains_and_losses_are_pooled_together(seen: Overview) -> None:
    """Each alone is clear; of the clear gains alone a sentence would flatter."""
    found = one(seen)

    def on(workload: str, value: float) -> Drafting:
        ends = {"speedup_native_low": value - 0.05, "speedup_native_high": value + 0.05}
        effects = made_effects(value, value - 0.05, value + 0.05, workload)
        cell = dataclasses.replace(
            changed(found.cell, speedup_native=value, **ends),
            workload=workload,
            effects={"speedup_native": effects},
        )
        return found._replace(cell=cell)

    assert told(seen, on("gsm8k", 1.3), on("xsum", 0.77)) == []
    both = [on("gsm8k", 1.3), on("xsum", 1.2)]
    other = dataclasses.replace(found.cell.variant, index=9)
    again = [o._replace(cell=dataclasses.replace(o.cell, variant=other)) for o in both]
    (pair,) = told(seen, *both, *again)
    assert pair.count("on average over gsm8k and xsum") == 1
    assert pair.endswith(" needed), on average over gsm8k and xsum.")
    (gain,) = told(seen, *both)
    assert "1.25×" in gain
    assert "on average over gsm8k and xsum (2.25 tokens a step, " in gain


def test_who_made_no_drafts_did_not_lose_by_them(seen: Overview) -> None:
    found = one(seen, backend="vllm-speculative")
    idle = found._replace(cell=changed(found.cell, drafts_per_step=0.0))
    assert told(seen, idle) == [
        "Under closed c=1 no drafts were made by vllm-speculative on gsm8k."
    ]
    (sentence,) = told(seen, found._replace(cell=changed(found.cell, drafts_per_step=None)))
    assert "cost more than they bring" in sentence, "it does not tell how many it made"
