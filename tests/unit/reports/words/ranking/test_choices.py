"""Which one to run: for each load, the next best beside it, and never one that costs answers."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from harness.core.nouns import Load, Slo
from reports.cells import Cell
from reports.collect import Samples
from reports.variants import NamedOptions, Variant, variants
from reports.words.quality import qualities
from reports.words.ranking.choices import Choice, _load_words, choices
from reports.words.ranking.headline import headline
from reports.words.verdict import verdicts
from results.compare.judged import Mean
from results.compare.rivals import RequestTimes
from tests.support.results.made_effects import made_effects

VLLM, EXACT, OTHER, LOSSY = EVERY = variants(
    [
        NamedOptions("vllm", {}, "official code", True),
        NamedOptions("exact", {}, "re-implementation", False),
        NamedOptions("other", {}, "re-implementation", False),
        NamedOptions("lossy", {}, "re-implementation", False, True),
    ]
)
IDS = [f"r{i}" for i in range(40)]


class RankedRun:
    """Cells of so many clients, with the requests' times that their speed-ups come of."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.samples = Samples()

    def add(
        self, variant: Variant, speedup: float, *, clients: int = 1, same: float = 1.0,
        workload: str = "gsm8k", noise: float = 0.01, right: int = 30, sound: bool = True,
    ) -> None:  # fmt: skip
        cell = Cell(
            variant=variant, workload=workload, load=f"closed c={clients}", load_kind="closed",
            load_value=clients, order=clients, keys=(), slo=Slo(), trials=3, failed=0,
            valid_trials=3 if sound else 0,
            metrics={
                "speedup": speedup, "speedup_low": speedup - 0.1, "speedup_high": speedup + 0.1,
                "consistency_ratio": same, "repeats": 3, "spread": {},
                "void_metrics": [] if sound else ["speedup"],
            },
            effects={"speedup": made_effects(speedup, speedup - 0.1, speedup + 0.1, workload)},
        )  # fmt: skip
        self.cells.append(cell)
        draw = np.random.default_rng([variant.index, clients])
        for repeat in range(4):
            values = np.exp(draw.normal(0, noise, len(IDS))) / speedup
            for name, factor in (("tpot_s", 1.0), ("e2e_s", 0.8), ("ttft_s", 2.0)):
                slower = factor if speedup > 1 else 1.0
                self.samples.times[name][cell][repeat] = RequestTimes(IDS, values / slower)
        scores = {name: Mean(float(i < right), 1) for i, name in enumerate(IDS)}
        self.samples.scores[variant.index, workload, "", "exact_match"] = scores

    def choices(self) -> list[Choice]:
        quality = qualities(self.cells, EVERY, self.samples)
        return choices(self.cells, EVERY, quality, self.samples)


@pytest.fixture
def run() -> RankedRun:
    found = RankedRun()
    for clients in (1, 8):
        found.add(VLLM, 1.0, clients=clients)
    found.add(EXACT, 1.5)
    found.add(OTHER, 1.3)
    found.add(LOSSY, 2.5, same=0.2, right=3)
    found.add(EXACT, 1.21, clients=8)
    found.add(OTHER, 1.4, clients=8)
    return found


def test_each_load_has_a_choice_of_its_own(run: RankedRun) -> None:
    one, eight = run.choices()
    assert (one.load, one.load_words) == ("closed c=1", "one request at a time")
    assert (one.name, one.speed, one.interval) == ("exact", "1.50× vllm", "[1.40, 1.60]")
    assert one.answers == "the same answers as vllm"
    whole, first = (float(times.rstrip("×")) for times, _ in (one.whole, one.first))
    assert whole == pytest.approx(1.5 * 0.8, abs=0.02)
    assert first == pytest.approx(1.5 * 2, abs=0.02)
    assert one.whole[1].startswith("[1.1")
    assert one.rival.startswith("1.16× [1.1")
    assert one.rival.endswith("] other")
    assert (eight.name, eight.load_words) == ("other", "8 requests at a time")
    assert eight.price == ""


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (Load("poisson", rate=4.0), "arrivals as they come; intervals are of this one draw"),
        (Load("poisson", rate=4.0, redraw=True), "arrivals as they come"),
        (Load("constant", rate=4.0), "arrivals as they come"),
    ],
)
def test_under_random_arrivals_it_is_said_of_what_intervals_are(
    load: Load, told: str, run: RankedRun
) -> None:
    cell = dataclasses.replace(
        run.cells[0], load=load.label(), load_kind=load.kind, load_value=load.rate
    )
    assert _load_words(cell, [cell], run.samples) == told


def test_one_that_costs_answers_is_named_with_its_price(run: RankedRun) -> None:
    one, _ = run.choices()
    assert one.price == (
        "lossy 2.50× [2.40, 2.60]: worse than the reference's: gsm8k exact match 0.750 → 0.0750"
    )


@pytest.mark.parametrize(
    ("same", "told"),
    [(0.2, "other answers that no score judges"), (None, "answers that could not be compared")],
)
def test_without_a_score_nothing_is_said_of_answers_but_whether_they_differ(
    same: float | None, told: str
) -> None:
    run = RankedRun()
    run.add(VLLM, 1.0)
    run.add(LOSSY, 2.5, same=0.2)
    metrics = {**run.cells[1].metrics, "consistency_ratio": same}
    run.cells[1] = dataclasses.replace(run.cells[1], metrics=metrics)
    run.samples.scores.clear()
    (found,) = choices(run.cells, EVERY, {}, run.samples)
    assert found.price == f"lossy 2.50× [2.40, 2.60]: {told}"


def test_a_difference_that_is_not_shown_is_not_claimed() -> None:
    run = RankedRun()
    run.add(VLLM, 1.0)
    run.add(EXACT, 1.52, noise=0.4)
    run.add(OTHER, 1.5, noise=0.4)
    (found,) = run.choices()
    assert found.rival.endswith("other: no difference shown")


def test_where_the_next_best_is_shown_to_win_is_said() -> None:
    run = RankedRun()
    for workload, other in (("gsm8k", 1.1), ("xsum", 1.7)):
        run.add(VLLM, 1.0, workload=workload)
        run.add(EXACT, 1.5, workload=workload)
        run.add(OTHER, other, workload=workload)
    (found,) = run.choices()
    assert found.name == "exact"
    assert found.rival.endswith("] other, which is faster on xsum")
    assert not found.rival.startswith("0."), "on average it is not"


def test_whole_answers_of_other_lengths_are_not_compared(run: RankedRun) -> None:
    cells = [
        dataclasses.replace(cell, metrics={**cell.metrics, "void_metrics": ["e2e_s_mean"]})
        for cell in run.cells
    ]
    for times in run.samples.times.values():
        times.update({new: times[old] for old, new in zip(run.cells, cells, strict=True)})
    one, _ = choices(cells, EVERY, qualities(cells, EVERY, run.samples), run.samples)
    assert (one.name, one.whole, one.first) == ("exact", ("", ""), ("", ""))


def test_without_a_faster_one_the_reference_stays() -> None:
    run = RankedRun()
    run.add(VLLM, 1.0)
    run.add(EXACT, 1.05)
    (found,) = run.choices()
    assert (found.chosen, found.name, found.speed) == (None, "vllm", "")
    assert (found.whole, found.answers) == (("", ""), "unchanged")
    assert found.rival == "exact 1.05× [0.95, 1.15]: not shown to be faster"


@pytest.mark.parametrize(
    ("repeats", "speedup", "told"),
    [
        (1, 9.0, "one repeat cannot tell; repeat it to tell"),
        (2, 1.5, "two repeats cannot tell; repeat it to tell"),
        (2, 3.0, ""),
        (3, 1.5, ""),
    ],
)
def test_few_repeats_choose_what_they_can_tell(repeats: int, speedup: float, told: str) -> None:
    """One says nothing of what the machine does from one to the next; of two, one difference."""
    run = RankedRun()
    run.add(VLLM, 1.0)
    run.add(EXACT, speedup)
    metrics = {**run.cells[1].metrics, "speedup_repeats": repeats}
    run.cells[1] = dataclasses.replace(run.cells[1], metrics=metrics)
    (found,) = choices(run.cells, EVERY, {}, run.samples)
    assert found.name == ("vllm" if told else "exact")
    first = headline(run.cells, EVERY[:2], "")
    assert first.startswith("exact was not clearly" if told else "exact (re-implementation) was f")
    assert f"{speedup:.2f}×" in first
    line = verdicts(run.cells, EVERY[:2], "")[1]
    assert line.speed == f"{speedup:.2f}×"
    for text in (found.rival, first.rstrip("."), line.sentence):
        assert not told or f"]: {told}" in text


def test_only_what_all_have_sound_counts(run: RankedRun) -> None:
    run.add(VLLM, 1.0, workload="xsum")
    run.add(EXACT, 9.0, workload="xsum", sound=False)
    run.add(OTHER, 1.1, workload="xsum")
    run.add(LOSSY, 2.5, workload="xsum", same=0.2, right=3)
    one, eight = run.choices()
    assert (one.name, one.speed, one.rests_on) == ("exact", "1.50× vllm", "1 of 2")
    assert one.rival.startswith("1.16×")
    assert eight.rests_on == "1 of 1"


def test_nothing_to_compare_is_no_table(run: RankedRun) -> None:
    assert choices(run.cells[:2], [VLLM], {}, run.samples) == []
    assert choices(run.cells[2:], [EXACT, OTHER], {}, run.samples) == []


def test_who_is_nowhere_sound_is_no_next_best() -> None:
    run = RankedRun()
    run.add(VLLM, 1.0)
    run.add(EXACT, 1.02)
    run.add(OTHER, 9.0, sound=False)
    (found,) = run.choices()
    assert found.rival == "exact 1.02× [0.92, 1.12]: not shown to be faster"


def on_two_workloads(same: float, scored: tuple[str, ...] = ("gsm8k",)) -> RankedRun:
    """An early exit with other answers to gsm8k that are scored as good, and `same` on sharegpt."""
    run = RankedRun()
    for workload in ("gsm8k", "sharegpt"):
        run.add(VLLM, 1.0, workload=workload)
        run.add(EXACT, 1.5, workload=workload)
        run.add(LOSSY, 2.5, workload=workload, same=0.9 if workload == "gsm8k" else same)
    run.samples.scores.clear()
    for variant, workload in itertools.product((VLLM, LOSSY), scored):
        scores = {f"r{i}": Mean(1.0, 1) for i in range(150)}
        run.samples.scores[variant.index, workload, "", "exact_match"] = scores
    return run


def test_a_score_on_one_workload_does_not_speak_for_another() -> None:
    """A method that kept its score on one and changed every answer of the other was chosen."""
    run = on_two_workloads(same=0.0)
    judged = (
        "as good as the reference's within 0.02 of the score on gsm8k, and judged by no score on "
        "sharegpt"
    )
    (found,) = run.choices()
    assert found.name == "exact"
    assert found.price.startswith("lossy 2.50× [")
    assert found.price.endswith(f"]: {judged}")
    quality = qualities(run.cells, EVERY, run.samples)
    told = headline(run.cells, EVERY, "", quality, run.samples)
    assert told.startswith("exact (re-implementation) was the fastest whose answers are as good")
    assert told.endswith(f"Its answers are {judged}.")
    lines = verdicts(run.cells, EVERY, "", quality)
    assert [judged in line.sentence for line in lines] == [False, False, False, True]


@pytest.mark.parametrize(("same", "scored"), [(1.0, ("gsm8k",)), (0.0, ("gsm8k", "sharegpt"))])
def test_scores_are_needed_where_answers_differ(same: float, scored: tuple[str, ...]) -> None:
    (found,) = on_two_workloads(same, scored).choices()
    assert (found.name, found.price) == ("lossy", "")
    assert found.answers == "others, as good as the reference's within 0.02 of the score"
