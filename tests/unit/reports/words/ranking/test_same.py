"""Who may be chosen is decided by the page's one verdict on texts, not by a comparison of means."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from harness.core.nouns import Slo
from reports.cells import Cell, overview
from reports.variants import NamedOptions, variants
from reports.words.ranking.headline import headline
from reports.words.ranking.races import Race
from reports.words.ranking.same import answer_words, consistency, keeps_answers
from reports.words.verdict import verdicts
from results import load
from results.compare.lossless.verdicts import BackendText, LosslessVerdict
from tests.support.results.made_effects import made_effects
from tests.support.results.report_runs import LOADS, PLAIN, MadeUpBackend, write_run

VLLM, FAST = variants(
    [
        NamedOptions("vllm", {}, "official code", True),
        NamedOptions("fast", {}, "re-implementation", False),
    ]
)
WHY = "no evidence that it differs more than the reference from itself (p = 0.4)"


def judged(verdict: LosslessVerdict, why: str = WHY, p_value: float | None = None) -> BackendText:
    return BackendText(
        backend="fast", options={}, label=None, model="demo", dtype="bfloat16",
        machine="", against="vllm", is_reference=False,
        promised=None, verdict=verdict, why=why, pairs=40, equal=30, requests=40, low=None,
        high=None, noise_floor=0.78, fork=None, surest=None, p_value=p_value, distance=None,
    )  # fmt: skip


def cell(same: float | None, floor: float | None = None, **texts: BackendText) -> Cell:
    metrics: dict[str, Any] = {
        "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "consistency_ratio": same,
        "consistency_native": same, "noise_floor": floor, "repeats": 3, "spread": {},
    }  # fmt: skip
    return Cell(
        variant=FAST, workload="gsm8k", load="closed c=1", load_kind="closed", load_value=1,
        order=0, metrics=metrics, keys=(), slo=Slo(), trials=3, failed=0, valid_trials=3,
        effects={"speedup": made_effects(2.0, 1.9, 2.1, "gsm8k")}, texts=texts,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "same", "floor", "keeps"),
    [
        ("within noise", 0.75, 0.78, True),  # half of those as noisy as it lie below the floor
        ("lossy", 0.80, 0.78, False),  # one bad workload is averaged away
        ("unknown", 0.75, 0.78, False),
        ("unknown", 0.80, 0.78, False),
        ("lossy", 1.0, 0.78, True),  # of these cells all are equal
    ],
)
def test_the_verdict_on_texts_decides_where_there_is_one(
    verdict: LosslessVerdict, same: float, floor: float, keeps: bool
) -> None:
    cells = [cell(same, floor, consistency_ratio=judged(verdict))]
    assert keeps_answers(cells) is keeps
    (line,) = verdicts(cells, [FAST], "")
    assert (line.answers in ("same", "same up to noise")) is keeps
    assert Race("vllm", [FAST]).has_good_answers(cells, None) is keeps


def test_the_sentence_gives_the_reason_of_the_verdict() -> None:
    noisy = [cell(0.75, 0.78, consistency_ratio=judged("within noise"))]
    told = headline(noisy, [VLLM, FAST], "")
    assert told.endswith(f"with other answers, {WHY}.")
    draws = judged("within noise", "next tokens after 9 shared beginnings do not differ", 0.4)
    assert answer_words([cell(0.1, None, consistency_ratio=draws)]) == (
        "other draws, of a distribution that is not told from the reference's (p = 0.40)"
    )
    native = Race("plain", [FAST], "speedup_native", "consistency_native")
    own = [cell(0.75, 0.78, consistency_native=judged("within noise"))]
    assert native.answers(own) == f"other answers, {WHY.replace('the reference', 'plain')}"
    assert native.keeps(own)
    lossy = [cell(0.75, 0.70, consistency_native=judged("lossy"))]
    assert native.answers(lossy) == "different answers to 25.0% of the requests"


def test_a_share_and_a_floor_are_of_the_same_cells() -> None:
    cells = [cell(0.6, 0.5), cell(0.4)]
    assert consistency(cells) == (0.5, None)
    assert consistency(cells[:1]) == (0.6, 0.5)
    assert not keeps_answers(cells)


def test_each_cell_has_the_verdicts_on_its_backend(tmp_path: Path) -> None:
    changing = dataclasses.replace(PLAIN, changes=0.4)
    own = MadeUpBackend("adadecode", 0.004, {"kernels": "native"}, changes=0.3, lossless=False)
    folder = write_run(
        tmp_path, engines=(MadeUpBackend("vllm", 0.010), changing, own), workloads=["gsm8k"],
        loads=LOADS[:1], repeats=2, requests=12,
    )  # fmt: skip
    found = {cell.variant.backend: cell.texts for cell in overview(load(folder)).cells}
    assert found["vllm"] == {}
    assert {name: text.against for name, text in found["adadecode"].items()} == {
        "consistency_ratio": "vllm",
        "consistency_native": PLAIN.name,
    }
    assert {text.verdict for text in found["adadecode"].values()} == {"lossy"}


def test_what_is_no_part_of_an_average_is_not_counted_in_it() -> None:
    cells = [cell(0.75), cell(None), cell(0.25)]
    (line,) = verdicts(cells, [FAST], "")
    assert line.answers_caption == "50.0% the reference's on average over 2 cells"
    assert answer_words(cells) == "different answers to 50.0% of the requests on average"
    (line,) = verdicts(cells[:2], [FAST], "")
    assert line.answers_caption == "75.0% the reference's"
    assert answer_words(cells[:2]) == "different answers to 25.0% of the requests"
