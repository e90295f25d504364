"""EAGLE-3 heads: plain decoding's text, and drafts that are the trainer's forward pass."""

from __future__ import annotations

import math

import pytest
import torch

from backends.engine.decoder import Decoder
from backends.engine.drafters.eagle import drafter as eagle
from backends.engine.drafters.eagle.drafter import EagleDrafts
from backends.engine.drafters.eagle.native_head import NativeEagle
from backends.engine.executors.base import StepRows
from backends.engine.model.architecture import EngineError
from backends.engine.model.forward import Rotary, final_logits, head_product, hidden_states
from backends.engine.sampling import GREEDY, TokenSampling, select
from backends.engine.streams import Stream
from backends.training.drafts.eagle_head import EagleHead, Texts
from tests.support.engine.eagle_heads import (
    eagle_decoder,
    open_pair,
    open_target,
    random_tensors,
    taps_of,
)
from tests.support.engine.random_models import SHAPES, RandomModel, open_executor, random_model
from tests.unit.backends.engine.drafters.test_drafters import NUCLEUS, SLOTS, requests, run

TEXT = [5, 9, 3, 40, 41, 7, 5, 9, 3, 11, 2, 60, 61, 62, 9, 30, 31, 8, 1, 77, 4, 6]
KERNELS = ["auto", "torch"]


def expected_drafts(
    model: RandomModel, text: list[int], drafts: int, sampling: TokenSampling = GREEDY
) -> list[int]:
    """By the trainer's forward pass, from the last position whose state is known."""
    weights, shape = model.weights, model.architecture
    taps = taps_of(model)
    states = hidden_states(weights, shape, torch.tensor([text[:-1]]), taps)
    head = EagleHead(shape, len(taps))
    named = random_tensors(model, len(taps))
    flat = torch.cat([named[name].flatten() for name in head.shapes]).float()
    found = list(text)
    known = len(text) - 1
    for number in range(1, drafts + 1):
        # what is drafted enters as the embedding of the next position
        tokens = found[1:]
        joined = torch.cat([states[tap] for tap in taps], dim=-1)
        padding = torch.zeros(1, len(tokens) - known, joined.shape[-1])
        texts = Texts(
            torch.cat((joined.float(), padding), dim=1),
            weights.embedding[torch.tensor([tokens])].float(),
            torch.tensor([known - 1]),
            torch.tensor([len(tokens) - known + 1]),
        )
        made = head.unrolled(flat, texts, Rotary.build(shape, len(tokens)), number)[-1]
        logits = head_product(head.normed(flat, made[0, number - 1]), weights.head.float())
        # with the noise that the token's verification will have
        found.append(select(logits, sampling, len(found)))
    return found[len(text) :]


def drafted(
    model: RandomModel, kernels: str, text: list[int], drafts: int, sampling: TokenSampling
) -> list[int]:
    """In a slot beside another stream's, after a prompt that is read at once."""
    executor, head = open_pair(model, 3, kernels)
    executor.read(StepRows.span(1, 0, text[:-1]))
    stream = Stream("a", tuple(text[:-1]), 40, sampling=sampling, slot=1)
    stream.tokens, stream.done = list(text), [len(text) - 1]
    EagleDrafts(head, drafts, 0.0).draft([stream])
    return stream.tokens[len(text) :]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("sampling", [GREEDY, NUCLEUS], ids=str)
@pytest.mark.parametrize("length", [2, 3, 17, len(TEXT)])
@pytest.mark.parametrize("name", ["llama", "one-key-head", "qwen3"])
def test_drafts_are_those_of_the_trainers_forward_pass(
    name: str, length: int, sampling: TokenSampling, kernels: str
) -> None:
    model = random_model(name)
    found = drafted(model, kernels, TEXT[:length], 5, sampling)
    assert found == expected_drafts(model, TEXT[:length], 5, sampling)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sampling", [GREEDY, NUCLEUS], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_the_text_is_plain_decodings(
    name: str, sampling: TokenSampling, dtype: torch.dtype
) -> None:
    model = random_model(name, dtype)
    vocabulary = model.architecture.vocabulary
    expected, _ = run(Decoder(open_executor(model, (), 1)), requests(vocabulary, sampling))
    for drafts in (1, 4, 15):
        decoder = eagle_decoder(model, SLOTS, drafts)
        found, total = run(decoder, requests(vocabulary, sampling))
        assert found == expected, drafts
        assert total["drafted"] > 0


@pytest.mark.parametrize("sampling", [GREEDY, NUCLEUS], ids=str)
def test_native_and_torch_draft_alike(sampling: TokenSampling) -> None:
    """Sampled drafts too, so that both take the noise of the token that is drafted."""
    model = random_model("llama")
    found = [
        run(eagle_decoder(model, SLOTS, 4, kernels), requests(97, sampling)) for kernels in KERNELS
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("kernels", KERNELS)
def test_what_is_over_and_what_fell_leaves_no_trace(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot's next stream, positions of drafts that fell, and calls that are cut in parts."""
    model = random_model("llama")
    executor, head = open_pair(model, 3, kernels)
    drafter = EagleDrafts(head, 4, 0.0)
    old = Stream("o", (7,) * 40, 40, tokens=[7] * 41, done=[40], slot=1)
    executor.read(StepRows.span(1, 0, old.tokens[:-1]))
    drafter.draft([old])
    old.finished = "stop"
    drafter.verified(old, 0)

    executor.read(StepRows.span(1, 0, TEXT[:5]))
    stream = Stream("a", tuple(TEXT[:5]), 40, tokens=TEXT[:6], done=[5], slot=1)
    drafter.draft([stream])
    assert stream.tokens[6:] == expected_drafts(model, TEXT[:6], 4)
    stream.tokens[6:] = TEXT[6:8]  # others came, and were verified
    executor.segment(0, StepRows.span(1, 5, TEXT[5:7]))
    stream.done = [7]
    drafter.verified(stream, 0)
    drafter.draft([stream])
    assert stream.tokens[8:] == expected_drafts(model, TEXT[:8], 4)
    stream.tokens[8:] = TEXT[8:]  # decoded without drafts for a while
    executor.segment(0, StepRows.span(1, 7, TEXT[7:-1]))
    stream.done = [len(TEXT) - 1]
    executor.read(StepRows.span(2, 0, TEXT[:9]))
    other = Stream("b", tuple(TEXT[:9]), 40, tokens=TEXT[:10], done=[9], slot=2)
    monkeypatch.setattr(eagle, "AT_ONCE", 10)
    drafter.draft([stream, other])
    assert stream.tokens[len(TEXT) :] == expected_drafts(model, TEXT, 4)
    assert other.tokens[10:] == expected_drafts(model, TEXT[:10], 4)
    drafter.reset()
    stream.tokens[len(TEXT) :] = ()
    drafter.draft([stream])
    assert stream.tokens[len(TEXT) :] == expected_drafts(model, TEXT, 4)


def test_more_rows_than_one_call_takes() -> None:
    """Many prompts that are drafted from for the first time, none of them long."""
    model = random_model("llama")
    executor, head = open_pair(model, 20)
    text, streams = TEXT[:15], []
    for slot in range(20):
        executor.read(StepRows.span(slot, 0, text[:-1]))
        stream = Stream(str(slot), tuple(text[:-1]), 40, tokens=list(text), done=[14], slot=slot)
        streams.append(stream)
    assert sum(len(stream.tokens) - 1 for stream in streams) > eagle.AT_ONCE
    EagleDrafts(head, 3, 0.0).draft(streams)
    expected = text + expected_drafts(model, text, 3)
    assert all(stream.tokens == expected for stream in streams)


def test_a_head_that_is_not_sure_stops() -> None:
    model = random_model("llama")
    drafts = []
    for threshold in (0.0, 0.2, 1.1):
        executor, head = open_pair(model, SLOTS)
        _, total = run(Decoder(executor, EagleDrafts(head, 8, threshold)), requests(97, GREEDY))
        drafts.append(total["drafted"])
    assert drafts[0] > drafts[1] > drafts[2] == 0


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_states_are_those_of_the_model_and_cost_it_no_bit(
    kernels: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a prompt in pieces and of steps; logits with and without are the same."""
    monkeypatch.setattr("backends.engine.executors.torch.TorchExecutor.piece", 8)
    model = random_model("llama", dtype)
    kept, logits = None, []
    for keeps in (True, False):
        executor = open_target(model, 3, kernels)
        if keeps:
            kept = executor.keep_states(taps_of(model))
        executor.read(StepRows.span(2, 0, TEXT[:18]))
        logits.append(executor.logits(StepRows.span(2, 17, TEXT[17:18])))
        rows = StepRows.span(2, 18, TEXT[18:])
        executor.segment(0, rows)
        logits.append(executor.logits(rows))
    assert torch.equal(logits[0], logits[2])
    assert torch.equal(logits[1], logits[3])
    assert kept is not None
    ids = torch.tensor([TEXT])
    expected = hidden_states(model.weights, model.architecture, ids, taps_of(model))
    for place, tap in enumerate(taps_of(model)):
        found, wanted = kept[2, : len(TEXT), place].float(), expected[tap][0].float()
        error = float((found - wanted).abs().max() / wanted.abs().max())
        assert error < (1e-5 if dtype == torch.float32 else 0.03), tap
        assert not kept[1, : len(TEXT)].any(), "the states of another slot"
    last = final_logits(model.weights, kept[2, len(TEXT) - 1, 0].to(dtype))
    assert math.isclose(float(last.max()), float(logits[1][-1].max()), rel_tol=0.02)


def test_misuse_is_refused() -> None:
    model = random_model("llama")
    executor, head = open_pair(model, 1)
    for kind in (executor, open_target(model, 1, "torch")):
        with pytest.raises(EngineError, match="expected different ones, 0 to 6"):
            kind.keep_states([1, 7])
        with pytest.raises(EngineError, match="expected different ones, 0 to 6"):
            kind.keep_states([1, 1])
    if isinstance(head, NativeEagle):
        rows = StepRows.span(0, 1, [1] * 300)
        with pytest.raises(ValueError, match="300 rows; expected at most 256"):
            head.continued(rows, rows.slots[:1], rows.slots[:1], 0.0, rows.slots[:0])
