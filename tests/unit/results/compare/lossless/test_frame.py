"""The verdicts on texts as a frame."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import results
from harness.core.nouns import REPLAYED
from results.compare.lossless.frame import TEXT_COLUMNS
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of


def test_rows_can_be_grouped_and_are_named(tmp_path: Path) -> None:
    asked, other = (generation("r0", [1, 2, 3], ids=ids) for ids in ([7, 8, 9], [7, 8, 1]))
    options = {"gamma": 0.9}
    choices: list[Any] = [
        {"name": "vllm", "options": {}, "label": "plain"},
        {"name": "fast", "options": options},
    ]
    records = [record(trial("vllm"), [asked]), record(trial("fast", options=options), [other])]
    texts = run_of(tmp_path, *records, backends=choices).texts
    assert list(texts.columns) == list(TEXT_COLUMNS)
    assert texts.groupby("options")["pairs"].sum().to_dict() == {'{"gamma":0.9}': 1, "{}": 0}
    row: Any = texts.set_index("backend").loc["fast"]
    assert (row["variant"], row["label"]) == ("fast gamma=0.9", "fast gamma=0.9")
    assert (row["fork_request"], row["fork_token"], row["consistency"]) == ("r0", 2.0, 0.0)
    assert texts[["fork_margin", "surest", "p_value"]].isna().all(axis=None)
    plain: Any = texts.set_index("backend").loc["vllm"]
    assert (plain["variant"], plain["label"]) == ("vllm", "plain")


def test_a_run_without_verdicts_has_the_columns(tmp_path: Path) -> None:
    made = record(trial("vllm"), [generation("r0", [1, 2])])
    assert made.backend is not None
    replay = replace(made, backend=replace(made.backend, provenance=REPLAYED))
    results.Store(tmp_path).write(replay)
    texts = results.load(tmp_path).texts
    assert texts.empty
    assert texts.dtypes.astype(str).to_dict() == dict(TEXT_COLUMNS)
