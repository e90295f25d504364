"""Rows of trees give the very bits of plain decoding along their way, and what is kept stays."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from backends.engine.executors.base import StepRows
from backends.engine.executors.native import NativeExecutor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.executors.trees import TreeRows
from backends.engine.model.architecture import EngineError
from backends.engine.passes import numbers
from backends.kernels.cpu import native, native_checks
from tests.support.engine.random_models import SHAPES, RandomModel, random_model

ROOM: dict[str, Any] = {"slots": 3, "max_len": 300}
STARTS = (1, 27, 120, 254)
"""A tree of 12 levels begins at the first position, and crosses 32, 128 and 256."""
NO_ROWS = np.empty(0, np.int32)


@pytest.fixture(autouse=True)
def tiles_again() -> Iterator[None]:
    yield
    if native_checks.available():
        native.library().use_tiles(1)


def executor(kind: str, model: RandomModel, threads: int = 1) -> Any:
    """Of torch, or the C++ kernels with or without matrix tiles."""
    if kind == "torch":
        return TorchExecutor(model.weights, model.architecture, **ROOM)
    if not native_checks.available():
        pytest.skip("no native kernels")
    native.library().use_tiles(int(kind == "native"))
    return NativeExecutor(model.weights, model.architecture, threads=threads, **ROOM)


def random_tree(draw: random.Random, rows: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """Tokens and steps back of a tree in preorder, at most 12 deep."""
    way, back = [0], [0]
    for row in range(1, rows):
        depth = len(way) if draw.random() < 0.6 else draw.randint(1, len(way))
        del way[min(depth, 11) :]
        back.append(row - way[-1])
        way.append(row)
    return [draw.randrange(vocabulary) for _ in range(rows)], back


def way_to(row: int, back: Sequence[int]) -> list[int]:
    way = [row]
    while back[way[-1]]:
        way.append(way[-1] - back[way[-1]])
    return way[::-1]


def chain(run: Any, slot: int, start: int, ids: Sequence[int]) -> torch.Tensor:
    """Logits after each of some tokens, decoded one at a time."""
    found = []
    for place, token in enumerate(ids, start):
        rows = StepRows.span(slot, place, [token])
        run.advance(0, rows, NO_ROWS)
        found.append(run.logits(rows)[0])
    return torch.stack(found)


def poison(run: Any) -> None:
    """NaN in all of the cache: what memory held before reaches no number."""
    for layer in range(run.architecture.layers if isinstance(run, NativeExecutor) else 0):
        head = run._length * run.architecture.head_dim * run._dtype.itemsize
        size = (run.slots + 1) * run.architecture.kv_heads * head
        for address in (run._model.layers[layer].keys, run._model.layers[layer].values):
            ctypes.memset(address, 0xFF, size)


CASES = [
    *itertools.product(["native"], SHAPES, [torch.float32, torch.bfloat16]),
    *itertools.product(["vectors"], ["llama", "one-key-head", "qwen3"], [torch.bfloat16]),
    *itertools.product(["torch"], ["llama", "one-key-head", "qwen3"], [torch.float32]),
    *itertools.product(["torch"], ["tied", "qwen2"], [torch.bfloat16]),
]


@pytest.mark.parametrize(("kind", "name", "dtype"), CASES, ids=str)
def test_a_row_of_a_tree_is_that_of_plain_decoding(
    kind: str, name: str, dtype: torch.dtype
) -> None:
    """Bit for bit, for every row of trees in two slots at once, in one call or two, by one thread
    or two; and again after the tokens of one way were kept."""
    model = random_model(name, dtype)
    draw = random.Random(f"{kind}{name}{dtype}")
    vocabulary = model.architecture.vocabulary
    plain = executor(kind, model)
    for case, start in enumerate(STARTS[1:3] if kind == "torch" else STARTS):
        run = executor(kind, model, 1 + case % 2)
        if case == 2:
            run.trees.most = 30  # a call for each tree
        poison(run)
        prompts = [[draw.randrange(vocabulary) for _ in range(start + 2 * s)] for s in range(2)]
        made = [random_tree(draw, 24, vocabulary) for _ in prompts]
        for slot, prompt in enumerate(prompts):
            run.prefill(slot, prompt)
        trees = TreeRows.joined([(s, len(prompts[s]), *made[s]) for s in range(2)])
        wanted = numbers(sorted(draw.sample(range(48), 20)))
        tokens = run.trees.run(trees, wanted)
        logits = run.trees.logits(numbers(range(48)))
        assert tokens == logits[wanted.tolist()].argmax(1).tolist()
        assert torch.equal(run.trees.logits(wanted), logits[wanted.tolist()])
        expected = []
        leaves = []
        for slot, (ids, back) in enumerate(made):
            plain.prefill(2, prompts[slot])
            for leaf in set(range(24)) - {row - back[row] for row in range(1, 24)}:
                way = way_to(leaf, back)
                found = chain(plain, 2, len(prompts[slot]), [ids[r] for r in way])
                assert torch.equal(logits[[24 * slot + r for r in way]], found), (start, slot)
            way = way_to(draw.randrange(24), back)
            leaves += [24 * slot + row for row in way]
            more = [ids[r] for r in way] + [5, 6]
            expected.append(chain(plain, 2, len(prompts[slot]), more)[-2:])
        run.trees.keep(numbers(leaves))
        for slot, prompt in enumerate(prompts):
            place = len(prompt) + sum(row // 24 == slot for row in leaves)
            assert torch.equal(chain(run, slot, place, [5, 6]), expected[slot]), (start, slot)


@pytest.mark.parametrize("kind", ["native", "torch"])
def test_what_is_no_tree_is_refused(kind: str) -> None:
    run = executor(kind, random_model("llama"))
    run.prefill(0, [1, 2, 3])

    def refused(slots: list[int], positions: list[int], back: list[int], token: int = 1) -> None:
        rows = StepRows(slots, positions, [token] * len(slots))
        with pytest.raises(EngineError, match="preorder, within"):
            run.trees.run(TreeRows(rows, numbers(back)), NO_ROWS)

    run.trees.run(TreeRows(StepRows([0] * 3, [3, 4, 4], [1] * 3), numbers([0, 1, 2])), NO_ROWS)
    refused([0, 0, 0], [3, 4, 5], [0, 1, 2])  # not its parent's position and 1
    refused([0, 0, 0, 0], [3, 4, 4, 5], [0, 1, 2, 2])  # after another branch
    refused([0, 0], [3, 4], [0, 0])  # a second first row
    refused([0, 1], [3, 4], [0, 1])  # follows a row of another slot
    refused([0, 0], [3, 4], [0, -1])
    refused([0, 0], [299, 300], [0, 1])  # beyond the slot
    refused([3], [0], [0])
    refused([0], [3], [0], token=97)


def test_no_tree_is_cut() -> None:
    trees = [
        (slot, 4, [1] * size, [0] + [1] * (size - 1)) for slot, size in enumerate((3, 2, 7, 1))
    ]
    joined = TreeRows.joined(trees)
    assert list(joined.parts(5)) == [(0, 5), (5, 12), (12, 13)]
    assert list(joined.parts(100)) == [(0, 13)]
    assert joined.rows.positions.tolist()[:5] == [4, 5, 6, 4, 5]
    assert list(TreeRows.joined([]).parts(5)) == []


def test_a_tree_larger_than_a_call_is_refused() -> None:
    run = executor("native", random_model("llama"))
    big = TreeRows.joined([(0, 0, [1] * 257, [0] + [1] * 256)])
    with pytest.raises(EngineError, match="257 rows of trees: expected at most 256"):
        run.trees.run(big, NO_ROWS)
