"""The workload `synthetic`: lengths as asked for, the same ones for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.core.errors import UserError
from harness.core.nouns import Load, Model, Trial, Workload
from workloads import datasets
from workloads.measured import MeasuredPrompt, load_prompts, rows_checksum
from workloads.own import synthetic


class HundredLetters:
    """A tokenizer of 100 ids, of which the first three are special."""

    vocab_size = 100
    all_special_ids = (0, 1, 2)
    chat_template = None

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(200 + i) for i in ids)


def prompts(count: int = 20, seed: int = 0, **options: Any) -> list[MeasuredPrompt]:
    workload = Workload("synthetic", "generated", options=options)
    rows = datasets.load_rows(workload, seed, count)
    pinned = Workload("synthetic", "generated", None, options, rows_checksum(workload, rows))
    load = Load("closed", concurrency=1)
    trial = Trial("scripted", {}, Model("none"), pinned, load, count, 32_768, seed=seed)
    return load_prompts(trial, HundredLetters())


def test_lengths_are_exact() -> None:
    found = prompts(5, input_tokens=37, output_tokens=11, prefix_tokens=8)
    assert {len(one.token_ids) for one in found} == {45}
    assert {one.output_tokens for one in found} == {11}
    assert all(2 < token < 100 for one in found for token in one.token_ids)
    assert len({one.token_ids for one in found}) == 5
    assert [one.request_id for one in found] == [f"synthetic-{i}" for i in range(5)]


def test_a_seed_is_the_same_prompts_and_more_begin_with_fewer() -> None:
    spread = {"distribution": "uniform", "least": 3, "most": 9}
    assert prompts(10, input_tokens=spread)[:4] == prompts(4, input_tokens=spread)
    assert prompts(4, seed=1)[0].token_ids != prompts(4)[0].token_ids


def test_prefixes_are_shared() -> None:
    found = prompts(60, input_tokens=4, prefix_tokens=6, prefixes=3)
    starts = {one.token_ids[:6] for one in found}
    assert len(starts) == 3
    assert len({one.token_ids[6:] for one in found}) == 60


@pytest.mark.parametrize(
    ("spec", "middle"),
    [
        ({"distribution": "uniform", "least": 10, "most": 30}, 20),
        ({"distribution": "normal", "mean": 200, "std": 20, "least": 150, "most": 260}, 200),
        ({"distribution": "lognormal", "median": 100, "sigma": 0.5, "most": 300}, 100),
    ],
)
def test_lengths_follow_their_distribution(spec: dict[str, Any], middle: float) -> None:
    rows = [data for _, data in synthetic.rows({"output_tokens": spec}, 0, 2000)]
    lengths = np.array([int(data["output_tokens"]) for data in rows])
    assert lengths.min() >= spec.get("least", 1)
    assert lengths.max() <= spec["most"]
    assert abs(np.median(lengths) - middle) < 0.05 * middle
    assert len(set(lengths)) > 15
    if spec["distribution"] == "uniform":
        assert {lengths.min(), lengths.max()} == {10, 30}


def test_a_wild_lognormal_is_bounded() -> None:
    spec = {"distribution": "lognormal", "median": 100, "sigma": 1000.0, "most": 50}
    found = {int(d["output_tokens"]) for _, d in synthetic.rows({"output_tokens": spec}, 0, 50)}
    assert found <= set(range(1, 51))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "option": ({"inputs": 3}, "unknown option 'inputs'"),
    "zero": ({"input_tokens": 0}, "expected a whole number from 1 to"),
    "text": ({"output_tokens": "3"}, "or {distribution: uniform|normal|lognormal, ...}"),
    "flag": ({"prefixes": True}, "expected a whole number from 1 to 10000, got True"),
    "prefix": ({"prefix_tokens": -1}, "expected a whole number from 0"),
    "no distribution for it": ({"prefix_tokens": {"distribution": "uniform"}}, "expected a whole"),
    "shape": (
        {"input_tokens": {"distribution": "norml", "mean": 3}},
        "unknown distribution 'norml'; did you mean 'normal'?",
    ),
    "key": (
        {"input_tokens": {"distribution": "normal", "mean": 3, "sd": 1, "std": 1}},
        "unknown key 'sd'; did you mean 'std'?",
    ),
    "missing": (
        {"input_tokens": {"distribution": "lognormal", "median": 3}},
        "a 'lognormal' distribution needs the key 'sigma'",
    ),
    "value": (
        {"input_tokens": {"distribution": "normal", "mean": 10**400, "std": 1}},
        "key 'mean': expected a number from 1 to",
    ),
    "not a number": (
        {"input_tokens": {"distribution": "normal", "mean": float("nan"), "std": 1}},
        "key 'mean': expected a number",
    ),
    "bounds": (
        {"input_tokens": {"distribution": "uniform", "least": 9, "most": 3}},
        "'least' is 9, beyond 'most', which is 3",
    ),
    "fraction": (
        {"input_tokens": {"distribution": "uniform", "least": 1.5, "most": 3}},
        "key 'least': expected a whole number",
    ),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_bad_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        datasets.row_options(Workload("synthetic", "generated", options=options))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
