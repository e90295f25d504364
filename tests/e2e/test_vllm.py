"""A real vLLM on the CPU (or GPU) with a tiny random model: what its backend promises."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from tests.support.child import CHILDREN, run_child
from tests.support.tiny_llama import write_tiny_llama

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    model = write_tiny_llama(tmp_path_factory.mktemp("tiny"))
    found: dict[str, Any] = json.loads(run_child(CHILDREN / "vllm_child.py", model))
    return found


def tokens(answers: list[Any]) -> list[list[int]]:
    return [answer[0] for answer in answers]


def test_greedy_answers_equal_transformers(seen: dict[str, Any]) -> None:
    generations = seen["greedy"]
    assert [g["token_ids"] for g in generations] == [ids for ids, _ in seen["reference"]]
    assert {g["finished"] for g in generations} == {"length"}
    assert len({tuple(g["token_ids"]) for g in generations}) == len(generations)


def test_margins_are_the_distances_of_the_two_best_logits(seen: dict[str, Any]) -> None:
    for answer, (ids, margins) in zip(seen["margins"], seen["reference"], strict=True):
        assert answer[0] == ids
        told = [answer[3][f"top2_margin@{position}"] for position in range(len(ids))]
        assert told == pytest.approx(margins, abs=1e-3)


def test_one_token_per_pass_after_the_prompts_from_a_cold_cache(seen: dict[str, Any]) -> None:
    for generation, prompt in zip(seen["greedy"], (1, 5, 40, 129, 130, 300), strict=True):
        work = {"steps": 11, "layers_run": 88, "layers_total": 88}
        read = sum(range(prompt + 1, prompt + 12))
        told = generation["telemetry"]
        decode_us = (generation["commit_ns"][-1] - generation["commit_ns"][0]) / 1e3
        assert 0 < told.pop("pass_us") < decode_us, "the passes are a part of the time"
        assert told == {**work, "cached_tokens": 0, "preemptions": 0, "attended_positions": read}
        assert generation["commit_tokens"] == [1] * 12
    assert tokens(seen["repeated"]) == [g["token_ids"] for g in seen["greedy"]]
    assert all(telemetry["cached_tokens"] == 0 for *_, telemetry in seen["repeated"])


def test_requests_that_give_way_to_others_say_so(seen: dict[str, Any]) -> None:
    """Of a cache that has no room for all four, which need 150 tokens each."""
    room, starved = seen["starved"]
    assert room < 4 * 150
    assert sum(telemetry["preemptions"] for *_, telemetry in starved) > 0
    assert {(reason, len(ids)) for ids, reason, *_ in starved} == {("length", 100)}


def test_stop_ids_end_an_answer_and_ignore_eos_does_not(seen: dict[str, Any]) -> None:
    whole = seen["greedy"][1]["token_ids"]
    (stopped, reason, *_), (ignored, length, *_) = seen["stops"]
    assert stopped == whole[: whole.index(whole[2]) + 1]
    assert (reason, length) == ("stop", "length")
    assert ignored == whole


def test_sampling_follows_its_seed(seen: dict[str, Any]) -> None:
    first, again, other = tokens(seen["sampled"])
    assert first == again
    assert first != other


def test_what_cannot_be_served_whole_is_an_error_and_harms_nobody(seen: dict[str, Any]) -> None:
    empty, long, fits, unknown = seen["impossible"]
    assert empty[:3] == [[], "error", "the prompt is empty"]
    assert long[0] == []
    assert "prompt of 505 tokens and max_new_tokens 8 exceed max_model_len 512" in long[2]
    assert unknown[:3] == [[], "error", "a prompt token is outside the vocabulary of 1024"]
    assert len(fits[0]) == 8
    assert fits[1] == "length"


def test_reset_drops_unfinished_requests(seen: dict[str, Any]) -> None:
    left_over, answers = seen["after_reset"]
    assert left_over == 0
    assert tokens(answers) == [g["token_ids"] for g in seen["greedy"]]


def test_prefix_cache_is_seen_and_dropped_by_reset(seen: dict[str, Any]) -> None:
    (cold,), (warm,), (reset,) = seen["cached"]
    assert cold[3]["cached_tokens"] == 0
    assert warm[3]["cached_tokens"] > 0
    assert reset[3]["cached_tokens"] == 0
    assert cold[0] == warm[0] == reset[0]


def test_refused_values_are_one_line(seen: dict[str, Any]) -> None:
    for message, expected in zip(
        seen["refused"],
        [
            "vLLM refused the model or its options: block_size: ",
            "vLLM refused the model or its options: User-specified max_model_len (5000)",
            "vLLM refused the model or its options: cache_dtype: ",
            "option 'kv_cache_gib': 0.001 GiB hold fewer tokens, and max_model_len is 512; give",
            "option 'kv_cache_gib': 1e-05 GiB hold no block of this model",
        ],
        strict=True,
    ):
        assert message.startswith(f"backend 'vllm': {expected}")
        assert "\n" not in message


def test_info_holds_what_took_effect(seen: dict[str, Any]) -> None:
    info = seen["info"]
    assert (info["name"], info["provenance"], info["lossless"]) == ("vllm", "official code", True)
    options = info["options"]
    assert (options["dtype"], options["max_model_len"]) == ("float32", 512)
    assert options["kv_cache_tokens"] >= 512
    assert isinstance(options["enforce_eager"], bool)
    assert options["kv_cache_gib"] == 0.125
    assert options["max_num_batched_tokens"] >= 2048
    assert isinstance(options["enable_chunked_prefill"], bool)
    assert isinstance(options["async_scheduling"], bool)
    assert options["model_runner"] in ("V1", "V2")
    for name in ("compilation_mode", "cudagraph_mode", "attention_backend"):
        assert options[name], name


def test_nothing_outside_this_machine_is_contacted(seen: dict[str, Any]) -> None:
    assert seen["network"] == []
