"""Are answers as good as the reference's: the test on paired scores, and who may win with it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from harness.core.nouns import QUALITY_MARGIN, Slo
from reports.cells import Cell
from reports.collect import Samples
from reports.variants import NamedOptions, Variant, variants
from reports.words.quality import AnswerQuality, qualities
from reports.words.ranking.headline import headline
from reports.words.ranking.races import Race
from reports.words.verdict import verdicts
from results.compare.judged import Mean, judge

VLLM, EXACT, LOSSY = variants(
    [
        NamedOptions("vllm", {}, "official code", True),
        NamedOptions("exact", {}, "re-implementation", False),
        NamedOptions("lossy", {}, "re-implementation", False, True),
    ]
)


def measured(variant: Variant, speedup: float, same: float) -> Cell:
    numbers = {"speedup": speedup, "speedup_low": speedup - 0.1, "speedup_high": speedup + 0.1}
    return Cell(
        variant=variant, workload="gsm8k", load="closed c=1", load_kind="closed", load_value=1,
        order=0, keys=(), slo=Slo(), trials=3, failed=0, valid_trials=3,
        metrics={
            **numbers, "consistency_ratio": same, "repeats": 3, "spread": {}, "void_metrics": [],
        },
    )  # fmt: skip


def scored(right: int, prompts: int = 40) -> dict[str, Mean]:
    return {f"r{i}": Mean(3.0 * (i < right), 3) for i in range(prompts)}


def samples(reference: int, own: int, prompts: int = 40) -> Samples:
    found = Samples()
    for variant, right in ((VLLM, reference), (EXACT, reference), (LOSSY, own)):
        found.scores[variant.index, "gsm8k", "", "exact_match"] = scored(right, prompts)
    return found


CELLS = [measured(VLLM, 1.0, 1.0), measured(EXACT, 1.5, 1.0), measured(LOSSY, 2.5, 0.3)]


def judged(found: Samples) -> dict[int, AnswerQuality]:
    return qualities(CELLS, [VLLM, EXACT, LOSSY], found)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([0.0] * 20, "too few"),
        ([0.0] * 100, "too few"),
        ([0.0] * 149, "as good"),
        ([-1.0] * 12 + [0.0] * 28, "worse"),
        ([-1.0] * 2 + [0.0] * 18, "too few"),
        ([-1.0] * 2, "too few"),
        ([1.0] * 8 + [0.0] * 12, "as good"),
        ([-0.1] * 100, "worse"),
        ([-0.01] * 2000, "as good"),
    ],
)
def test_the_test_waits_for_enough_prompts(differences: list[float], expected: str) -> None:
    judgement, needed, _ = judge(differences)
    assert judgement == expected
    assert (needed > len(differences)) == (judgement == "too few")


@pytest.mark.parametrize("worse", [0.0, QUALITY_MARGIN])
def test_its_error_is_the_stated_one(worse: float) -> None:
    """At the margin itself "as good" is said in at most 5% of cases; of equal quality on many
    prompts mostly."""
    draw, said = random.Random(7), 0
    for _ in range(400):
        pairs = [(draw.random() < 0.05 + worse, draw.random() < 0.05) for _ in range(1500)]
        said += judge([float(up) - float(down) for down, up in pairs])[0] == "as good"
    assert said > 250 if worse == 0 else said <= 0.05 * 400 + 3 * (400 * 0.05 * 0.95) ** 0.5


def test_prompts_that_would_settle_it_do() -> None:
    for differences in ([0.0] * 20, [-1.0] * 2 + [0.0] * 38):
        judgement, needed, _ = judge(differences)
        assert judgement == "too few"
        assert judge(differences * -(-2 * needed // len(differences)))[0] != "too few"


def test_a_faster_one_with_worse_answers_is_not_called_the_best() -> None:
    found = headline(CELLS, [VLLM, EXACT, LOSSY], "", judged(samples(32, 8)))
    assert found == (
        "exact (re-implementation) was the fastest whose answers are as good: 1.50× the decode "
        "speed of vllm [1.40, 1.60], with the same answers. lossy (re-implementation, lossy†) "
        "reached 2.50× [2.40, 2.60]. Its answers are worse than the reference's: gsm8k exact "
        "match 0.800 → 0.200."
    )


def test_one_with_worse_answers_that_is_not_shown_to_be_slower_may_be_the_fastest() -> None:
    near = [*CELLS[:2], measured(LOSSY, 1.45, 0.3)]
    found = headline(near, [VLLM, EXACT, LOSSY], "", judged(samples(32, 8)))
    assert found.startswith("exact (re-implementation) was the fastest whose answers are as good")
    slower = [*near[:2], measured(LOSSY, 1.25, 0.3)]
    found = headline(slower, [VLLM, EXACT, LOSSY], "", judged(samples(32, 8)))
    assert found.startswith("exact (re-implementation) was the fastest: 1.50×")


def test_one_with_other_answers_as_good_may_win() -> None:
    found = headline(CELLS, [VLLM, EXACT, LOSSY], "", judged(samples(300, 300, 400)))
    assert found.startswith("lossy (re-implementation, lossy†) was the fastest: 2.50×")


def test_too_few_prompts_do_not_make_a_winner() -> None:
    found = headline(CELLS, [VLLM, EXACT, LOSSY], "", judged(samples(12, 12, 20)))
    assert found.startswith("exact (re-implementation) was the fastest whose answers are as good")
    assert "Its answers are not to be judged on 20 prompts (at least 149 are needed)" in found


def test_without_scores_only_equal_answers_win() -> None:
    found = headline(CELLS, [VLLM, EXACT, LOSSY], "")
    assert found.startswith("exact (re-implementation) was the fastest whose answers are as good")
    assert found.endswith("and no task score says what that costs.")
    alone = headline([CELLS[0], CELLS[2]], [VLLM, LOSSY], "", judged(samples(32, 8)))
    assert alone.startswith("lossy (re-implementation, lossy†) was faster: 2.50×")
    assert alone.endswith(
        "Its answers are worse than the reference's: gsm8k exact match 0.800 → 0.200."
    )


def test_the_verdict_names_the_cost_of_other_answers_only() -> None:
    lines = verdicts(CELLS, [VLLM, EXACT, LOSSY], "", judged(samples(32, 8)))
    said = {line.variant.backend: line.sentence for line in lines}
    assert said["lossy"].endswith(
        "Its answers are worse than the reference's: gsm8k exact match 0.800 → 0.200."
    )
    assert "Its answers are" not in said["exact"]


NOTHING = "not to be judged (the reference scores 0.00: nothing to lose): gsm8k exact match 0 → 0"


def test_beside_a_reference_that_is_always_wrong_nothing_is_as_good() -> None:
    """A method with other answers, all wrong, was the fastest."""
    found = headline(CELLS, [VLLM, EXACT, LOSSY], "", judged(samples(0, 0, 200)))
    assert found.startswith("exact (re-implementation) was the fastest whose answers are as good")
    assert found.endswith(f"Its answers are {NOTHING}.")


def test_a_task_with_nothing_to_lose_is_as_one_without_a_score() -> None:
    """Where another task's answers are as good; and it does not hide one that is worse."""
    found, cells = samples(300, 300, 400), [*CELLS, _on(CELLS[0], "math"), _on(CELLS[2], "math")]
    for variant in (VLLM, LOSSY):
        found.scores[variant.index, "math", "", "exact_match"] = scored(4, 400)
    quality = qualities(cells, [VLLM, LOSSY], found)[LOSSY.index]
    assert [task.judgement for task in quality.tasks] == ["as good", "nothing to lose"]
    race = Race("vllm", [LOSSY])
    both = race.judged([cells[2], cells[4]], quality)
    assert both is not None
    assert not both.is_good
    assert both.words == (
        "as good as the reference's within 0.02 of the score on gsm8k, and judged by no score on "
        "math (the reference scores 0.01: nothing to lose)"
    )
    same = replace(cells[4], metrics={**cells[4].metrics, "consistency_ratio": 1.0})
    assert race.has_good_answers([cells[2], same], quality), "all answers to it are the same"
    assert replace(quality, tasks=quality.tasks[1:], unscored=["math"]).words.endswith("0.0100")


def test_one_task_that_is_worse_is_enough() -> None:
    found = samples(300, 300, 400)
    for variant, right in ((VLLM, 390), (LOSSY, 200)):
        found.scores[variant.index, "humaneval", "", "pass_at_1"] = scored(right, 400)
    both = [*CELLS, *(measured(v, 1.0, 1.0) for v in (VLLM, LOSSY))]
    cells = [*both[:3], *(_on(cell, "humaneval") for cell in both[3:])]
    quality = qualities(cells, [VLLM, LOSSY], found)[LOSSY.index]
    assert [task.judgement for task in quality.tasks] == ["as good", "worse"]
    assert quality.judgement == "worse"
    assert quality.words == "worse than the reference's: humaneval pass@1 0.975 → 0.500"


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (8, "worse than the reference's: gsm8k exact match 0.800 → 0.200"),
        (32, "not to be judged on 40 prompts (at least 149 are needed): gsm8k exact match"),
    ],
)
def test_where_no_score_judges_other_answers_is_part_of_any_price(own: int, told: str) -> None:
    apart = ", and judged by no score on sharegpt"
    found = replace(judged(samples(32, own))[LOSSY.index], unscored=["sharegpt"])
    assert found.words.startswith(told)
    assert found.words.endswith(apart)
    assert found.short == found.words
    several = replace(found, tasks=[*found.tasks, *found.tasks])
    assert " of 2 tasks, most of all gsm8k exact match 0.800 → " in several.short
    assert several.short.endswith(apart)


def _on(cell: Cell, workload: str) -> Cell:
    return replace(cell, workload=workload)


OWN = variants(
    [
        NamedOptions("vllm", {}, "official code", True),
        NamedOptions("vllm-early-exit", {}, "re-implementation", False, True),
        NamedOptions("autoregressive", {}, "re-implementation", False),
        NamedOptions("adadecode", {}, "re-implementation", False),
    ]
)


def engines(overhead: float) -> list[Cell]:
    """Two engines: ours far ahead of vLLM, and adadecode half again as fast as plain decoding."""
    found = []
    for variant, speedup in zip(OWN, (1.0, 1.2, 8.0, 12.0), strict=True):
        cell = measured(variant, speedup, 1.0)
        more = {"overhead_share": overhead}
        if variant.backend in ("autoregressive", "adadecode"):
            native = speedup / 8
            more |= {f"speedup_native{end}": native for end in ("", "_low", "_high")}
            more["consistency_native"] = 1.0
            cell = replace(cell, effective={"kernels": "native"})
        found.append(replace(cell, metrics={**cell.metrics, **more}))
    return found


def test_engines_are_not_ranked_against_each_other_on_a_model_that_is_overhead() -> None:
    assert headline(engines(0.7), OWN, "") == (
        "vllm-early-exit (re-implementation, lossy†) was faster: 1.20× the decode speed of "
        "vllm [1.10, 1.30], with the same answers.\nadadecode (re-implementation) was faster: "
        "1.50× the decode speed of autoregressive [1.50, 1.50], with the same answers.\nEngines "
        "are not ranked against each other: over half of a step of some of them lies above what "
        "reading and multiplying take here, and a ratio between two engines changes with that "
        "share."
    )


def test_on_a_model_that_is_not_they_are() -> None:
    assert headline(engines(0.2), OWN, "").startswith(
        "adadecode (re-implementation) was the fastest: 12.00× the decode speed of vllm"
    )
