"""The CUDA executor, end to end, against the engine's plain forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from backends.engine.decoder import Decoder
from backends.engine.drafters.exits import ExitDrafter, PredictionPolicy
from backends.engine.executors.base import Executor, StepRows
from backends.engine.executors.cuda import CudaExecutor
from backends.engine.executors.cuda_calls.layers import rows_for
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.forward import final_logits, hidden_states
from backends.engine.model.heads import ExitHead, in_8_bits
from backends.engine.model.weights import LayerWeights, Weights
from backends.engine.sampling import TokenSampling
from backends.engine.streams import Stream
from backends.kernels.exit_head import exit_head_reference
from backends.kernels.rms_norm import rms_norm_reference
from backends.kernels.triton_runtime import INTERPRETED
from tests.support.engine.kernel_cases import DEVICE, ROUNDING, noise

EXITS = (1, 2)
IDS = [5, 17, 3, 88, 41, 7, 7, 60, 2]


def shape_of(kind: str) -> Architecture:
    frequencies = tuple(10000.0 ** (-i / 16) for i in range(0, 16, 2))
    return Architecture(
        family=kind,
        layers=3,
        width=48,
        feed_forward=80,
        heads=2,
        kv_heads=1,
        head_dim=16,
        vocabulary=97,
        epsilon=1e-5,
        positions=64,
        tied=False,
        qkv_bias=kind == "qwen2",
        qk_norm=kind == "qwen3",
        inverse_frequencies=frequencies,
    )


def random_weights(shape: Architecture, dtype: torch.dtype) -> Weights:
    def matrix(seed: int, *sizes: int) -> Tensor:
        scale: float = sizes[-1] ** -0.5
        return (noise(*sizes, seed=seed) * scale).to(dtype)

    def layer(seed: int) -> LayerWeights:
        columns, hd = shape.query_size + 2 * shape.kv_size, shape.head_dim
        return LayerWeights(
            1 + 0.1 * noise(shape.width, seed=seed),
            matrix(seed + 1, columns, shape.width),
            noise(columns, seed=seed + 2).to(dtype) * 0.2 if shape.qkv_bias else None,
            1 + 0.1 * noise(hd, seed=seed + 3) if shape.qk_norm else None,
            1 + 0.1 * noise(hd, seed=seed + 4) if shape.qk_norm else None,
            matrix(seed + 5, shape.width, shape.query_size),
            1 + 0.1 * noise(shape.width, seed=seed + 6),
            matrix(seed + 7, 2 * shape.feed_forward, shape.width),
            matrix(seed + 8, shape.width, shape.feed_forward),
        )

    layers = tuple(layer(10 * (number + 1)) for number in range(shape.layers))
    norm, head = 1 + 0.1 * noise(shape.width, seed=3), matrix(2, 97, 48) * 4
    return Weights(noise(97, 48, seed=1).to(dtype), layers, norm, head, shape.epsilon)


def make(
    kind: str = "llama", dtype: torch.dtype = torch.float32, rows: int = 4
) -> tuple[CudaExecutor, Weights, list[ExitHead]]:
    shape = shape_of(kind)
    weights = random_weights(shape, dtype)
    ids = torch.arange(96, 36, -1, device=DEVICE)
    heads = [
        ExitHead(1, (weights.head + 0.1 * noise(97, 48, seed=8)).to(dtype)),
        ExitHead(2, weights.head[ids].contiguous(), ids),
    ]
    options: dict[str, Any] = {"slots": 3, "max_len": 40, "rows": rows}
    return CudaExecutor(weights, shape, heads, **options), weights, heads


def rows_at(slot: int, positions: range, ids: Sequence[int] = IDS) -> StepRows:
    return StepRows.of([(slot, position, ids[position]) for position in positions])


def reference(weights: Weights, kind: str) -> dict[int, Tensor]:
    ids = torch.tensor([IDS], device=DEVICE)
    states = hidden_states(weights, shape_of(kind), ids, (*EXITS, 3))
    return {layer: state[0] for layer, state in states.items()}


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("llama", torch.float32),
        ("llama", torch.bfloat16),
        ("qwen2", torch.float16),
        ("qwen3", torch.float32),
    ],
)
def test_frontiers_give_the_logits_of_a_whole_pass(kind: str, dtype: torch.dtype) -> None:
    """A prompt of 4; then the first segment runs ahead row by row, the second in two goes, the last
    over all five rows at once, more than the four that fit into a call."""
    executor, weights, heads = make(kind, dtype)
    executor.prefill(1, IDS[:4])
    for position in range(4, 9):
        executor.segment(0, rows_at(1, range(position, position + 1)))
    for bound in pairwise((4, 6, 9)):
        executor.segment(1, rows_at(1, range(*bound)))
    everything = rows_at(1, range(4, 9))
    tokens, none = executor.advance(2, everything, np.array([1, 4], np.int32))
    states = reference(weights, kind)
    expected = final_logits(weights, states[3])[4:].cpu()
    got = executor.logits(everything).cpu()
    assert (got - expected).abs().max() < 24 * ROUNDING[dtype] * expected.abs().max()
    assert executor.greedy(everything) == got.argmax(-1).tolist()
    assert tokens == got[[1, 4]].argmax(-1).tolist()
    assert len(none) == 2
    for index, head in enumerate(heads):
        found, confidence = executor.exit_head(index, everything)
        state = states[head.layer][4:].to(dtype)
        normed = rms_norm_reference(state, weights.norm, weights.epsilon)[1]
        best, probability = exit_head_reference(normed, head.plain(), head.token_ids)
        assert confidence == pytest.approx(probability.tolist(), abs=48 * ROUNDING[dtype])
        sure = (probability > 0.4).tolist()
        pairs = zip(found, best.tolist(), sure, strict=True)
        assert all(a == b for a, b, clear in pairs if clear)
    executor.close()


def test_the_prompts_last_position_waits_behind_the_last_layer() -> None:
    executor, weights, _ = make()
    executor.prefill(0, IDS)
    expected = final_logits(weights, reference(weights, "llama")[3][-1:])
    assert torch.allclose(executor.logits(rows_at(0, range(8, 9))), expected, atol=1e-4)


def test_rows_one_by_one_or_together_beside_others_or_alone() -> None:
    """Bit for bit: two slots with the same prompt, one of them in small steps beside a third."""
    executor, _, _ = make("qwen3")
    for slot, length in ((0, 6), (1, 6), (2, 3)):
        executor.prefill(slot, IDS[:length])
    for step, positions in enumerate((range(6, 7), range(7, 9))):
        mine = [(0, position, IDS[position]) for position in positions]
        for index in range(3):
            executor.segment(index, StepRows.of([(2, 3 + step, 9), *mine]))
    for index in range(3):
        executor.segment(index, rows_at(1, range(6, 9)))
    small, large = rows_at(0, range(6, 9)), rows_at(1, range(6, 9))
    assert torch.equal(executor.logits(small), executor.logits(large))
    assert executor.exit_head(1, small) == executor.exit_head(1, large)


def generate(
    executor: Executor, policy: PredictionPolicy | None, drafted: list[float]
) -> dict[str, list[int]]:
    """Two answers at once, one greedy and one sampled; the early predictions go to `drafted`."""
    decoder = Decoder(executor, None if policy is None else ExitDrafter(executor, policy))
    texts: dict[str, list[int]] = {}
    for name, length, temperature in (("greedy", 3, 0.0), ("sampled", 2, 1.0)):
        texts[name] = []
        sampling = TokenSampling(temperature, 0.9, 7)
        decoder.add(Stream(name, tuple(IDS[:length]), 6, frozenset({50}), sampling))
    finished: list[str] = []
    while len(finished) < len(texts):
        for output in decoder.step():
            texts[output.id] += output.tokens
            drafted.append(output.counts.get("drafted", 0))
            finished += [output.id] * (output.finished is not None)
    return texts


def test_adadecode_is_lossless_on_these_kernels() -> None:
    executor, weights, _ = make(dtype=torch.bfloat16)
    drafted: list[float] = []
    early = generate(executor, PredictionPolicy((0.05, 0.1), 3), drafted)
    executor.close()
    assert sum(drafted) > 3
    plain = CudaExecutor(weights, shape_of("llama"), slots=3, max_len=40, rows=4)
    assert generate(plain, None, []) == early
    assert sum(map(len, early.values())) > 8


def test_the_same_texts_as_the_torch_executor() -> None:
    """In float32, where no two tokens of these texts are near enough to be swapped by rounding."""
    executor, weights, heads = make()
    reference = TorchExecutor(weights, shape_of("llama"), heads, slots=3, max_len=40)
    policy = PredictionPolicy((0.3, 0.3), 2)
    assert generate(executor, policy, []) == generate(reference, policy, [])


def test_a_model_that_drafts_is_as_sure_as_in_torch() -> None:
    """A draft model has no exits: what it holds its own token to be is the final head's."""
    weights, shape = random_weights(shape_of("llama"), torch.float32), shape_of("llama")
    found = []
    for kind in (CudaExecutor, TorchExecutor):
        executor = kind(weights, shape, slots=3, max_len=40, rows=4)
        executor.prefill(0, IDS[:4])
        here, last = rows_at(0, range(4, 6)), np.array([1], np.int32)
        sure = executor.advance(0, here, last)[1][0]
        assert 0.01 < sure < 1
        most, nobody = np.array([5], np.int32), np.empty(0, np.int32)
        for threshold in (0.9 * sure, 1.1 * sure):
            found.append((sure, executor.continued(here, last, most, threshold, nobody)))
    for (sure, drafts), (expected, same) in zip(found[:2], found[2:], strict=True):
        assert sure == pytest.approx(expected, rel=1e-4)
        assert drafts == same
    assert len(found[0][1][0]) > 0 == len(found[1][1][0])


@pytest.mark.parametrize(
    ("rows", "count"),
    [(4, 3), (4, 14), (32, 24), (4, 20)],
    ids=["by a graph", "by several", "beyond a ring", "like a prompt"],
)
def test_a_text_may_be_read_on_from_anywhere(rows: int, count: int) -> None:
    """As a draft model reads what was decoded without it."""
    executor, _, _ = make(rows=rows)
    text = [IDS[number % len(IDS)] for number in range(4 + count)]
    executor.prefill(0, text)
    executor.prefill(1, text[:4])
    executor.read(StepRows.span(1, 4, text[4:]))
    for position in (len(text) - 1, len(text)):
        ends = [StepRows.of([(slot, position, 5)]) for slot in (0, 1)]
        if position == len(text):
            for end in ends:
                executor.whole(end, np.zeros(1, np.int32))
        one, other = map(executor.logits, ends)
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(("sequences", "rows"), [(1, 16), (16, 16), (17, 32), (64, 64), (99, 64)])
def test_calls_have_a_row_for_each_sequence_up_to_what_kernels_take(
    sequences: int, rows: int
) -> None:
    assert rows_for(sequences) == rows


def test_heads_of_8_bits_are_asked_by_the_kernels_and_on_their_own() -> None:
    weights, shape = random_weights(shape_of("llama"), torch.bfloat16), shape_of("llama")
    head = in_8_bits(ExitHead(1, weights.head))
    executor = CudaExecutor(weights, shape, [head], slots=3, max_len=40, rows=4)
    executor.prefill(0, IDS[:4])
    rows, every = rows_at(0, range(4, 7)), np.arange(3, dtype=np.int32)
    tokens, sure = executor.advance(0, rows, every)
    logits = executor.logits(rows, 0).cpu()
    assert tokens == logits.argmax(-1).tolist()
    assert sure == pytest.approx(logits.softmax(-1).amax(-1).tolist(), rel=2e-2)


def test_what_does_not_fit_is_one_line() -> None:
    executor, weights, heads = make()
    with pytest.raises(EngineError, match=r"rows \[\[0, 40, 1\]\] \(slot, position, token\), or"):
        executor.segment(0, StepRows.of([(0, 40, 1)]))
    with pytest.raises(EngineError, match="go beyond"):
        executor.segment(0, StepRows.of([(3, 0, 1)]))
    with pytest.raises(EngineError, match="prompt of 41 tokens: expected 1 to 40"):
        executor.prefill(0, [1] * 41)
    with pytest.raises(EngineError, match="a prompt in slot 3 of 3"):
        executor.prefill(3, [1])
    sizes: dict[str, Any] = {"slots": 1, "max_len": 4}
    with pytest.raises(EngineError, match="rows 65: expected positive numbers, rows to 64"):
        CudaExecutor(weights, executor.architecture, heads, **sizes, rows=65)
    with pytest.raises(EngineError, match=r"exit layers \[2, 1\]: expected ascending numbers"):
        CudaExecutor(weights, executor.architecture, heads[::-1], **sizes)
    short = [replace(heads[1], matrix=heads[1].matrix[:7])]
    with pytest.raises(EngineError, match=r"layer 2: shape \[7, 48\], expected \[60, 48\]"):
        CudaExecutor(weights, executor.architecture, short, **sizes)
    elsewhere = "meta" if INTERPRETED else "cpu"
    moved = replace(weights, embedding=weights.embedding.to(elsewhere))
    with pytest.raises(EngineError, match=f"^cuda executor: runs on a .* are on {elsewhere}$"):
        CudaExecutor(moved, executor.architecture, slots=1, max_len=4)


def test_an_overflow_is_an_error_and_no_token() -> None:
    executor, weights, _ = make()
    executor.prefill(0, IDS[:4])
    weights.layers[-1].down.fill_(float("inf"))
    for index in range(3):
        executor.segment(index, rows_at(0, range(4, 5)))
    assert executor.greedy(rows_at(0, range(4, 5))) == [-1]
    shape = shape_of("llama")
    executor = CudaExecutor(weights, shape, slots=1, max_len=8, rows=4)
    decoder = Decoder(executor)
    decoder.add(Stream("a", (1, 2), 4))
    with pytest.raises(EngineError, match="request a: position 1: the final head's logits are NaN"):
        decoder.step()
