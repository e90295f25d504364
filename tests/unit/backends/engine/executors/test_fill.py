"""Keys and values of layers that a position left out: a state copied, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from backends.engine.executors.base import Executor, StepRows
from backends.engine.executors.native import NativeExecutor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import EngineError, read_architecture
from backends.engine.model.heads import ExitHead
from backends.engine.model.weights import load_weights
from harness.core.nouns import Request
from tests.support.engine.exit_streams import KINDS, Kind, kinds
from tests.support.engine.random_models import SHAPES, RandomModel, random_model
from tests.support.exits.exit_models import write_exit_model
from tests.support.exits.exit_reference import ExitReference, Rule

EXITS = 1, 3
ROOM: dict[str, Any] = {"slots": 3, "max_len": 80}


def opened(kind: Kind, model: RandomModel, exits: tuple[int, ...], threads: int = 1) -> Any:
    """Its cache full of NaN: what nobody wrote reaches no number."""
    told = {"threads": threads} if kind is NativeExecutor else {}
    run = kind(model.weights, model.architecture, model.heads(exits), **ROOM, **told)
    if kind is TorchExecutor:
        run._cache.keys.fill_(math.nan)
        run._cache.values.fill_(math.nan)
    else:
        run._cache._memory.bytes[:] = 0xFF
    return run


def leaves(place: int, exits: Sequence[int]) -> int:
    """After which segment a position leaves; the last one for those that do not."""
    return (place * place + place // 3) % (len(exits) + 1)


def decode(run: Executor, slot: int, start: int, ids: Sequence[int]) -> dict[int, torch.Tensor]:
    """One token after another, each filled at once; the logits of those that do not leave."""
    found = {}
    for place, token in enumerate(ids, start):
        rows = StepRows.span(slot, place, [token])
        depth = leaves(place, run.exits)
        for index in range(depth + 1):
            run.segment(index, rows)
        if depth < len(run.exits):
            run.fill(depth + 1, rows)
        else:
            found[place] = run.logits(rows)[0]
    return found


@kinds
def test_the_numbers_are_those_of_the_reference_of_early_exit(kind: Kind, tmp_path: Path) -> None:
    """The plain one that `vllm-early-exit` is held against, leaving by the same schedule."""
    folder, exits = write_exit_model(tmp_path / "model", "grouped"), (1, 4)
    shape = read_architecture(folder)
    weights = load_weights(folder, shape, torch.float32, "cpu")
    model = RandomModel(shape, weights)
    run = opened(kind, model, exits)
    ids = torch.randint(101, (70,), generator=torch.Generator().manual_seed(3)).tolist()
    start = 21
    depths = (*exits, shape.layers)
    schedule = tuple(depths[leaves(place, exits)] for place in range(start, len(ids)))
    reference = ExitReference(folder, Rule("schedule", schedule))
    reference.submit(Request("r", tuple(ids[:start]), len(ids)))
    reference.step({"r": (0, start)})
    run.prefill(0, ids[:start])
    found = decode(run, 0, start, ids[start:])
    assert len(found) > 10
    sequence = reference.sequences["r"]
    for place in range(start, len(ids)):
        sequence.tokens[place:] = [ids[place]]
        _, logits = reference._decode(["r"])
        sequence.filled = place + 1
        if place in found:
            expected = logits["r"]
            assert (found[place] - expected).abs().max() < 2e-4 * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_the_kernels_fill_what_torch_fills(name: str, dtype: torch.dtype) -> None:
    if len(KINDS) == 1:
        pytest.skip("no native kernels")
    model = random_model(name, dtype)
    exits = (1, model.architecture.layers - 1)
    ids = np.random.default_rng(5).integers(model.architecture.vocabulary, size=60).tolist()
    found = []
    for kind in KINDS:
        run = opened(kind, model, exits)
        run.prefill(1, ids[:29])
        found.append(decode(run, 1, 29, ids[29:]))
    slack = {torch.float32: 2e-4, torch.bfloat16: 0.06}[dtype]
    for place, expected in found[0].items():
        assert (found[1][place] - expected).abs().max() < slack * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@kinds
@pytest.mark.parametrize("name", ["llama", "one-key-head", "qwen2", "qwen3"])
def test_a_fill_does_not_depend_on_its_company(name: str, kind: Kind, dtype: torch.dtype) -> None:
    """Bit for bit: filled one at a time, or late and together with other sequences, by one thread
    or two; across position 32, where values begin a new piece of the cache."""
    model = random_model(name, dtype)
    draw = np.random.default_rng(7)
    ids = [draw.integers(model.architecture.vocabulary, size=60).tolist() for _ in range(3)]
    starts, count = (29, 17, 24), 13

    def after(together: bool, threads: int, order: tuple[int, ...]) -> torch.Tensor:
        run = opened(kind, model, (1,), threads)
        late = []
        for slot in order:
            run.prefill(slot, ids[slot][: starts[slot]])
            for place in range(starts[slot], starts[slot] + count):
                rows = StepRows.span(slot, place, [ids[slot][place]])
                run.segment(0, rows)
                late += [(slot, place, 0)]
                if not together:
                    run.fill(1, rows)
        if together:
            run.fill(1, StepRows.of(late))
        last = StepRows.of([(s, starts[s] + count, ids[s][starts[s] + count]) for s in range(3)])
        run.segment(0, last)
        run.segment(1, last)
        logits: torch.Tensor = run.logits(last)
        return logits

    alone = after(False, 1, (0, 1, 2))
    assert alone.isfinite().all()
    for threads, order in ((1, (2, 0, 1)), (2, (0, 1, 2)), (3, (1, 2, 0))):
        assert torch.equal(alone, after(True, threads, order))


@kinds
def test_what_was_filled_can_be_computed_after_all(kind: Kind) -> None:
    """The states still wait, nothing else was written: the segments give what they would have."""
    model = random_model("llama")
    ids = np.random.default_rng(9).integers(97, size=40).tolist()
    found = []
    for fills in (False, True):
        run = opened(kind, model, EXITS)
        run.prefill(0, ids[:30])
        rows = StepRows.span(0, 30, ids[30:34])
        run.segment(0, rows)
        if fills:
            run.fill(1, rows)
        run.segment(1, rows)
        if fills:
            run.fill(2, rows)
        run.segment(2, rows)
        found.append(run.logits(rows))
    assert torch.equal(*found)


@kinds
def test_the_copy_is_not_what_the_layers_compute(kind: Kind) -> None:
    model = random_model("llama", agreement=1.0)
    run = opened(kind, model, EXITS)
    run.prefill(0, [3, 4, 5])
    rows, after = StepRows.span(0, 3, [6]), StepRows.span(0, 4, [7])
    found = []
    for fills in (False, True):
        for index in range(3):
            run.segment(index, rows)
        if fills:
            run.fill(1, rows)
        for index in range(3):
            run.segment(index, after)
        found.append(run.logits(after))
    assert (found[0] - found[1]).abs().max() > 1e-3


@kinds
@pytest.mark.parametrize("index", [-1, 0, 3])
def test_nothing_leaves_where_there_is_no_exit(index: int, kind: Kind) -> None:
    run = opened(kind, random_model("llama"), EXITS)
    run.prefill(0, [3, 4, 5])
    with pytest.raises(EngineError, match=rf"boundary {index}: expected 1 to 2"):
        run.fill(index, StepRows.span(0, 3, [6]))


def test_rows_that_the_model_has_no_room_for_are_refused() -> None:
    if len(KINDS) == 1:
        pytest.skip("no native kernels")
    run = opened(NativeExecutor, random_model("llama"), EXITS)
    with pytest.raises(EngineError, match="beyond"):
        run.fill(1, StepRows.span(3, 0, [6]))


def test_the_plugin_of_vllm_fills_the_same() -> None:
    """Before rotation, position 0 being turned by nothing: the product of `Filling`."""
    filling = pytest.importorskip("backends.early_exit.fill.fill").Filling
    model = random_model("llama")
    shape, exits = model.architecture, (2,)
    layers = [
        SimpleNamespace(
            input_layernorm=SimpleNamespace(
                weight=SimpleNamespace(data=layer.input_norm), variance_epsilon=shape.epsilon
            ),
            self_attn=SimpleNamespace(
                kv_size=shape.kv_size,
                q_size=shape.query_size,
                qkv_proj=SimpleNamespace(weight=SimpleNamespace(data=layer.qkv), bias=None),
            ),
        )
        for layer in model.weights.layers
    ]
    run = TorchExecutor(model.weights, shape, [ExitHead(2, model.weights.head)], **ROOM)
    rows = StepRows.span(0, 0, [6])
    run.segment(0, rows)
    run.fill(1, rows)
    plugin, written = filling(layers, exits), []
    plugin._writer = lambda exit_layer: SimpleNamespace(write=lambda *both: written.append(both))
    plugin(2, run._boundaries[0, :1, 0], torch.zeros(1, dtype=torch.int64))
    ((both, _),) = written
    both = both.view(-1, 2, shape.kv_heads, shape.head_dim)
    assert len(both) == shape.layers - 2
    for number, (keys, values) in enumerate(both, 2):
        assert torch.allclose(run._cache.keys[number, 0, :, 0], keys, atol=1e-5)
        assert torch.allclose(run._cache.values[number, 0, :, 0], values, atol=1e-5)
