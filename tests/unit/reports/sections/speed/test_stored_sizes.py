"""A reader of the demo's page sees at once what becomes of its ratios on larger models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.core.nouns import REPLAYED, Model
from reports.cells import overview
from reports.collect import Samples
from reports.sections.speed import stored_sizes
from results import load
from tests.support.results.report_runs import ENGINES, LOADS, write_run

SMALL: dict[str, Any] = {
    "engines": ENGINES[:2], "workloads": ["gsm8k"], "loads": LOADS[:1], "repeats": 1, "requests": 6,
}  # fmt: skip


def test_a_run_of_the_demo_model_shows_the_records(tmp_path: Path) -> None:
    found = stored_sizes.section(overview(load(write_run(tmp_path, **SMALL))), Samples())
    assert found is not None
    heads = [place for place, text in enumerate(found.words) if text.endswith(":")]
    assert heads[0] == 0
    assert len(heads) == 2
    first, second = found.words[1 : heads[1]], found.words[heads[1] + 1 :]
    for place in heads:
        assert found.words[place].startswith("Measured cost, replayed decisions, over vllm, on ")
    assert all("0.1b" in text and "on 1b (2.0 GB" in text for text in first)
    assert {text.partition(",")[0] for text in first} == {
        "adadecode", "autoregressive", "vllm-early-exit",
    }  # fmt: skip
    assert all("0.1b" in text and "on 0.5b (" in text for text in second)
    assert {text.partition(",")[0].partition(" ")[0] for text in second} == {
        "speculative", "tetris", "vllm-speculative",
    }  # fmt: skip
    assert "results/reference/cpu/sizes" in found.note


def test_other_models_and_a_clone_without_the_records_show_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (Model("0.5b", shape=True),)
    seen = overview(load(write_run(tmp_path / "other", models=other, **SMALL)))
    assert stored_sizes.section(seen, Samples()) is None
    monkeypatch.setattr(stored_sizes, "REFERENCE", tmp_path / "gone")
    seen = overview(load(write_run(tmp_path / "demo", **SMALL)))
    assert stored_sizes.section(seen, Samples()) is None


@pytest.mark.parametrize(
    ("name", "models"),
    [*zip(stored_sizes.RECORDS, ({"0.1b", "0.5b", "1b"}, {"0.1b", "0.5b"}), strict=True)],
)
def test_a_record_is_whole_and_says_what_it_is(name: str, models: set[str]) -> None:
    rows = overview(load(stored_sizes.REFERENCE / name)).rows
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["provenance"] for row in rows} == {REPLAYED}
    assert {row["model"] for row in rows} == models
    assert all(row["floor_share"] is not None for row in rows if row["backend"] != "tetris")
