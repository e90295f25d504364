"""States that the CUDA executor keeps, and EAGLE-3 heads that read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from backends.engine.decoder import Decoder
from backends.engine.drafters.eagle.cuda_head import CudaEagle
from backends.engine.drafters.eagle.drafter import EagleDrafts
from backends.engine.drafters.eagle.torch_head import TorchEagle
from backends.engine.draws import Draws
from backends.engine.executors import cuda
from backends.engine.executors.base import StepRows
from backends.engine.executors.cuda import CudaExecutor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import EngineError
from backends.engine.model.heads import ExitHead
from backends.engine.sampling import GREEDY, TokenSampling
from backends.engine.streams import Stream
from backends.engine.sublayers.sets import Sublayers
from tests.kernels.test_cuda_executor import IDS, random_weights, shape_of
from tests.support.engine.eagle_heads import drawn_eagle
from tests.support.engine.exit_streams import run
from tests.support.engine.kernel_cases import DEVICE

TAPS = (3, 0, 2)
LONG = [IDS[n % len(IDS)] for n in range(35)]
ROOM: dict[str, Any] = {"slots": 4, "max_len": 60, "rows": 4}
NO_ROWS = np.empty(0, np.int32)


def mixed() -> list[Stream]:
    """Four texts after prompts of different lengths: every other one is sampled."""
    return [
        Stream(
            str(number),
            tuple(LONG[number : number + length]),
            8 + number,
            frozenset({50}),
            TokenSampling(0.9, 0.9, number) if number % 2 else GREEDY,
        )
        for number, length in enumerate((3, 11, 1, 7))
    ]


def every_pass(executor: CudaExecutor | TorchExecutor) -> list[Tensor]:
    """Short prompts together, a long one, a text that is read on in steps and at once, segments and
    whole passes of more rows than a call has; the logits after each."""
    short = [StepRows.span(0, 0, LONG[:3]), StepRows.span(1, 0, LONG[:11])]
    executor.read(StepRows.joined([*short, StepRows.span(2, 0, LONG)]))
    executor.read(StepRows.span(1, 11, LONG[11:20]))
    executor.read(StepRows.span(0, 3, LONG[3:33]))
    found = [executor.logits(StepRows.of([(0, 32, 1), (1, 19, 1), (2, 34, 1)]))]
    rows = StepRows.joined([StepRows.span(0, 33, IDS[:5]), StepRows.span(2, 35, IDS[:2])])
    for index in range(len(executor.exits) + 1):
        executor.segment(index, rows)
    found.append(executor.logits(rows))
    after = StepRows.span(1, 20, IDS[:6])
    executor.whole(after, NO_ROWS)
    return [logits.cpu() for logits in (*found, executor.logits(after))]


@pytest.mark.parametrize(
    ("exits", "dtype"), [((), torch.float32), ((1, 2), torch.bfloat16)], ids=str
)
def test_states_are_the_models_and_cost_it_no_bit(exits: Sequence[int], dtype: torch.dtype) -> None:
    weights, shape = random_weights(shape_of("llama"), dtype), shape_of("llama")
    heads = [ExitHead(layer, weights.head) for layer in exits]
    tapped, plain = (CudaExecutor(weights, shape, heads, **ROOM) for _ in range(2))
    reference = TorchExecutor(weights, shape, heads, **ROOM)
    states, expected = (executor.keep_states(TAPS) for executor in (tapped, reference))
    assert states.shape[1:] == expected.shape[1:]
    with_states, without = every_pass(tapped), every_pass(plain)
    assert all(map(torch.equal, with_states, without))
    every_pass(reference)
    got, wanted = states[:3].float().cpu(), expected[:3].float().cpu()
    size = wanted.abs().amax()
    assert (got - wanted).abs().max() < (1e-5 if dtype == torch.float32 else 0.03) * size
    assert got[[0, 1, 2], [37, 25, 36]].abs().amin() > 0, "the last position of each"
    assert not states[3].any(), "a slot that nothing ran in"


def test_views_that_come_later_keep_states_and_what_comes_first_goes_on() -> None:
    """A view without sublayers keeps what its own rows compute; states that are asked for amid
    decoding cost the texts under way nothing."""
    weights, shape = random_weights(shape_of("qwen3"), torch.float32), shape_of("qwen3")
    room: dict[str, Any] = {"slots": 2, "max_len": 24, "rows": 4}
    tapped, plain = (CudaExecutor(weights, shape, **room) for _ in range(2))
    for executor in (tapped, plain):
        executor.prefill(0, IDS[:5])
        executor.segment(0, StepRows.span(0, 5, IDS[5:6]))
    states = tapped.keep_states([0, 1, 2, 3])
    rows = StepRows.span(0, 6, IDS[6:8])
    for executor in (tapped, plain):
        executor.segment(0, rows)
    assert torch.equal(tapped.logits(rows), plain.logits(rows))
    assert not states[0, :6].any()
    for left_out in (
        Sublayers(frozenset({1}), frozenset({0, 1, 2})),
        Sublayers(frozenset({0, 2}), frozenset({0, 2})),
    ):
        tapped.skipping(left_out).segment(0, StepRows.span(1, 0, IDS[:3]))
        found = states[1, :3]
        for number in range(3):
            same = number in left_out.attention and number in left_out.mlp
            assert torch.equal(found[:, number], found[:, number + 1]) == same, number
        reference = TorchExecutor(weights, shape, **room)
        kept = reference.keep_states([0, 1, 2, 3])
        reference.skipping(left_out).segment(0, StepRows.span(1, 0, IDS[:3]))
        assert torch.allclose(found.cpu(), kept[1, :3].cpu(), atol=1e-4)


def test_what_was_captured_is_captured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph goes on writing what it wrote when it was made."""
    weights, shape = random_weights(shape_of("llama"), torch.float32), shape_of("llama")
    executor = CudaExecutor(weights, shape, [ExitHead(1, weights.head)], **ROOM)
    executor.prefill(0, LONG[:3])
    before, made = executor.logits(StepRows.span(0, 2, LONG[2:3])), list[int]()

    def first_run(runs: Sequence[Callable[[], None]], _: torch.device) -> list[Callable[[], None]]:
        made.append(len(runs))
        for one in runs:
            one()
        return list(runs)

    monkeypatch.setattr(cuda, "INTERPRETED", False)
    monkeypatch.setattr(cuda, "capture", first_run)
    states = executor.keep_states([1, 3])
    assert made == [2, 1], "both segments, and prompts"
    assert not states[: ROOM["slots"]].any()
    assert torch.equal(executor.logits(StepRows.span(0, 2, LONG[2:3])), before)


def test_layers_that_there_are_not_are_refused() -> None:
    weights, shape = random_weights(shape_of("llama"), torch.float32), shape_of("llama")
    executor = CudaExecutor(weights, shape, **ROOM)
    for layers in ([1, 4], [2, 2]):
        with pytest.raises(EngineError, match="expected different ones, 0 to 3"):
            executor.keep_states(layers)


def test_a_head_drafts_as_it_does_in_torch() -> None:
    """Greedy and sampled, after more positions than a call or a boundary holds and after some, with
    a chain that goes on and one that ends before."""
    weights, shape = random_weights(shape_of("llama"), torch.float32), shape_of("llama")
    executor = CudaExecutor(weights, shape, **ROOM)
    beside = drawn_eagle(shape, 3, torch.float32, DEVICE), weights, shape
    states = executor.keep_states(TAPS)
    executor.read(StepRows.joined([StepRows.span(0, 0, LONG[:25]), StepRows.span(2, 0, LONG[:6])]))
    rows = StepRows.joined([StepRows.span(0, 22, LONG[22:26]), StepRows.span(2, 1, LONG[1:7])])
    wanted, most = np.array([3, 9], np.int32), np.array([5, 3], np.int32)
    draws = Draws([TokenSampling(1.0, 0.9, seed) for seed in (3, 4)])
    found = []
    for head in (
        CudaEagle(*beside, states, **ROOM),
        TorchEagle(*beside, states, slots=ROOM["slots"], max_len=ROOM["max_len"]),
    ):
        for how, threshold in ((None, 0.0), (draws, 0.0), (None, 0.4)):
            head.catch_up(StepRows.span(0, 1, LONG[1:22]))
            found.append(head.continued(rows, wanted, most, threshold, NO_ROWS, how))
    assert found[:3] == found[3:]
    assert [*map(len, found[0])] == [*map(len, found[1])] == [5, 3]
    assert found[0] != found[1]
    assert 0 < sum(map(len, found[2])) < 8


def test_drafts_of_a_head_leave_every_text_as_it_is() -> None:
    weights, shape = random_weights(shape_of("llama"), torch.bfloat16), shape_of("llama")
    executor, plain = (CudaExecutor(weights, shape, **ROOM) for _ in range(2))
    own = drawn_eagle(shape, len(TAPS), torch.bfloat16, DEVICE)
    beside = own, weights, shape, executor.keep_states(TAPS)
    head = CudaEagle(*beside, **ROOM)
    texts, counts = run(Decoder(executor, EagleDrafts(head, 3, 0.0)), mixed())
    assert texts == run(Decoder(plain), mixed())[0]
    assert counts["drafted"] > 10
