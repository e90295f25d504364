"""What a calibration that groups prompts counts in words: prompts, not groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.early_exit.calibration.files import Point
from backends.early_exit.calibration.learn_then_test import samples_needed
from backends.early_exit.calibration.outcome import refusal, statement, too_few
from backends.early_exit.calibration.settings import Settings

ONE = Settings("demo", "state", ("gsm8k",), per="mixture")
TWO = Settings("demo", "state", ("gsm8k", "xsum"), batch=4, per="mixture")
POINT = Point(0.995, 0.8, 0.7, 0.2, True, 0.5, 4.0)


@pytest.mark.parametrize(("settings", "batch", "workloads"), [(ONE, 1, 1), (TWO, 4, 2)])
def test_a_refusal_counts_prompts_of_each_workload(
    settings: Settings, batch: int, workloads: int
) -> None:
    needed = samples_needed(0.2, 0.25, 1 - 0.95)
    assert needed is not None
    told = refusal(settings, POINT, 25, Path("kept"))
    rows = -(-needed * batch // workloads)
    assert f"at 0.995, the highest, {25 * batch} prompts have 0.800, which shows 0.700" in told
    assert f"about {needed * batch} prompts (--rows {rows}) or --target 0.7 or higher" in told


def test_too_few_prompts_are_told_with_what_would_do() -> None:
    """Without a fault 0.75 ** 11 is the first power under 0.05."""
    assert too_few(ONE, 11) is None
    assert "--rows: 10 prompts cannot show" in str(too_few(ONE, 10))
    assert "11 can (--rows 11)" in str(too_few(ONE, 10))
    assert too_few(TWO, 11) is None
    told = str(too_few(TWO, 10))
    assert "--rows: 10 groups of 4 prompts cannot show a quality of 0.75 with 95%" in told
    assert "11 can (--rows 22)" in told, "44 prompts of two workloads"


@pytest.mark.parametrize(("batch", "workloads"), [(1, 4), (2, 4), (4, 2), (3, 3), (1, 1)])
def test_what_would_do_where_each_workload_counts_does(batch: int, workloads: int) -> None:
    """The rows that are named are enough, and one fewer of each is not; prompts come in turn."""
    names = ("gsm8k", "xsum", "humaneval", "cnn_dailymail")[:workloads]
    worst = Settings("demo", "state", names, batch=batch, per="worst")
    told = str(too_few(worst, 1))
    rows = int(told.split("(--rows ")[1].split(")")[0])
    assert too_few(worst, rows * workloads // batch) is None
    assert too_few(worst, (rows - 1) * workloads // batch) is not None
    needed = samples_needed(0.2, 0.25, 1 - 0.95)
    assert needed is not None
    rows = -(-needed * max(batch, workloads) // workloads)
    told = refusal(worst, POINT, 25, Path("kept"))
    assert f"about {rows * workloads} prompts (--rows {rows})" in told


def test_a_target_out_of_reach_of_any_number_is_told() -> None:
    assert "ten million cannot" in str(too_few(replace(ONE, target=1 - 1e-8), 10))


def test_the_statement_names_mixture_batch_and_earlier_choices() -> None:
    told = statement(TWO, {"gsm8k": 30, "xsum": 10}, 0.5, earlier=2)
    assert "the draw of 40 calibration prompts (30 gsm8k, 10 xsum)" in told
    assert "for the mixture of workloads, prompts drawn like these and decoded 4 at a time" in told
    assert told.endswith("after 2 earlier choices on these prompts, not corrected for.")
    alone = statement(ONE, {"gsm8k": 30}, 0.5)
    assert "at least 0.75 at threshold 0.5, for prompts drawn like these" in alone
    assert alone.endswith("decoded one at a time in float32.")


def test_the_statement_names_where_the_rows_are_from() -> None:
    counts = {"gsm8k": 30, "humaneval": 10}
    data = {"gsm8k": {"source": "hub"}, "humaneval": {"source": "hub", "rows": "mbpp"}}
    told = statement(TWO, counts, 0.5, data=data)
    assert "(30 gsm8k, 10 humaneval) of source hub (humaneval: rows of mbpp), " in told
    files: dict[str, dict[str, Any]] = {
        "gsm8k": {"source": "/a/gsm8k", "options": {"mix": "80:20"}},
        "humaneval": {"source": "/a/he.jsonl", "sha256": "0123456789abcdef"},
    }
    assert (
        "(gsm8k: source gsm8k, mix 80:20; humaneval: source he.jsonl (sha256 0123456789ab)), "
        in statement(TWO, counts, 0.5, data=files)
    )
    own = replace(ONE, backend="own-early-exit")
    assert statement(own, {"gsm8k": 30}, 0.5).endswith("in float32 by own-early-exit.")
