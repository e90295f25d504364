"""A recorded run of our engine, replayed: the same work, commit by commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends import open_backend
from backends.checkpoints import models
from harness.core.backend import Backend
from harness.core.nouns import REPLAYED, Model, Request, Sampling
from tests.support.exits.replays import drive, record, write_recorded
from workloads.bundled import rows
from workloads.prompts import encode_prompt

DEMO = models.BUNDLED["demo"]
FIXED = {"threads": 1, "max_num_seqs": 4, "max_model_len": 1024}
OPTIONS: dict[str, dict[str, Any]] = {
    "chosen": {},
    "reckless": {"gamma": 0.1, "exit_layers": [2, 4, 6], "max_drafts": 7},
    "trusting": {"gamma": 0.3, "exit_layers": [3], "verify": False},
}


def opened(directory: Path = DEMO, name: str = "adadecode", **options: Any) -> Backend:
    model = Model("demo", dtype="bfloat16")
    return open_backend(name, directory, model, {**FIXED, **options})


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    tokenizer = models.load_tokenizer(DEMO)
    stops = models.stop_ids(DEMO, tokenizer)
    return [
        Request(f"{name}-{i}", tuple(encode_prompt(tokenizer, name, row)), 64, Sampling(), stops)
        for name in ("gsm8k", "humaneval", "xsum")
        for i, row in enumerate(rows(name, "test", 3, 7))
    ]


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("case", OPTIONS)
def test_a_replay_does_the_same_work(
    case: str, concurrency: int, requests: list[Request], tmp_path: Path
) -> None:
    real = opened(**OPTIONS[case], record=True)
    expected = drive(real, requests, concurrency)
    trace = write_recorded(tmp_path / "trace", real, record(real, requests, concurrency))
    real.close()
    again = opened(**OPTIONS[case], replay=str(trace))
    assert drive(again, requests, concurrency) == expected
    assert drive(again, requests, concurrency) == expected, "after a reset"
    chosen = real.info.options, again.info.options
    assert chosen[0]["exit_layers"] == chosen[1]["exit_layers"]
    assert (again.info.provenance, again.info.lossless) == (REPLAYED, False)
    again.close()
    if case == "reckless":
        done = [commit.counts for commits in expected for commit in commits]
        drafted, accepted = (sum(c.get(k, 0) for c in done) for k in ("drafted", "accepted"))
        assert drafted > accepted > 0, "the case is about drafts that are thrown away"
