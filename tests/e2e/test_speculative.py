"""Speculative decoding on both engines, through the command: same text, same counts."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
import yaml

from backends.checkpoints.draft_heads.check import BUNDLED
from backends.checkpoints.draft_heads.files import ABOUT
from tests.support.harness.command import here, printed, rows_of
from tests.support.permuted_draft import permuted_draft

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]
WIDE = {"window": 7, "ngram": 5, "guesses": 7}
LOOKAHEAD = {"name": "speculative", "method": "lookahead", "drafts": 4, **WIDE}
SUBLAYERS = {"name": "speculative", "method": "swift", "drafts": 3, "threshold": 0.5}
MAPPED = {
    "name": "vllm-speculative",
    "drafts": 3,
    "speculative": {"use_heterogeneous_vocab": True},
}
EXPERIMENT: dict[str, Any] = {
    "name": "drafts",
    "model": "demo",
    "reference": "vllm",
    "backends": [
        "vllm",
        "autoregressive",
        {"name": "vllm-speculative", "drafts": 3},
        {"name": "vllm-speculative", "method": "ngram"},
        {"name": "speculative", "drafts": 3, "threshold": 0.0},
        {"name": "speculative", "method": ["prompt_lookup", "layerskip"]},
        {"name": "vllm-speculative", "method": "eagle3", "drafts": 3},
        {"name": "speculative", "method": "eagle3", "drafts": 3, "threshold": 0.0},
        SUBLAYERS,
        LOOKAHEAD,
    ],
    "workloads": [{"name": "gsm8k", "max_new_tokens": 60}, {"name": "xsum", "max_new_tokens": 7}],
    "load": [{"kind": "closed", "concurrency": [1, 5]}],
    "requests": 6,
    "repeats": 1,
}
"""Answers of xsum end at their limit, in the middle of drafts. Medusa's heads are made first."""
MEDUSA = ("--workload", "gsm8k", "--rows", "20", "--epochs", "2", "--batch", "4")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("drafts")
    told = printed("train", "medusa", "--model", "demo", *MEDUSA, "--out", folder / "medusa")
    assert "held-out answers" in told
    medusa = {"name": "vllm-speculative", "method": "medusa", "draft": f"{folder}/medusa"}
    mapped = {**MAPPED, "draft": str(permuted_draft(folder / "permuted"))}
    experiment = EXPERIMENT | {"backends": [*EXPERIMENT["backends"], medusa, mapped]}
    (folder / "e.yaml").write_text(yaml.safe_dump(experiment))
    printed("run", folder / "e.yaml", "--out", folder / "run", "--again-share", "0")
    assert here("report", folder / "run").returncode == 0
    assert 'id="drafts"' in (folder / "run" / "report.html").read_text()
    return rows_of(folder / "run")


def _drafted(row: dict[str, Any]) -> float:
    """All drafts: those of the steps, of which there were as many as tokens over tokens a step."""
    tokens = row["output_tokens"] - row["n_completed"]
    return float(row["drafts_per_step"] * tokens / row["tokens_per_step"])


def drafting(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "speculative" in row["backend"]]


def test_every_answer_is_plain_decodings(rows: list[dict[str, Any]]) -> None:
    assert {row["status"] for row in rows} == {"ok"}
    assert len(drafting(rows)) == 44
    for row in drafting(rows):
        metric = "consistency_native" if row["backend"] == "speculative" else "consistency_ratio"
        assert row[metric] == 1.0, (row["backend"], row["options"], row["workload"])


def test_counts_add_up(rows: list[dict[str, Any]]) -> None:
    for row in drafting(rows):
        positions = row["drafts_by_position"]
        if positions is None:
            assert row["tokens_per_step"] == 1.0, "drafts did not pay"
            continue
        accepted = sum(counts["accepted"] for counts in positions.values())
        judged = [positions[place]["judged"] for place in sorted(positions, key=int)]
        assert judged == sorted(judged, reverse=True)
        assert row["acceptance_rate"] <= 1
        assert row["tokens_per_step"] >= 1
        assert accepted == pytest.approx(row["acceptance_rate"] * _drafted(row))
        assert 0 <= row["overhead_share"] < 1
        if row["options"].get("method") == "layerskip":
            assert row["draft_share"] is None, "its drafts are the model's own passes"
        else:
            assert 0 < row["draft_share"] < 1


@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
def test_both_engines_count_the_same_work(rows: list[dict[str, Any]], method: str) -> None:
    """The same draft model or head, three drafts each time: the same steps, whatever else
    differs."""
    for workload in ("gsm8k", "xsum"):
        for load in ("closed c=1", "closed c=5"):
            steps = [
                row["tokens_per_step"]
                for row in drafting(rows)
                if (row["workload"], row["load"]) == (workload, load)
                and row["options"].get("drafts") == 3
                and "speculative" not in row["options"]
                and row["options"].get("method", "draft_model") == method
            ]
            assert len(steps) == 2
            assert steps[0] == pytest.approx(steps[1], rel=0.05)


def test_a_draft_of_another_tokenizer_drafts_the_same(rows: list[dict[str, Any]]) -> None:
    """The bundled one's tokens under other numbers: what stands is what stands of it."""
    ours = [row for row in drafting(rows) if row["backend"] == "vllm-speculative"]
    own = [row for row in ours if row["options"] == {"drafts": 3}]
    mapped = [row for row in ours if "speculative" in row["options"]]
    assert len(mapped) == len(own) == 4
    for one, other in zip(mapped, own, strict=True):
        assert (one["workload"], one["load"]) == (other["workload"], other["load"])
        assert one["tokens_per_step"] == pytest.approx(other["tokens_per_step"], rel=0.05)


def test_the_demos_eagle3_is_accepted_as_its_card_says(rows: list[dict[str, Any]]) -> None:
    about = json.loads((BUNDLED["eagle3"] / ABOUT).read_text())
    told = about["report"]["held_out"]["gsm8k"]["tokens_per_step"]
    found = [
        row["tokens_per_step"]
        for row in drafting(rows)
        if row["backend"] == "vllm-speculative"
        and (row["options"].get("method"), row["workload"]) == ("eagle3", "gsm8k")
    ]
    assert len(found) == 2
    assert found == pytest.approx([told] * 2, rel=0.15)
