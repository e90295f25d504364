"""The C++ products and attention on every instruction set that this processor has: torch's numbers,
and each row's own, bit for bit, however many rows there are and however a prompt is cut."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from backends.engine.executors.base import StepRows
from backends.engine.executors.native import MOST_ROWS, NativeExecutor
from backends.engine.model.forward import final_logits, hidden_states
from backends.kernels.cpu import native, native_checks
from tests.support.engine import random_models
from tests.support.engine.random_models import RandomModel, random_model

pytestmark = pytest.mark.skipif(not native_checks.available(), reason="no C++ compiler here")

NO_TILES = ("-mno-amx-tile", "-mno-amx-bf16")
NO_BF16 = (*NO_TILES, "-mno-avx512bf16")
BUILDS = {
    "amx": (),
    "avx512bf16": NO_TILES,
    "avx512": NO_BF16,
    "avx2": ("-march=x86-64-v3",),
    "generic": ("-march=x86-64",),
}
BF16 = torch.bfloat16
LENGTH = 330
"""Of a prompt that takes more than one call."""
SHAPES = {
    # inputs of 16 more than a multiple of 32, odd numbers of blocks
    "halves": replace(
        random_models.BASE, width=80, feed_forward=112, heads=5, kv_heads=5, head_dim=16, layers=2
    ),
    "whole": replace(
        random_models.BASE, width=128, feed_forward=352, heads=6, kv_heads=2, head_dim=64, layers=2
    ),
    "one-key-head": replace(
        random_models.BASE, width=96, heads=3, kv_heads=1, head_dim=48, layers=2
    ),
}


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The kernels compiled for less than this processor has."""
    name: str = request.param
    monkeypatch.setattr(native, "FLAGS", (*native.FLAGS, *BUILDS[name]))
    native.library.cache_clear()
    try:
        found = native.library().instructions().decode()
        if found != name:
            pytest.skip(f"this processor and compiler give {found}")
        yield name
    finally:
        native.library.cache_clear()


@pytest.fixture(params=SHAPES)
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RandomModel:
    monkeypatch.setattr(random_models, "SHAPES", SHAPES)
    return random_model(request.param, BF16)


def executor(model: RandomModel, threads: int = 1, slots: int = 2) -> NativeExecutor:
    return NativeExecutor(
        model.weights, model.architecture, threads=threads, slots=slots, max_len=LENGTH + 6
    )


def tokens(model: RandomModel, count: int, seed: int = 1) -> list[int]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.architecture.vocabulary, (count,), generator=draw).tolist()


def read(run: NativeExecutor, ids: list[int], cuts: Sequence[int]) -> torch.Tensor:
    """The logits of the last 8 tokens of a prompt that is read in pieces."""
    for start, end in zip((0, *cuts), (*cuts, len(ids)), strict=True):
        run.segment(0, StepRows([1] * (end - start), range(start, end), ids[start:end]))
    places = range(len(ids) - 8, len(ids))
    return run.logits(StepRows([1] * 8, places, ids[-8:]))


def test_numbers_are_those_of_torch(build: str, model: RandomModel) -> None:
    ids = tokens(model, LENGTH)
    shape = model.architecture
    hidden = hidden_states(model.weights, shape, torch.tensor([ids]), (shape.layers,))
    expected = final_logits(model.weights, hidden[shape.layers])[0, -8:].float()
    run = executor(model)
    assert run.kernels == f"native-{build}"
    found = read(run, ids, ())
    assert (found - expected).abs().max() < 0.06 * expected.abs().max()


def test_a_prompt_may_be_cut_anywhere_and_threads_may_be_many(
    build: str, model: RandomModel
) -> None:
    assert LENGTH > MOST_ROWS
    ids = tokens(model, LENGTH)
    whole = read(executor(model), ids, ())
    for cuts, threads in (
        ((), 2),
        ((1, 2, 18, 82, 147, LENGTH - 1), 1),
        ((200, 263), 3),
        (range(16, LENGTH, 16), 2),
    ):
        assert torch.equal(whole, read(executor(model, threads), ids, cuts)), (cuts, threads)


def test_a_row_is_the_same_in_every_number_of_rows(build: str, model: RandomModel) -> None:
    """The first sequence's row, and the last's, in batches of other sequences."""
    many = 64
    run = executor(model, slots=many)
    lengths = [1 + 7 * slot % 190 for slot in range(many)]
    ids = [tokens(model, 200, slot) for slot in range(many)]
    for slot in range(many):
        run.prefill(slot, ids[slot][: lengths[slot]])

    def logits(slots: Sequence[int]) -> torch.Tensor:
        rows = StepRows.of([(s, lengths[s], ids[s][lengths[s]]) for s in slots])
        run.segment(0, rows)
        return run.logits(rows)

    alone = torch.cat([logits([slot]) for slot in range(many)])
    for count in (2, 3, 7, 8, 15, 16, 17, 31, 33, 47, 49, 64):
        assert torch.equal(logits(range(count)), alone[:count]), count
        backwards = range(many - 1, many - 1 - count, -1)
        assert torch.equal(logits(backwards), alone[list(backwards)]), count


def test_what_memory_held_before_reaches_no_number(build: str, model: RandomModel) -> None:
    """NaN in the cache and in the scratch memory, also beside a tile's last row."""
    shape = model.architecture
    ids = tokens(model, 35)
    clean = read(executor(model), ids, (34,))
    run = executor(model)
    length = run._model.max_len
    size = 3 * shape.kv_heads * length * shape.head_dim * BF16.itemsize
    for layer in range(shape.layers):
        for address in (run._model.layers[layer].keys, run._model.layers[layer].values):
            ctypes.memset(address, 0xFF, size)
    ctypes.memset(run._model.own, 0xFF, run._model.own_bytes)
    shared, own = ctypes.c_int64(), ctypes.c_int64()
    at = ctypes.addressof
    run._library.scratch_bytes(at(run._model), MOST_ROWS, at(shared), at(own))
    ctypes.memset(run._model.shared, 0xFF, shared.value)
    assert torch.equal(read(run, ids, (34,)), clean)


def test_a_system_that_gives_no_tiles_gets_the_vectors(model: RandomModel) -> None:
    library = native.library()
    if library.instructions() != b"amx":
        pytest.skip("this processor has no matrix tiles (AMX)")
    ids = tokens(model, LENGTH)
    tiled = read(executor(model), ids, ())
    try:
        assert library.use_tiles(0) == 0
        assert library.instructions() == b"avx512bf16"
        vectors = read(executor(model), ids, ())
    finally:
        assert library.use_tiles(1) == 1
    assert not torch.equal(tiled, vectors)
    assert (tiled - vectors).abs().max() < 0.06 * tiled.abs().max()
