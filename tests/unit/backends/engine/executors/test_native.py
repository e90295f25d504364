"""The C++ kernels: the same numbers as plain torch, and each row by itself."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from backends.engine.draws import Draws
from backends.engine.executors.base import StepRows
from backends.engine.executors.stepwise import continue_by_steps
from backends.engine.model.architecture import EngineError
from backends.engine.model.forward import final_logits, hidden_states
from backends.engine.sampling import TokenSampling
from backends.kernels.cpu import native
from tests.support.engine.random_models import SHAPES, RandomModel, random_model

try:
    native.library()
except native.NativeUnavailableError as error:
    pytest.skip(f"no native kernels: {error}", allow_module_level=True)

from backends.engine.executors.native import NativeExecutor

TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 0.06, torch.float16: 0.01}


def executor(model: RandomModel, exits: tuple[int, ...] = (), **room: int) -> NativeExecutor:
    settings = {"slots": 3, "max_len": 300, "threads": 1} | room
    return NativeExecutor(model.weights, model.architecture, model.heads(exits), **settings)


def truth(model: RandomModel, ids: list[int]) -> torch.Tensor:
    """(time, vocabulary) logits in float32 of the model's own (rounded) weights."""
    shape = model.architecture
    hidden = hidden_states(model.weights, shape, torch.tensor([ids]), (shape.layers,))
    return final_logits(model.weights, hidden[shape.layers])[0].float()


def span(slot: int, ids: list[int], start: int, end: int) -> list[tuple[int, int, int]]:
    return [(slot, position, ids[position]) for position in range(start, end)]


def tokens(model: RandomModel, count: int, seed: int = 1) -> list[int]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.architecture.vocabulary, (count,), generator=draw).tolist()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_those_of_plain_torch(name: str, dtype: torch.dtype) -> None:
    model = random_model(name, dtype)
    ids = tokens(model, 280)
    expected = truth(model, ids)
    run = executor(model, (1,))
    for start, end in ((0, 250), (250, 251), (251, 257), (257, 270)):
        rows = StepRows.of(span(1, ids, max(start, end - 13), end))
        if start == 0:
            run.prefill(1, ids[:end])
            rows = StepRows.of(span(1, ids, end - 1, end))
        else:
            run.segment(0, rows)
            run.segment(1, rows)
        found = run.logits(rows)
        error = (found - expected[rows.positions.tolist()]).abs().max()
        assert error < TOLERANCE[dtype] * expected.abs().max()
        assert run.greedy(rows) == found.argmax(1).tolist()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", ["llama", "one-key-head", "odd-vocabulary-wide"])
def test_a_row_does_not_depend_on_its_company(name: str, dtype: torch.dtype) -> None:
    """Bit for bit, whatever the number of rows, their order of sequences, and the threads."""
    model = random_model(name, dtype)
    ids = [tokens(model, 200, seed) for seed in range(3)]

    def logits(together: int, threads: int, order: tuple[int, ...]) -> torch.Tensor:
        run = executor(model, threads=threads)
        lengths = (140, 17, 1)
        for slot in order:
            run.prefill(slot, ids[slot][: lengths[slot]])
        found = {}
        for start in range(0, 12, together):
            rows = StepRows.of(
                [
                    row
                    for slot in order
                    for row in span(
                        slot, ids[slot], lengths[slot] + start, lengths[slot] + start + together
                    )
                ]
            )
            run.segment(0, rows)
            for slot, position, row in zip(
                rows.slots, rows.positions, run.logits(rows), strict=True
            ):
                found[int(slot), int(position)] = row
        return torch.stack([found[key] for key in sorted(found)])

    alone = logits(1, 1, (0, 1, 2))
    for together, threads, order in ((2, 2, (2, 0, 1)), (3, 1, (1, 2, 0)), (12, 2, (0, 2, 1))):
        assert torch.equal(alone, logits(together, threads, order))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_an_exit_head_gives_the_top_of_its_own_softmax(dtype: torch.dtype) -> None:
    model = random_model("odd-vocabulary-wide", dtype)
    ids = tokens(model, 30)
    run = executor(model, (2,))
    run.prefill(0, ids[:20])
    rows = StepRows.of(span(0, ids, 20, 30))
    found = run.advance(0, rows, np.arange(10, dtype=np.int32))
    hidden = hidden_states(model.weights, model.architecture, torch.tensor([ids]), (2,))[2]
    logits = final_logits(model.weights, hidden)[0, 20:].float()
    confidence, token = logits.softmax(-1).max(-1)
    close = np.abs(np.array(found[1]) - confidence.numpy())
    assert close.max() < 20 * TOLERANCE[dtype]
    if dtype == torch.float32:
        assert found[0] == token.tolist()
    assert run.exit_head(0, rows) == found
    assert run.advance(0, rows, np.array([3, 9], np.int32))[0] == [found[0][3], found[0][9]]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", ["llama", "one-key-head"])
def test_a_prompt_read_in_pieces_beside_others_gives_the_same_bits(
    name: str, dtype: torch.dtype
) -> None:
    model = random_model(name, dtype)
    ids = [tokens(model, count, count) for count in (200, 61)]
    whole, pieces = executor(model, (2,)), executor(model, (2,))
    for slot in range(2):
        whole.prefill(slot, ids[slot])
    for bounds in ((0, 1, 0, 60), (1, 130, 60, 60), (130, 139, 60, 61), (139, 200, 61, 61)):
        rows = [*span(0, ids[0], *bounds[:2]), *span(1, ids[1], *bounds[2:])]
        pieces.read(StepRows.of(rows))
    for run in (whole, pieces):
        rows = [(0, 200, 5), (0, 201, 6), (1, 61, 7)]
        for index in range(2):
            run.segment(index, StepRows.of(rows))
    last = StepRows.of([(0, 201, 6), (1, 61, 7)])
    assert torch.equal(whole.logits(last), pieces.logits(last))
    whole.prefill(2, ids[1])
    pieces.read(StepRows.span(2, 0, ids[1][:40]))
    pieces.read(StepRows.span(2, 40, ids[1][40:]))
    end = StepRows.of([(2, 60, ids[1][60])])
    assert torch.equal(whole.logits(end), pieces.logits(end)), "its last row is in the boundary"


def test_many_rows_are_run_in_parts() -> None:
    model = random_model("llama")
    ids = tokens(model, 6)
    run = executor(model, slots=150)
    for slot in range(150):
        run.prefill(slot, ids[:3])
    rows = StepRows.of([(slot, 3, ids[3]) for slot in range(150)])
    chosen, _ = run.advance(0, rows, np.arange(0, 150, 7, dtype=np.int32))
    assert len(chosen) == 22
    assert len(set(chosen)) == 1
    assert torch.equal(*run.logits(rows)[[0, 149]])


def test_stale_and_unwritten_cache_rows_are_never_read() -> None:
    """The cache starts as whatever the memory held; NaN there must not reach a result."""
    model = random_model("qwen3")
    run = executor(model)
    for layer in range(model.architecture.layers):
        for address in (run._model.layers[layer].keys, run._model.layers[layer].values):
            ctypes.memset(address, 0xFF, 4 * 2 * 304 * model.architecture.head_dim * 4)
    ids = tokens(model, 40)
    run.prefill(2, ids[:39])
    run.segment(0, rows := StepRows.of(span(2, ids, 39, 40)))
    expected = truth(model, ids)[39]
    assert (run.logits(rows)[0] - expected).abs().max() < 2e-4 * expected.abs().max()


def test_sizes_that_do_not_fit_are_refused() -> None:
    model = random_model("llama")
    odd = replace(model.architecture, head_dim=10)
    with pytest.raises(EngineError, match="head_dim 10: the native kernels need a multiple of 16"):
        NativeExecutor(model.weights, odd, slots=1, max_len=8)


def test_rows_that_the_model_has_no_room_or_token_for_are_refused() -> None:
    """Before memory that is not the model's is read."""
    run = executor(random_model("llama"), max_len=40)
    for row in ((3, 0, 1), (0, 40, 1), (0, 0, 97), (-1, 0, 1), (0, -1, 1), (0, 0, -1)):
        said = rf"rows \[\[{row[0]}, {row[1]}, {row[2]}\]\] .* go beyond \[3, 40, 97\]"
        with pytest.raises(EngineError, match=said):
            run.segment(0, StepRows.of([row]))
        with pytest.raises(EngineError, match=said):
            run.logits(StepRows.of([row]))
    rows, ones = StepRows.of([(0, 38, 1)]), np.ones(1, np.int32)
    warm = Draws([TokenSampling(1.0)])
    assert len(run.continued(rows, ones * 0, ones * 2, -1.0, ones[:0])[0]) == 2
    with pytest.raises(EngineError, match="or what continues them"):
        run.continued(rows, ones * 0, ones * 3, -1.0, ones[:0], warm)
    with pytest.raises(EngineError, match="or what continues them"):
        run.continued(rows, ones * 0, ones * 3, -1.0, ones[:0])


@pytest.mark.parametrize("count", [0, 301])
def test_a_prompt_that_does_not_fit_is_refused(count: int) -> None:
    with pytest.raises(EngineError, match=f"prompt of {count} tokens: expected 1 to 300"):
        executor(random_model("llama")).prefill(0, [1] * count)


def test_what_lies_beside_the_sources_is_no_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python's own cache lies there, and an editor's swap file may."""
    real = native.library()
    sources = tmp_path / "cpu"
    shutil.copytree(native.SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    (sources / "__pycache__").mkdir()
    (sources / ".library.cpp.swp").write_bytes(b"\xff\xfe")
    monkeypatch.setattr(native, "SOURCES", sources)
    assert native.library.__wrapped__()._name == real._name


@pytest.mark.parametrize("sampled", [False, True])
def test_continuations_in_one_call_are_those_of_many(sampled: bool) -> None:
    """Whatever ends them: their number, a token that is not sure enough, a stop token."""
    model = random_model("llama", torch.bfloat16)
    ways = [TokenSampling(0.3, 0.9, 1), TokenSampling(1e-308), TokenSampling(1.5, seed=2)]
    draws = Draws(ways) if sampled else None
    rows = StepRows.of([(0, 0, 5), (0, 1, 6), (1, 0, 7), (2, 0, 9)])
    wanted, most = np.array([1, 2, 3], np.int32), np.array([3, 7, 1], np.int32)
    free = executor(model).continued(rows, wanted, most, 0.0, np.empty(0, np.int32), draws)
    assert [len(tokens) for tokens in free] == most.tolist()
    for threshold, stops in ((0.0, ()), (0.05, ()), (2.0, ()), (0.0, (free[1][2], 96))):
        ends = np.array(stops, np.int32)
        one, many = executor(model), executor(model)
        found = one.continued(rows, wanted, most, threshold, ends, draws)
        assert found == continue_by_steps(many, rows, wanted, most, threshold, ends, draws)
        again = StepRows.of([(1, 1, 3)])
        assert one.advance(0, again, wanted[:1] * 0) == many.advance(0, again, wanted[:1] * 0)
    assert found[1] == free[1][:2]
