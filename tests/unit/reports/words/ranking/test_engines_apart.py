"""On a small model each engine's methods are told beside their own plain decoding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.core.nouns import Slo
from reports.cells import Cell
from reports.variants import NamedOptions, Variant, variants
from reports.words.ranking.races import races
from reports.words.verdict import VerdictLine, verdicts
from tests.support.results.made_effects import made_effects

VLLM, PLAIN, EARLY, STAGES = variants(
    [
        NamedOptions("vllm", {}, "official code", True),
        NamedOptions("autoregressive", {}, "re-implementation", False),
        NamedOptions("adadecode", {}, "re-implementation", False),
        NamedOptions("tetris", {}, "re-implementation", False),
    ]
)
EVERY = VLLM, PLAIN, EARLY


def cell(variant: Variant, over_reference: float, over_plain: float | None, **more: Any) -> Cell:
    numbers: dict[str, Any] = {
        "speedup": over_reference, "speedup_low": None if variant is VLLM else over_reference * 0.9,
        "speedup_high": None if variant is VLLM else over_reference * 1.1,
        "speedup_native": over_plain, "consistency_ratio": 1.0 if variant is VLLM else 0.75,
        "consistency_native": 1.0, "floor_share": 0.2, "repeats": 3, "spread": {},
        "void_metrics": [],
    }  # fmt: skip
    if over_plain is not None:
        numbers |= {
            "speedup_native_low": over_plain * 0.95,
            "speedup_native_high": over_plain * 1.05,
        }
    effects = {
        name: made_effects(value, value * 0.9, value * 1.1, "gsm8k")
        for name, value in (("speedup", over_reference), ("speedup_native", over_plain))
        if value is not None
    }
    return Cell(
        variant=variant, workload="gsm8k", load="closed c=1", load_kind="closed", load_value=1,
        order=0, keys=(), slo=Slo(), trials=3, failed=0, valid_trials=3,
        effective={} if variant is VLLM else {"kernels": "native"}, effects=effects,
        metrics={**numbers, **more},
    )  # fmt: skip


def told(**more: Any) -> dict[str, VerdictLine]:
    cells = [
        cell(VLLM, 1.0, None, **more),
        cell(PLAIN, 12.0, None, **more),
        cell(EARLY, 15.0, 1.25, **more),
    ]
    return {line.variant.label: line for line in verdicts(cells, EVERY, "")}


def test_methods_are_told_beside_plain_decoding_on_their_engine() -> None:
    found = told()
    early, plain = found["adadecode"], found["autoregressive"]
    assert (early.speed, early.interval) == ("1.25×", "[1.19, 1.31]")
    assert early.speed_caption == "autoregressive; gsm8k, closed c=1"
    assert early.sentence.startswith("1.25× autoregressive's decode speed [1.19, 1.31]; the same")
    assert "15.00× the reference's decode speed [13.50, 16.50], which changes" in early.sentence
    assert (early.answers, early.answers_tone) == ("autoregressive's", "good")
    assert (plain.speed, plain.strip, plain.interval) == ("plain decoding", None, "")
    assert plain.sentence.startswith("12.00× the reference's decode speed")
    assert plain.answers == "differ"


def test_all_of_an_engine_are_told_beside_its_plain_decoding_or_none_is() -> None:
    """Also a method whose own steps are none of them overhead."""
    cells = [
        cell(VLLM, 1.0, None, floor_share=0.6),
        cell(EARLY, 15.0, 1.25),
        cell(STAGES, 18.0, 1.5, floor_share=0.9),
    ]
    found = verdicts(cells, [VLLM, EARLY, STAGES], "")
    assert [line.speed for line in found] == ["reference", "1.25×", "1.50×"]
    assert all(line.speed_caption.startswith("autoregressive; ") for line in found[1:])
    (race,) = races(cells, [VLLM, EARLY, STAGES])
    assert race.rivals == [EARLY, STAGES]


def test_cells_with_valid_trials_are_not_called_invalid() -> None:
    cells = [
        replace(cell(EARLY, 1.5, None), valid_trials=valid, reasons={"machine-noisy": (1, "noise")})
        for valid in (3, 2, 0)
    ]
    (line,) = verdicts([cell(VLLM, 1.0, None), *cells], [EARLY], "")
    assert "1 cell is not valid and 1 cell has trials that are not valid, most" in line.sentence


def test_where_steps_are_no_overhead_all_are_told_beside_the_reference() -> None:
    found = told(floor_share=0.9)
    assert (found["adadecode"].speed, found["autoregressive"].speed) == ("15.00×", "12.00×")
    assert "overhead" not in found["adadecode"].sentence
