"""Which of several tests on distributions count, and what is said where they tell nothing."""

from __future__ import annotations

from typing import Any

import pytest

from results.compare.lossless.verdicts import text_verdicts

OTHERS = {"p_value": 0.04, "draws": 100, "beginnings": 4, "distance": 0.3, "alike": False}
ALIKE = {"p_value": 1.0, "draws": 60, "beginnings": 0, "distance": 0.0, "alike": True}


def cell(draws: dict[str, Any] | None, checksum: str = "c") -> dict[str, Any]:
    evidence = {"pairs": 0, "equal": 0, "requests": 0, "differing": {}, "forks": []}
    return {
        "variant": "fast",
        "backend": "fast",
        "options": {},
        "label": None,
        "model": "demo",
        "dtype": "bfloat16",
        "machine": "f00d",
        "against": "vllm",
        "is_self": False,
        "checksum": checksum,
        "other_draws": True,
        "lossless": True,
        "setting": {},
        "evidence": {**evidence, "draws": draws},
    }


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("other", [cell(None), cell(ALIKE), cell(ALIKE, "d")])
def test_draws_that_tell_nothing_hide_no_others(turned: bool, other: dict[str, Any]) -> None:
    """The same prompts under another load, asked too seldom; or other prompts, answered alike."""
    cells = [other, cell(OTHERS)]
    (one,) = text_verdicts(cells[:: -1 if turned else 1])
    assert (one.verdict, one.p_value, one.distance) == ("lossy", 0.04, 0.3)


@pytest.mark.parametrize(
    ("draws", "told"),
    [
        ([None], "no prompt was asked often enough of both"),
        ([ALIKE, None], "no prompt was asked often enough of both"),
        ([{**ALIKE, "alike": False}], "answers differ in tokens that came less than 5 times"),
        ([ALIKE, {**ALIKE, "alike": False}], "answers differ in "),
    ],
)
def test_what_keeps_draws_from_a_verdict_is_said(
    draws: list[dict[str, Any] | None], told: str
) -> None:
    (one,) = text_verdicts([cell(found, f"c{n}") for n, found in enumerate(draws)])
    assert (one.verdict, one.p_value, one.distance) == ("unknown", None, None)
    assert one.why.startswith(told)


def test_answers_that_are_all_the_same_are_no_evidence_of_other_ones() -> None:
    (one,) = text_verdicts([cell(ALIKE, "c"), cell(ALIKE, "d")])
    assert (one.verdict, one.p_value, one.distance) == ("within noise", 1.0, 0.0)
    assert one.why.startswith("every answer to a prompt is the same on both sides (120 draws)")
