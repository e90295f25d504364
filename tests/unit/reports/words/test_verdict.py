"""The verdict in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.core.nouns import REPLAYED, Slo
from reports.cells import Cell
from reports.variants import NamedOptions, variants
from reports.words.ranking.headline import headline
from reports.words.verdict import first_reason, verdicts
from tests.support.results.made_effects import made_effects


def cell(valid: bool, reasons: Mapping[str, tuple[int, str]]) -> Cell:
    """As much of a cell as the reason is drawn from."""
    return cast(Cell, cast(Any, SimpleNamespace(valid=valid, reasons=reasons)))


def test_a_remark_is_never_given_as_the_reason_while_there_is_a_real_one() -> None:
    """Too few samples for p99 stands with every trial of a small run, so it is the most frequent;
    the page once said that trials were not valid because of it, when the machine was noisy."""
    noisy = cell(
        False,
        {
            "too-few-samples": (3, "too-few-samples: 12 answers say nothing about p99"),
            "machine-noisy": (1, "machine-noisy: other processes used 48% of CPU time"),
        },
    )
    assert first_reason([noisy]) == "other processes used 48% of CPU time"


def test_remarks_of_valid_cells_are_no_reason_at_all() -> None:
    fine = cell(True, {"too-few-samples": (3, "too-few-samples: 12 answers")})
    assert first_reason([fine]) == ""


def test_too_few_samples_is_the_reason_when_it_is_the_only_one() -> None:
    tiny = cell(False, {"too-few-samples": (1, "too-few-samples: 3 answers")})
    assert first_reason([tiny]) == "3 answers"


def measured(
    value: float | None,
    low: float | None,
    high: float | None,
    *,
    valid: bool = True,
    same: float | None = 1.0,
) -> Cell:
    """A cell with a speed-up; one with too few pairs has no interval."""
    numbers = {"speedup": value, "speedup_low": low, "speedup_high": high}
    return Cell(
        variant=FAST,
        workload="gsm8k",
        load="closed c=1",
        load_kind="closed",
        load_value=1,
        order=0,
        metrics={**numbers, "consistency_ratio": same, "repeats": 3, "spread": {}},
        keys=(),
        slo=Slo(),
        trials=3,
        failed=0,
        valid_trials=3 if valid else 0,
        effects={"speedup": made_effects(value, low, high, "gsm8k")}
        if value and low and high
        else {},
    )


VLLM, FAST = variants(
    [
        NamedOptions("vllm", {}, "official code", True),
        NamedOptions("fast", {}, "re-implementation", False),
    ]
)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([measured(1.5, 1.2, 1.8)], "1.50× the reference's decode speed [1.20, 1.80]"),
        ([measured(0.5, 0.4, 0.6)], "Slower than the reference: 0.50× its decode speed"),
        ([measured(1.5, 0.9, 2.4)], "No clear difference in speed: 1.50× [0.90, 2.40]"),
        ([measured(1.02, 1.004, 1.03)], "No clear difference in speed"),
        ([measured(1.5, None, None)], "Too few pairs of requests to say whether"),
        ([measured(None, None, None), measured(9, 8, 10, valid=False)], "No valid cell has"),
        ([measured(1.5, 1.2, 1.8), measured(9, 8, 10, valid=False)], "1.50× the reference's"),
    ],
)
def test_the_words_say_no_more_than_the_interval(cells: list[Cell], words: str) -> None:
    (found,) = verdicts(cells, [FAST], "")
    assert found.sentence.startswith(words)
    named = headline(cells, [VLLM, FAST], "")
    assert ("was faster" in named) == words.startswith("1.50")


@pytest.mark.parametrize(
    ("same", "words"),
    [
        (1.0, "with the same answers."),
        (0.75, "with different answers to 25.0% of the requests."),
        (None, "with answers that could not be compared."),
    ],
)
def test_the_headline_says_what_the_speed_costs(same: float | None, words: str) -> None:
    """A server that names no token ids can be timed, but not compared."""
    found = headline([measured(1.5, 1.2, 1.8, same=same)], [VLLM, FAST], "")
    assert found.endswith(f"[1.20, 1.80], {words}")


@pytest.mark.parametrize(("repeats", "ends"), [(1, (None, None)), (2, (5.0, 7.0))])
def test_one_repeat_has_no_range(repeats: int, ends: tuple[float | None, float | None]) -> None:
    numbers = {"ttft_p50_s": 6.0, "repeats": repeats, "spread": {"ttft_p50_s": [5.0, 7.0]}}
    found = replace(measured(1.5, 1.2, 1.8), metrics=numbers)
    assert (found.low("ttft_p50_s"), found.high("ttft_p50_s")) == ends


def test_the_references_answers_are_compared_with_its_own() -> None:
    """Against itself it is always the same, which says nothing."""
    numbers = {"consistency_ratio": 1.0, "noise_floor": 0.75}
    found = replace(measured(1.0, None, None), metrics=numbers)
    assert found.value("consistency_ratio") == 1.0
    assert replace(found, variant=VLLM).value("consistency_ratio") == 0.75


@pytest.mark.parametrize(("eager", "told"), [(True, True), (False, False), (None, False)])
def test_an_eager_reference_is_said_to_be_one(eager: bool | None, told: bool) -> None:
    """On a CPU vLLM starts eagerly here, to start soon."""
    own = replace(measured(1.0, None, None), variant=VLLM, effective={"enforce_eager": eager})
    found, _ = verdicts([own, measured(1.5, 1.2, 1.8)], [VLLM, FAST], "")
    assert ("run eagerly" in found.speed_caption) == told


def test_a_replay_that_gives_other_answers_is_not_put_before_one_that_keeps_them() -> None:
    """Neither's answers are known: a replay's are chance."""
    told = [NamedOptions("vllm", {}, REPLAYED, True), NamedOptions("drafts", {}, REPLAYED, False)]
    plain, drafts, exits = variants([*told, NamedOptions("exits", {}, REPLAYED, False, lossy=True)])
    cells = [
        replace(measured(1.5, 1.4, 1.6, same=None), variant=drafts),
        replace(measured(2.5, 2.4, 2.6, same=None), variant=exits),
    ]
    found = headline(cells, [plain, drafts, exits], "")
    assert found.startswith(f"drafts ({REPLAYED}) was the fastest of those that keep plain ")
    assert "exits" in found
    assert "a replay does not say how good they are" in found
    alone = headline(cells[1:], [plain, exits], "")
    assert alone.startswith(f"exits ({REPLAYED}, lossy†) was faster")
    assert alone.endswith("It gives other answers, and a replay does not say how good they are.")


def loads(*found: tuple[float, float, float], valid: bool = True) -> list[Cell]:
    """A cell under each of some closed loads: 1, 2, 4 and so on."""
    return [
        replace(measured(*ends, valid=valid), load=f"closed c={2**n}", load_value=2**n)
        for n, ends in enumerate(found)
    ]


def test_loads_that_differ_are_a_range_and_no_mean() -> None:
    """A card said 1.66× [1.59, 1.73] of loads with 2.72, 1.71 and 0.98: true of none of them."""
    ends = (2.72, 2.50, 2.95), (1.71, 1.59, 1.83), (0.98, 0.88, 1.10)
    (found,) = verdicts(loads(*ends), [FAST], "")
    assert (found.speed, found.interval, found.strip) == ("0.98 to 2.72×", "", None)
    assert (
        found.speed_caption == "least under closed c=4, most under closed c=1: no mean over 3 cells"
    )
    assert found.sentence.startswith(
        "0.98× the reference's decode speed [0.88, 1.10] under closed c=4 to 2.72× [2.50, 2.95] "
        "under closed c=1;"
    )
    (void,) = verdicts(loads(*ends, valid=False), [FAST], "")
    assert (void.speed, void.speed_tone) == ("0.98 to 2.72×", "struck")
    assert void.speed_caption.endswith(": no mean over 3 cells, none valid")
    named = headline(loads(*ends), [VLLM, FAST], "")
    assert (
        "] (0.98× [0.88, 1.10] under closed c=4 to 2.72× [2.50, 2.95] under closed c=1), with the "
        "same answers"
    ) in named


def test_over_loads_too_one_repeat_cannot_tell() -> None:
    found = loads((1.5, 1.4, 1.6), (4.0, 3.9, 4.1))
    once = [replace(cell, metrics={**cell.metrics, "speedup_repeats": 1}) for cell in found]
    (told,) = verdicts(once, [FAST], "")
    assert "under closed c=2; one repeat cannot tell; repeat it to tell" in told.sentence


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ([(1.3, 1.2, 1.4), (1.8, 1.7, 1.9)], "1.30 to 1.80×"),
        ([(1.3, 1.1, 1.5), (0.95, 0.8, 1.15)], "0.95 to 1.30×"),
        ([(1.3, 1.2, 1.4), (1.4, 1.3, 1.5)], "1.35×"),
        ([(1.02, 0.9, 1.15), (0.98, 0.9, 1.1)], "1.00×"),
    ],
    ids=["intervals apart", "faster and slower", "alike", "noise about 1"],
)
def test_loads_that_do_not_differ_are_averaged(
    ends: list[tuple[float, float, float]], shown: str
) -> None:
    (found,) = verdicts(loads(*ends), [FAST], "")
    assert found.speed == shown
    assert ("no mean" in found.speed_caption) == (" to " in shown)
    assert (found.strip is None) == (" to " in shown)


def test_workloads_under_one_load_are_averaged() -> None:
    cells = [measured(1.3, 1.2, 1.4), replace(measured(1.8, 1.7, 1.9), workload="xsum")]
    (found,) = verdicts(cells, [FAST], "")
    assert found.speed == "1.53×"
    assert found.speed_caption == "1.30 to 1.80 over 2 cells"
