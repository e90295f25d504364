"""Trees of guesses on the CUDA executor: bit for bit the numbers of plain decoding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from backends.engine.decoder import Decoder
from backends.engine.drafters.trees.lookahead import LookAhead
from backends.engine.executors import cuda
from backends.engine.executors.base import StepRows
from backends.engine.executors.cuda import CudaExecutor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.executors.trees import MOST_TREE_ROWS, TreeRows, widest
from backends.engine.model.architecture import EngineError
from backends.engine.passes import numbers
from backends.engine.streams import Stream
from tests.kernels.drafts.test_cuda_states import mixed
from tests.kernels.test_cuda_executor import random_weights, shape_of
from tests.support.engine.exit_streams import run

Tree = tuple[list[int], list[int]]
NO_ROWS = np.empty(0, np.int32)
SIZE = 11
"""Rows of a tree: three calls, or parts of four."""


def opened(kind: str, dtype: torch.dtype, max_len: int = 160) -> CudaExecutor:
    room: dict[str, Any] = {"slots": 3, "max_len": max_len, "rows": 4}
    return CudaExecutor(random_weights(shape_of(kind), dtype), shape_of(kind), **room)


def random_tree(draw: random.Random, size: int) -> Tree:
    tokens, back, way = [draw.randrange(97)], [0], [0]
    for row in range(1, size):
        del way[draw.randrange(max(1, len(way) - 3), len(way) + 1) :]
        back.append(row - way[-1])
        way.append(row)
        tokens.append(draw.randrange(97))
    return tokens, back


def way_to(row: int, back: Sequence[int]) -> list[int]:
    way = [row]
    while back[way[-1]]:
        way.append(way[-1] - back[way[-1]])
    return way[::-1]


def chain(executor: CudaExecutor, slot: int, start: int, tokens: list[int]) -> Tensor:
    """Logits of plain decoding, two rows at a time."""
    found = []
    for at in range(0, len(tokens), 2):
        rows = StepRows.span(slot, start + at, tokens[at : at + 2])
        executor.segment(0, rows)
        found.append(executor.logits(rows))
    return torch.cat(found)


@pytest.mark.parametrize(
    ("kind", "dtype", "start"),
    [("llama", torch.bfloat16, 126), ("qwen3", torch.float16, 62)],
    ids=str,
)
def test_a_row_of_a_tree_is_that_of_plain_decoding(
    kind: str, dtype: torch.dtype, start: int
) -> None:
    """Of trees in two slots at once, that lie before and across the border of a split of keys and
    of a block; and again after the tokens of one way of each were kept."""
    draw = random.Random(f"{kind}{start}")
    executor, plain = opened(kind, dtype), opened(kind, dtype)
    prompts = [[draw.randrange(97) for _ in range(start + 2 * slot)] for slot in range(2)]
    made = [random_tree(draw, SIZE) for _ in prompts]
    for one in (executor, plain):
        for slot, prompt in enumerate(prompts):
            one.prefill(slot, prompt)
    trees = TreeRows.joined([(s, len(prompts[s]), *made[s]) for s in range(2)])
    wanted = numbers(sorted(draw.sample(range(2 * SIZE), 9)))
    tokens = executor.trees.run(trees, wanted)
    logits = executor.trees.logits(numbers(range(2 * SIZE)))
    assert tokens == logits[wanted.tolist()].argmax(1).tolist()
    assert torch.equal(executor.trees.logits(wanted), logits[wanted.tolist()])
    kept = []
    for slot, (ids, back) in enumerate(made):
        leaves = set(range(SIZE)) - {row - back[row] for row in range(1, SIZE)}
        assert len(leaves) > 2
        for leaf in leaves:
            way = way_to(leaf, back)
            found = chain(plain, slot, len(prompts[slot]), [ids[r] for r in way])
            assert torch.equal(logits[[SIZE * slot + r for r in way]], found), (slot, leaf)
        kept.append(way_to(max(leaves, key=lambda leaf: len(way_to(leaf, back))), back))
    assert max(map(len, kept)) > 3
    executor.trees.keep(numbers([SIZE * s + row for s, way in enumerate(kept) for row in way]))
    for slot, way in enumerate(kept):
        place = len(prompts[slot])
        ids = [made[slot][0][row] for row in way]
        after = chain(plain, slot, place, [*ids, 5, 6])[-2:]
        assert torch.equal(chain(executor, slot, place + len(way), [5, 6]), after)


def test_trees_that_are_not_kept_leave_the_cache_as_it_is() -> None:
    """Also where graphs are made for more rows amid decoding: a run is executed once before."""
    executor, plain = (opened("llama", torch.float32, 40) for _ in range(2))
    for one in (executor, plain):
        one.prefill(0, [3, 1, 4, 1, 5])
        one.prefill(1, [9, 2, 6])
        one.segment(0, StepRows.of([(0, 5, 8), (1, 3, 9)]))
    tree: Tree = ([7, 8, 9], [0, 1, 2])
    for _ in range(2):
        executor.trees.run(TreeRows.joined([(0, 4, *tree), (1, 4, *tree)]), NO_ROWS)
    executor.trees.keep(NO_ROWS)
    after = StepRows.of([(0, 6, 2), (1, 4, 3)])
    for one in (executor, plain):
        one.segment(0, after)
    assert torch.equal(executor.logits(after), plain.logits(after))


def test_graphs_are_made_when_trees_come_and_when_more_rows_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def first_run(runs: Sequence[Callable[[], None]], _: torch.device) -> list[Callable[[], None]]:
        made.append(len(runs))
        for one in runs:
            one()
        return list(runs)

    executor = opened("llama", torch.float32, 60)
    executor.prefill(0, [3, 1, 4])
    monkeypatch.setattr(cuda, "INTERPRETED", False)
    monkeypatch.setattr(cuda, "capture", first_run)
    monkeypatch.setattr(executor.trees, "most", 8)
    small = TreeRows.joined([(0, 3, [5, 6, 7], [0, 1, 2])])
    asked, found = numbers(range(3)), []
    for trees in (small, widest(2, 5), small):
        executor.trees.run(trees, NO_ROWS)
        found.append(executor.trees.logits(asked))
    assert made == [3, 3], "layers, head and logits, for 8 places and for 16"
    assert torch.equal(found[0], found[2])
    large = TreeRows.joined([(s, 3, [5] * 8, [0, *[1] * 7]) for s in range(2)])
    executor.trees.run(large, NO_ROWS)
    assert len(made) == 2, "there are 16 places"


def test_what_is_no_tree_is_refused() -> None:
    executor = opened("llama", torch.float32, 300)
    with pytest.raises(EngineError, match="preorder, within"):
        executor.trees.run(TreeRows(StepRows([0, 0], [3, 4], [1, 1]), numbers([0, 0])), NO_ROWS)
    with pytest.raises(EngineError, match="preorder, within"):
        executor.trees.run(TreeRows.joined([(3, 0, [1], [0])]), NO_ROWS)
    count = MOST_TREE_ROWS + 1
    big = TreeRows.joined([(0, 0, [1] * count, [0, *[1] * (count - 1)])])
    with pytest.raises(EngineError, match="a tree of 257 rows: expected at most 256"):
        executor.trees.run(big, NO_ROWS)


def test_an_overflow_in_a_tree_is_an_error_and_no_token() -> None:
    weights = random_weights(shape_of("llama"), torch.float32)
    weights.layers[-1].down.fill_(float("inf"))
    executor = CudaExecutor(weights, shape_of("llama"), slots=1, max_len=9, rows=4)
    assert executor.trees.run(TreeRows.joined([(0, 0, [1], [0])]), numbers([0])) == [-1]
    weights.layers[-1].down.zero_()
    decoder = Decoder(executor, LookAhead(9, 1, 2, 1))
    decoder.add(Stream("a", (1, 2), 6))
    decoder.step()
    weights.layers[-1].down.fill_(float("inf"))
    with pytest.raises(EngineError, match="request a: position 2: the final head's logits are NaN"):
        decoder.step()


def test_windows_leave_every_text_as_it_is() -> None:
    """Greedy and sampled texts of different lengths, more of them than slots."""
    weights, shape = random_weights(shape_of("llama"), torch.bfloat16), shape_of("llama")
    room: dict[str, Any] = {"slots": 3, "max_len": 32, "rows": 4}
    executor, plain = (CudaExecutor(weights, shape, **room) for _ in range(2))
    texts, counts = run(Decoder(executor, LookAhead(32, 3, 3, 3, pool_prompt=True)), mixed())
    assert texts == run(Decoder(plain), mixed())[0]
    assert counts["drafted"] > 10
    assert counts["accepted"] > 0


def test_the_same_numbers_as_in_torch() -> None:
    weights, shape = random_weights(shape_of("qwen3"), torch.float32), shape_of("qwen3")
    room: dict[str, Any] = {"slots": 2, "max_len": 40, "rows": 4}
    trees, found = TreeRows.joined([(1, 5, *random_tree(random.Random(1), 9))]), []
    for kind in (CudaExecutor, TorchExecutor):
        executor = kind(weights, shape, **room)
        executor.prefill(1, [3, 1, 4, 1, 5])
        executor.trees.run(trees, NO_ROWS)
        found.append(executor.trees.logits(numbers(range(9))).cpu())
    assert torch.allclose(found[0], found[1], atol=1e-4)
