"""Which prompt a request asked, and how long it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import results
from harness.core.nouns import Workload
from tests.support.results.make_trials import generation, record, trial


def test_requests_find_their_prompts(tmp_path: Path) -> None:
    """Two workloads with the same ids, and a prompt that one of the trials asks twice."""
    store = results.Store(tmp_path)
    for name, length in (("short", 3), ("long", 900)):
        data = Workload(name, checksum=f"sum of {name}")
        own = [generation("r0", [10]), generation("r1", [20]), generation("r0#2", [30])]
        store.write(record(replace(trial(), workload=data), own))
        rows = [
            {"request_id": f"r{i}", "prompt_text": name, "prompt_tokens": length + i, "answer": ""}
            for i in range(1 + (name == "short"))
        ]
        store.write_prompts(f"sum of {name}", rows)
    run = results.load(tmp_path)
    requests = run.requests.set_index(["workload", "request_id"])["prompt_tokens"]
    assert requests["short"].to_dict() == {"r0": 3, "r1": 4, "r0#2": 3}
    assert requests["long"].dropna().to_dict() == {"r0": 900, "r0#2": 900}
    joined = run.requests.merge(
        run.prompts,
        left_on=["workload_checksum", "prompt_id"],
        right_on=["workload_checksum", "request_id"],
        validate="many_to_one",
    )
    assert joined.groupby("prompt_text").size().to_dict() == {"short": 3, "long": 2}
    assert (joined["prompt_tokens_x"] == joined["prompt_tokens_y"]).all()
    told = run.vllm_bench.set_index("key")["total_input_tokens"]
    assert sorted(told.fillna(0)) == [0, 10]


def test_prompts_are_read_once_and_not_before_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def noted(store: results.Store, checksum: str) -> dict[str, int]:
        read.append(checksum)
        return {}

    monkeypatch.setattr(results.Store, "read_prompt_lengths", noted)
    for repeat in range(2):
        results.Store(tmp_path).write(record(trial(repeat=repeat), [generation("r0", [10])]))
    run = results.load(tmp_path)
    assert (len(run.trials), read) == (2, [])
    assert run.requests["prompt_tokens"].isna().all()
    assert len(run.vllm_bench) == 2
    assert read == ["c0ffee"]
