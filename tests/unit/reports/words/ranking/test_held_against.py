"""The winner of a ranking is held against the next best: who is ahead, and who only looks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.core.nouns import Slo
from reports.cells import Cell
from reports.collect import Samples
from reports.variants import NamedOptions, Variant, variants
from reports.words.ranking.choices import _lost, choices
from reports.words.ranking.headline import headline
from reports.words.ranking.held_against import duels, held_against
from results.compare.intervals.several import cell_effects
from results.compare.rivals import RequestTimes
from tests.support.results.made_effects import made_effects

VLLM, FAST, NEXT, WILD = variants(
    [
        NamedOptions("vllm", {}, "official code", True),
        NamedOptions("fast", {}, "re-implementation", False),
        NamedOptions("next", {}, "re-implementation", False),
        NamedOptions("wild", {}, "re-implementation", False),
    ]
)
IDS = [f"r{i}" for i in range(30)]
LOADS = ("closed c=1", "closed c=8")


def measured(samples: Samples, variant: Variant, speedup: float, load: str, noise: float) -> Cell:
    ends = {"speedup": speedup, "speedup_low": speedup - 0.1, "speedup_high": speedup + 0.1}
    cell = Cell(
        variant=variant, workload="gsm8k", load=load, load_kind="closed", load_value=1, order=0,
        keys=(), slo=Slo(), trials=3, failed=0, valid_trials=3,
        metrics={**ends, "consistency_ratio": 1.0, "repeats": 3, "spread": {}, "void_metrics": []},
        effects={"speedup": made_effects(speedup, speedup - 0.1, speedup + 0.1, "gsm8k")},
    )  # fmt: skip
    draw = np.random.default_rng(variant.index)
    samples.times["tpot_s"][cell] = {
        repeat: RequestTimes(IDS, np.exp(draw.normal(0, noise, len(IDS))) / speedup)
        for repeat in range(3)
    }
    return cell


def ranked(fast: float, other: float, noise: float) -> tuple[list[Cell], Samples]:
    samples = Samples()
    pairs = ((VLLM, 1.0), (FAST, fast), (NEXT, other))
    return [measured(samples, v, s, load, noise) for load in LOADS for v, s in pairs], samples


@pytest.mark.parametrize(
    ("other", "noise", "told"),
    [
        (1.5, 0.05, "fast (re-implementation) was the fastest on average over both pairs of "),
        (
            1.98,
            0.5,
            "fast (re-implementation) had the highest speed-up on average over both ",
        ),
    ],
)
def test_a_winner_is_one_only_where_a_difference_is_shown(
    other: float, noise: float, told: str
) -> None:
    cells, samples = ranked(2.0, other, noise)
    found = headline(cells, [VLLM, FAST, NEXT], "", samples=samples)
    assert found.startswith(told)
    assert ("no difference shown" in found) == (noise > 0.1)
    assert ("that of next, the next best" in found) == (noise < 0.1)


def test_every_cell_of_ours_needs_its_pair() -> None:
    cells, samples = ranked(2.0, 1.0, 0.01)
    ours, theirs = ([c for c in cells if c.variant is v] for v in (FAST, NEXT))
    found = held_against(ours, theirs, samples)
    assert found is not None
    assert found.low < 2.0 < found.high
    assert found.value == pytest.approx(2.0, rel=0.02)
    assert held_against(ours, theirs[:1], samples) is None
    assert held_against([], theirs, samples) is None


@pytest.mark.parametrize(
    ("repeats", "won", "told"),
    [
        (1, False, "one repeat cannot tell; repeat it to tell"),
        (2, False, "two repeats cannot tell; repeat it to tell"),
        (3, True, ""),
    ],
)
def test_one_and_two_repeats_are_not_enough_to_win_by_a_little(
    repeats: int, won: bool, told: str
) -> None:
    """Requests differ little, and repeats by more: two of these may be alike by luck."""
    cells, samples = ranked(1.04, 1.0, 0.05)
    ours, theirs = ([c for c in cells if c.variant is v] for v in (FAST, NEXT))
    for cell in cells:
        found = samples.times["tpot_s"][cell]
        samples.times["tpot_s"][cell] = {n: found[n] for n in range(repeats)}
    (duel,) = duels(ours, [(NEXT, theirs)], samples)
    assert duel.found is not None
    assert duel.found.low > 1, "by the interval that is shown"
    assert (duel.is_won, "" if won else duel.why_open) == (won, told)


@pytest.mark.parametrize(("repeats", "lost"), [(2, []), (3, ["xsum"])])
def test_a_workload_is_lost_where_the_other_is_shown_to_be_faster(
    repeats: int, lost: list[str]
) -> None:
    samples = Samples()
    sides: dict[int, list[Cell]] = {FAST.index: [], NEXT.index: []}
    for variant, workload, speedup in (
        (FAST, "gsm8k", 1.5), (NEXT, "gsm8k", 1.0), (FAST, "xsum", 1.0), (NEXT, "xsum", 1.06),
    ):  # fmt: skip
        for load in LOADS:
            cell = measured(samples, variant, speedup, load, 0.05)
            times = samples.times["tpot_s"].pop(cell)
            sides[variant.index].append(replace(cell, workload=workload))
            samples.times["tpot_s"][sides[variant.index][-1]] = {
                n: times[n] for n in range(repeats)
            }
    ours, theirs = sides.values()
    assert _lost(ours, theirs, samples) == lost


def test_who_is_not_surely_faster_than_the_reference_may_be_as_fast_as_the_winner() -> None:
    for other, noise in ((1.03, 0.5), (0.9, 0.5)):
        cells, samples = ranked(1.13, other, noise)
        found = headline(cells, [VLLM, FAST, NEXT], "", samples=samples)
        told = "had the highest speed-up" if other > 1 else "was the fastest"
        assert found.startswith(f"fast (re-implementation) {told}"), found
        assert ("(over next " in found) == (other > 1)


def test_whose_answers_are_not_as_good_is_no_next_best() -> None:
    cells, samples = ranked(1.13, 1.03, 0.5)
    lossy = [
        replace(cell, metrics={**cell.metrics, "consistency_ratio": 0.5})
        if cell.variant is NEXT
        else cell
        for cell in cells
    ]
    for old, new in zip(cells, lossy, strict=True):
        samples.times["tpot_s"][new] = samples.times["tpot_s"][old]
    found = headline(lossy, [VLLM, FAST, NEXT], "", samples=samples)
    assert found.startswith("fast (re-implementation) was the fastest"), found
    assert "next" not in found


def with_third(times: Sequence[float]) -> tuple[list[Cell], Samples]:
    """Beside `fast` and `next`, which no noise parts, one whose repeats vary so."""
    cells, samples = ranked(2.0, 1.8, 0.0)
    third = measured(samples, WILD, 1.7, LOADS[0], 0.0)
    metrics = {**third.metrics, "speedup_low": 0.8, "speedup_high": 3.6}
    wild = replace(third, metrics=metrics, effects={"speedup": made_effects(1.7, 0.8, 3.6, "x")})
    samples.times["tpot_s"][wild] = {
        repeat: RequestTimes(IDS, np.full(len(IDS), time)) for repeat, time in enumerate(times)
    }
    return [*(c for c in cells if c.load == LOADS[0]), wild], samples


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ((0.40, 0.85, 0.62), "fast (re-implementation) had the highest speed-up: 2.00×"),
        ((0.83, 0.85, 0.84), "fast (re-implementation) was the fastest: 2.00×"),
    ],
)
def test_a_winner_is_held_against_each_other_one(times: Sequence[float], told: str) -> None:
    """The third one's mean is the lowest, and its interval the widest."""
    cells, samples = with_third(times)
    found = headline(cells, [VLLM, FAST, NEXT, WILD], "", samples=samples)
    assert found.startswith(told), found
    is_open = "highest" in told
    assert ("(over wild " in found) == ("no difference shown" in found) == is_open
    assert ("that of next, the next best" in found) != is_open
    (choice,) = choices(cells, [VLLM, FAST, NEXT, WILD], {}, samples)
    assert choice.rival.startswith("1.11× [1.11, 1.11] next")
    assert choice.rival.endswith(" wild: no difference shown") == is_open


def test_who_is_not_surely_faster_and_looks_it_is_told() -> None:
    cells, samples = with_third((0.2, 0.9, 0.5))
    wild = cells[-1]
    high = replace(
        wild,
        metrics={**wild.metrics, "speedup": 2.2, "speedup_low": 0.9, "speedup_high": 5.4},
        effects={"speedup": made_effects(2.2, 0.9, 5.4, "x")},
    )
    samples.times["tpot_s"][high] = samples.times["tpot_s"][wild]
    found = headline([*cells[:-1], high], [VLLM, FAST, NEXT, WILD], "", samples=samples)
    assert found.startswith("fast (re-implementation) was faster: 2.00×"), found
    assert "(over wild " in found


def going_on(samples: Samples, variant: Variant, speedup: float, place: int) -> Cell:
    """A cell of a run that goes on: of eight loads the last has its second repeat, in which all but
    the reference are 10% faster."""
    cell = measured(samples, variant, speedup, f"closed c={place + 1}", 0.05)
    own = np.array([[0.0], [0.1 * (variant is not VLLM)]])[: 1 + (place == 7)]
    noise = np.random.default_rng(place).normal(0, 0.05, (len(own), len(IDS)))
    logs = np.log(speedup) + own + noise
    effects = cell_effects(logs, range(len(own)), "gsm8k")
    assert effects is not None
    cell = replace(cell, effects={"speedup": effects})
    samples.times["tpot_s"][cell] = {
        repeat: RequestTimes(IDS, np.exp(-line)) for repeat, line in enumerate(logs)
    }
    return cell


def test_a_run_of_which_one_cell_has_its_second_repeat_has_a_headline() -> None:
    """The ends of its intervals were numbers that no float holds."""
    samples = Samples()
    pairs = ((VLLM, 1.0), (FAST, 2.0), (NEXT, 1.8))
    cells = [going_on(samples, v, s, place) for place in range(8) for v, s in pairs]
    found = headline(cells, [VLLM, FAST, NEXT], "", samples=samples)
    assert found.startswith("No backend was clearly faster than vllm on average over all 8 pairs")
    ours, theirs = ([c for c in cells if c.variant is v] for v in (FAST, VLLM))
    against = held_against(ours, theirs, samples)
    assert against is not None
    assert 0.1 < against.low < against.value < against.high < 10
