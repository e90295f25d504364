"""Early exit inside a real vLLM with temperature, top_p, seeds, margins and stop tokens."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import numpy as np
import pytest

from tests.support.child import CHILDREN, run_child
from tests.support.children.early_exit_sampling_child import LAYER, SAMPLED
from tests.support.exits.exit_models import write_exit_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]
ROUNDING = 1e-3
"""How far a float32 logit may be from the reference's."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    model = write_exit_model(tmp_path_factory.mktemp("sampling") / "grouped", "grouped")
    script = CHILDREN / "early_exit_sampling_child.py"
    found: dict[str, Any] = json.loads(run_child(script, model))
    return found


def tokens(answers: list[Any]) -> list[list[int]]:
    return [answer[0] for answer in answers]


def margins(answer: list[Any]) -> list[float]:
    """One of each token; a `KeyError` where one is missing."""
    ids, _, telemetry = answer
    return [telemetry[f"top2_margin@{position}"] for position in range(len(ids))]


def left_at_layer(answer: list[Any]) -> bool:
    """Whether every token but the prompt's own was chosen behind `LAYER`."""
    ids, _, telemetry = answer
    return bool(telemetry[f"exits_layer_{LAYER}"] == telemetry["steps"] == len(ids) - 1)


def test_never_samples_as_plain_vllm_does(seen: dict[str, Any]) -> None:
    assert tokens(seen["never"]) == tokens(seen["plain"])
    for never, plain in zip(seen["never"], seen["plain"], strict=True):
        assert margins(never) == pytest.approx(margins(plain), abs=1e-5)
        assert never[2]["layers_skipped"] == 0
    assert tokens(seen["plain"]) != tokens(seen["static"]["sampled"])


@pytest.mark.parametrize("name", ["static", "always"])
@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_margins_are_those_of_the_exits_own_logits(
    seen: dict[str, Any], name: str, kind: str
) -> None:
    for answer, rows in zip(seen[name][kind], seen["reference"][kind], strict=True):
        best = np.sort(np.array(rows), axis=1)
        assert left_at_layer(answer)
        assert margins(answer) == pytest.approx(list(best[:, -1] - best[:, -2]), abs=ROUNDING)


def test_reused_and_computed_logits_choose_the_same_tokens(seen: dict[str, Any]) -> None:
    for kind in ("greedy", "sampled", "narrow", "stopped"):
        assert tokens(seen["always"][kind]) == tokens(seen["static"][kind])


def test_greedy_tokens_are_the_exits_best(seen: dict[str, Any]) -> None:
    best = [np.argmax(rows, axis=1).tolist() for rows in seen["reference"]["greedy"]]
    assert tokens(seen["always"]["greedy"]) == best
    assert tokens(seen["always"]["narrow"]) == best


def test_sampled_tokens_come_from_the_exits_nucleus(seen: dict[str, Any]) -> None:
    outside_best = 0
    for request, answer, rows in zip(
        SAMPLED, seen["always"]["sampled"], seen["reference"]["sampled"], strict=True
    ):
        for token, row in zip(answer[0], np.array(rows), strict=True):
            weights = np.exp((row - row.max()) / request.sampling.temperature)
            likelier = weights[row > row[token] + ROUNDING].sum() / weights.sum()
            assert likelier <= request.sampling.top_p + ROUNDING
            outside_best += token != np.argmax(row)
    assert outside_best > 5


def test_a_sampled_answer_alone_repeats_itself_after_a_reset(seen: dict[str, Any]) -> None:
    assert [again for _, again, _ in seen["alone"]] == [first for first, *_ in seen["alone"]]
    assert sum(first[0] != other[0] for first, _, other in seen["alone"]) > 1
    exits = {name for first, *_ in seen["alone"] for name in first[2] if name.startswith("exits")}
    assert exits == {"exits_layer_2", f"exits_layer_{LAYER}"}
    assert any(first[2]["layers_run"] % LAYER for first, *_ in seen["alone"])


@pytest.mark.parametrize("name", ["static", "always"])
def test_a_stop_token_chosen_early_ends_its_answer_only(seen: dict[str, Any], name: str) -> None:
    whole, stopped = tokens(seen[name]["greedy"]), seen[name]["stopped"]
    assert stopped[0][:2] == [whole[0], "length"]
    for full, answer in zip(whole[1:], stopped[1:], strict=True):
        ids, finished, _ = answer
        assert finished == "stop"
        assert ids == full[: len(ids)]
        assert 4 < len(ids) < len(full)
        assert ids[-1] not in ids[:-1]
        assert left_at_layer(answer)
