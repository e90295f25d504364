"""The reference executor: the model's own logits row by row, and rows that ignore each other."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from backends.engine.executors.base import StepRows
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import Architecture, EngineError, read_architecture
from backends.engine.model.forward import final_logits, hidden_states
from backends.engine.model.heads import ExitHead
from backends.engine.model.weights import Weights, load_weights
from tests.support.engine.checkpoints import (
    SHAPES,
    CheckpointCase,
    prompt,
    reference_logits,
    write_checkpoint,
)

PROMPT, LENGTH = 21, 47
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def make_executor(
    case: CheckpointCase, dtype: torch.dtype, slots: int = 1, **options: Any
) -> TorchExecutor:
    weights = case.weights(dtype)
    heads = exit_heads(weights, case.architecture)
    return TorchExecutor(weights, case.architecture, heads, slots=slots, max_len=64, **options)


def exit_heads(weights: Weights, architecture: Architecture) -> list[ExitHead]:
    """The original head after every layer but the last; a shortlist behind the second."""
    shortlist = torch.arange(architecture.vocabulary - 1, 0, -3)
    heads = []
    for layer in range(1, architecture.layers):
        ids = shortlist if layer == 2 else None
        heads.append(ExitHead(layer, weights.head if ids is None else weights.head[ids], ids))
    return heads


@pytest.fixture(scope="module", params=SHAPES)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> CheckpointCase:
    return CheckpointCase.write(
        tmp_path_factory.mktemp(request.param), request.param, LENGTH, seed=1
    )


def rows(ids: Tensor, start: int, stop: int, slot: int = 0) -> StepRows:
    return StepRows.of([(slot, position, int(ids[position])) for position in range(start, stop)])


def joined(*parts: StepRows) -> StepRows:
    return StepRows(*np.concatenate([part.table for part in parts], axis=1))


def run(executor: TorchExecutor, part: StepRows) -> Tensor:
    """All segments in turn; the final logits."""
    for index in range(len(executor.exits) + 1):
        executor.segment(index, part)
    return executor.logits(part)


def decode(executor: TorchExecutor, ids: Tensor, *, slot: int = 0, step: int = 1) -> Tensor:
    """Prefill `PROMPT` tokens, then the rest of `ids`, `step` rows a call: logits from the
    prompt's last position on."""
    executor.prefill(slot, ids[:PROMPT].tolist())
    found = [executor.logits(rows(ids, PROMPT - 1, PROMPT, slot))]
    for start in range(PROMPT, len(ids), step):
        found.append(run(executor, rows(ids, start, min(len(ids), start + step), slot)))
    return torch.cat(found)


@pytest.mark.parametrize("step", [1, 5, 16])
def test_float32_agrees_with_transformers_to_rounding(case: CheckpointCase, step: int) -> None:
    found = decode(make_executor(case, torch.float32), case.ids, step=step)
    torch.testing.assert_close(found, case.truth[PROMPT - 1 :], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_in_16_bits_the_error_is_no_larger_than_transformers(
    case: CheckpointCase, dtype: torch.dtype
) -> None:
    truth = case.truth[PROMPT - 1 :]
    theirs = reference_logits(copy.deepcopy(case.model).to(dtype), case.ids)[PROMPT - 1 :]
    ours = decode(make_executor(case, dtype), case.ids)
    errors = [(found - truth).square().mean().sqrt().item() for found in (ours, theirs)]
    assert errors[0] <= 1.05 * errors[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_ignores_its_neighbours(case: CheckpointCase, dtype: torch.dtype) -> None:
    """The same sequence alone, several rows a call, in another slot, and among other sequences of
    other lengths, whose rows stand before it or behind: the same bits."""
    alone = decode(make_executor(case, dtype), case.ids)
    assert torch.equal(decode(make_executor(case, dtype), case.ids, step=8), alone)
    assert torch.equal(decode(make_executor(case, dtype), case.ids, step=11), alone)
    crowd = make_executor(case, dtype, slots=4)
    others = [prompt(LENGTH, case.architecture.vocabulary, seed=seed) for seed in (5, 6, 7)]
    for slot, (sequence, length) in enumerate(
        zip([*others, case.ids], (3, 30, 11, PROMPT), strict=True)
    ):
        crowd.prefill(slot, sequence[:length].tolist())
    for start in range(PROMPT, LENGTH - 3, 3):
        mine = rows(case.ids, start, start + 3, 3)
        before = [rows(others[0], 3, 3 + start % 4, 0), rows(others[1], 30, 32, 1)]
        behind = [rows(others[2], 11, 11 + start % 5, 2)]
        many = joined(*before, mine, *behind)
        at = sum(map(len, before))
        expected = alone[start - PROMPT + 1 :][:3]
        assert torch.equal(run(crowd, many)[at : at + 3], expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_rows_are_equal_when_threads_share_the_work(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    """Three threads cut 8 rows of 14,336 within a row; exponentials at a cut are not those of a
    vector unit, so that some of eight equal rows once differed from the others."""
    case = CheckpointCase.write(tmp_path, "wide", 2, seed=2)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        executor = make_executor(case, dtype, slots=8)
        for token in range(20):
            found = run(executor, StepRows.of([(slot, 0, token) for slot in range(8)]))
            assert torch.equal(found, found[:1].expand_as(found))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rewriting_positions_undoes_a_wrong_continuation(
    case: CheckpointCase, dtype: torch.dtype
) -> None:
    wrong = case.ids.clone()
    wrong[PROMPT + 2 :] = (wrong[PROMPT + 2 :] + 1) % case.architecture.vocabulary
    executor = make_executor(case, dtype)
    expected = decode(executor, case.ids)
    decode(executor, wrong, step=4)
    back = run(executor, rows(case.ids, PROMPT + 2, PROMPT + 5))
    assert torch.equal(back, expected[3:6])


def test_pending_rows_wait_in_the_boundaries(case: CheckpointCase) -> None:
    """Segments run one row at a time, in the order of early exits: row by row through the first,
    then all rows through the others."""
    executor = make_executor(case, torch.bfloat16)
    expected = decode(executor, case.ids)
    pending = rows(case.ids, PROMPT, PROMPT + 7)
    for position in range(PROMPT, PROMPT + 7):
        executor.segment(0, rows(case.ids, position, position + 1))
    for index in range(1, len(executor.exits) + 1):
        executor.segment(index, pending)
    assert torch.equal(executor.logits(pending), expected[1:8])


def test_exit_heads_give_the_top_token_and_its_probability(case: CheckpointCase) -> None:
    executor = make_executor(case, torch.float32)
    decode(executor, case.ids)
    weights = case.weights(torch.float32)
    states = hidden_states(weights, case.architecture, case.ids[None], executor.exits)
    part = rows(case.ids, LENGTH - 12, LENGTH)
    for index, head in enumerate(exit_heads(weights, case.architecture)):
        logits = final_logits(weights, states[head.layer][0, -12:])
        if head.token_ids is not None:
            logits = logits[:, head.token_ids]
        top = logits.softmax(dim=-1).max(dim=-1)
        expected = top.indices if head.token_ids is None else head.token_ids[top.indices]
        tokens, confidences = executor.exit_head(index, part)
        assert tokens == expected.tolist()
        assert confidences == pytest.approx(top.values.tolist(), abs=1e-5)


def test_advance_is_a_segment_and_its_head_on_some_rows(case: CheckpointCase) -> None:
    executor = make_executor(case, torch.bfloat16)
    executor.prefill(0, case.ids[:PROMPT].tolist())
    part = rows(case.ids, PROMPT, PROMPT + 10)
    for index in range(len(executor.exits) + 1):
        wanted = np.array([2, 9], np.int32)
        found = executor.advance(index, part, wanted)
        executor.segment(index, part)
        tokens, confidences = executor.exit_head(index, part)
        assert found == ([tokens[2], tokens[9]], [confidences[2], confidences[9]])
        assert executor.advance(index, part, wanted[:0]) == ([], [])
    assert tokens == executor.greedy(part) == executor.logits(part).argmax(dim=-1).tolist()


def test_the_lowest_id_wins_a_tie(case: CheckpointCase) -> None:
    executor = make_executor(case, torch.float32)
    executor.prefill(0, case.ids[:PROMPT].tolist())
    executor._heads[-1] = executor._heads[-1][:1].expand_as(executor._heads[-1])
    assert executor.greedy(rows(case.ids, PROMPT - 1, PROMPT)) == [0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_prompt_is_read_in_pieces_of_its_own(case: CheckpointCase, dtype: torch.dtype) -> None:
    """The same bits in one call, in several, and beside another prompt; right in all."""
    found = []
    other = case.ids.flip(0)[:19].tolist()
    ids, end = case.ids[:PROMPT].tolist(), rows(case.ids, PROMPT - 1, PROMPT)
    for cuts in ((0, PROMPT), (0, 8, PROMPT), (0, 8, 16, PROMPT)):
        executor = make_executor(case, dtype)
        executor.piece = 8
        for start, stop in pairwise(cuts):
            mine = StepRows.span(0, start, ids[start:stop])
            executor.read(mine if start else joined(mine, StepRows.span(1, 0, other)))
        found.append(torch.cat([executor.logits(end), run(executor, rows(case.ids, PROMPT, 30))]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    if dtype == torch.float32:
        expected = case.truth[PROMPT - 1 : 30]
        torch.testing.assert_close(found[0], expected, atol=2e-5, rtol=1e-5)


def test_a_slot_is_used_again(case: CheckpointCase) -> None:
    executor = make_executor(case, torch.bfloat16, slots=2)
    expected = decode(executor, case.ids, slot=1)
    decode(executor, case.ids.flip(0), slot=1)
    assert torch.equal(decode(executor, case.ids, slot=1), expected)
    executor.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 0}, "slots 0, max_len 64: expected positive numbers"),
        ({"rows": 2}, "rows: 2: expected at least 4"),
        ({"layers": [2, 1]}, r"exit layers \[2, 1\]: expected ascending numbers from 1 to 2"),
        ({"layers": [3]}, r"exit layers \[3\]: expected ascending numbers from 1 to 2"),
        ({"layers": [1], "cut": 5}, r"exit head of layer 1: shape \[5, 48\], expected \[131, 48\]"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    write_checkpoint(tmp_path, "llama")
    architecture = read_architecture(tmp_path)
    weights = load_weights(tmp_path, architecture, torch.float32)
    cut = options.pop("cut", None)
    heads = [ExitHead(layer, weights.head[:cut]) for layer in options.pop("layers", [])]
    with pytest.raises(EngineError, match=message):
        TorchExecutor(weights, architecture, heads, **{"slots": 1, "max_len": 64, **options})


@pytest.mark.parametrize("count", [0, 65])
def test_a_prompt_of_an_impossible_length(tmp_path: Path, count: int) -> None:
    write_checkpoint(tmp_path, "llama")
    architecture = read_architecture(tmp_path)
    weights = load_weights(tmp_path, architecture, torch.float32)
    executor = TorchExecutor(weights, architecture, slots=1, max_len=64)
    with pytest.raises(EngineError, match=f"prompt of {count} tokens: expected 1 to 64"):
        executor.prefill(0, [1] * count)
