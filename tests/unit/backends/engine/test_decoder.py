"""AdaDecode gives plain decoding's text, whatever the thresholds, drafts, model and company."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.decoder import Decoder
from backends.engine.drafters.exits import ExitDrafter, PredictionPolicy
from backends.engine.sampling import TokenSampling, select
from backends.engine.streams import Output, Stream
from tests.support.engine.random_models import SHAPES, RandomModel, open_executor, random_model

GREEDY = TokenSampling()
Texts = dict[str, tuple[list[int], str | None]]
"""Tokens and the reason for their end, by request."""


def streams(model: RandomModel, count: int, sampling: TokenSampling = GREEDY) -> list[Stream]:
    """Prompts and answers of several lengths, some of which meet a stop token."""
    draw = torch.Generator().manual_seed(5)
    made = []
    for number in range(count):
        length = 1 + 7 * number % 23
        ids = torch.randint(0, model.architecture.vocabulary, (length,), generator=draw)
        stops = frozenset(range(number % 3 * 4))
        limit = (1, 2, 30, 41)[number % 4]
        made.append(Stream(f"r{number}", tuple(ids.tolist()), limit, stops, sampling))
    return made


def run(decoder: Decoder, requests: Iterable[Stream]) -> dict[str, list[Output]]:
    for request in requests:
        decoder.add(request)
    found: dict[str, list[Output]] = {}
    while outputs := decoder.step():
        for output in outputs:
            found.setdefault(output.id, []).append(output)
    return found


def early_decoder(
    model: RandomModel, exits: tuple[int, ...], policy: PredictionPolicy, slots: int = 4
) -> Decoder:
    executor = open_executor(model, exits, slots)
    return Decoder(executor, ExitDrafter(executor, policy))


def texts(found: dict[str, list[Output]]) -> Texts:
    return {
        name: ([t for output in outputs for t in output.tokens], outputs[-1].finished)
        for name, outputs in found.items()
    }


def plain(model: RandomModel, sampling: TokenSampling = GREEDY) -> Texts:
    """One sequence at a time, one row at a time: no batching, no exits."""
    found: Texts = {}
    for stream in streams(model, 8, sampling):
        found |= texts(run(Decoder(open_executor(model, (), 1)), [stream]))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_every_threshold_and_number_of_drafts_gives_the_same_text(
    name: str, dtype: torch.dtype
) -> None:
    model = random_model(name, dtype)
    depth = model.architecture.layers
    for sampling in (GREEDY, TokenSampling(0.8, 0.9, seed=11)):
        expected = plain(model, sampling)
        early: Counter[str] = Counter()
        for number, (gamma, drafts) in enumerate(
            itertools.product((0.0, 0.1, 0.3, 0.6, 0.9, 1.0), (1, 2, 5, 8))
        ):
            exits = ((1,), (1, depth - 1), tuple(range(1, depth)))[number % 3]
            policy = PredictionPolicy((gamma,) * len(exits), drafts)
            decoder = early_decoder(model, exits, policy)
            found = run(decoder, streams(model, 8, sampling))
            assert texts(found) == expected
            for output in itertools.chain.from_iterable(found.values()):
                early.update(output.counts)
        assert 0 < early["accepted"] < early["drafted"]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_policy_is_lossless(data: st.DataObject) -> None:
    model = random_model("llama", torch.bfloat16, agreement=data.draw(st.sampled_from((0.1, 1.0))))
    exits = tuple(sorted(data.draw(st.sets(st.integers(1, 5), min_size=1))))
    gammas = tuple(data.draw(st.floats(0, 1)) for _ in exits)
    policy = PredictionPolicy(gammas, data.draw(st.integers(0, 8)))
    temperature = data.draw(st.sampled_from((0.0, 0.5, 1.5)))
    sampling = TokenSampling(temperature, seed=data.draw(st.integers(0, 3)))
    decoder = early_decoder(model, exits, policy, data.draw(st.integers(1, 4)))
    baseline = Decoder(open_executor(model, ()))
    expected = texts(run(baseline, streams(model, 6, sampling)))
    assert texts(run(decoder, streams(model, 6, sampling))) == expected


def test_counts_add_up() -> None:
    model = random_model("llama")
    decoder = early_decoder(model, (2, 4), PredictionPolicy((0.2, 0.4), 3))
    for name, outputs in run(decoder, streams(model, 8)).items():
        total: Counter[str] = Counter()
        for output in outputs:
            total.update(output.counts)
        length = sum(len(output.tokens) for output in outputs)
        assert outputs[0].counts == {}  # the prompt's pass is not counted
        assert len(outputs[0].tokens) == 1
        assert total["step_tokens"] == length - 1, name
        assert total["layers_total"] == 6 * (length - 1)
        assert total["early_predictions"] == total["drafted"]
        assert total["exits_layer_2"] + total["exits_layer_4"] == total["drafted"]
        assert total["accepted_layer_2"] + total["accepted_layer_4"] == total["accepted"]
        assert total["steps"] == len(outputs) - 1
        # each draft runs the layers up to its exit, each full pass all of them
        early = 2 * total["exits_layer_2"] + 4 * total["exits_layer_4"]
        assert total["layers_run"] == early + 6 * total["steps"]
        assert total["accepted"] + total["steps"] == length - 1


def test_in_a_larger_batch_nothing_is_predicted_early() -> None:
    model = random_model("llama")
    drafted = {}
    for most in (None, 2, 1):
        decoder = early_decoder(model, (2,), PredictionPolicy((0.0,), 3, max_batch=most))
        requests = [Stream(name, (5, index), 20) for index, name in enumerate("abc")]
        found = run(decoder, requests)
        total: Counter[str] = Counter()
        for output in itertools.chain.from_iterable(found.values()):
            total.update(output.counts)
        drafted[most] = total["drafted"]
        assert texts(found) == texts(
            run(
                Decoder(open_executor(model, ())),
                [Stream(name, (5, index), 20) for index, name in enumerate("abc")],
            )
        )
    assert drafted[None] > drafted[2] >= drafted[1]


def test_a_threshold_of_one_never_exits_and_saves_the_check_at_the_last_token() -> None:
    model = random_model("llama")
    decoder = early_decoder(model, (3,), PredictionPolicy((1.0,)))
    (outputs,) = run(decoder, [Stream("a", (1, 2, 3), 10)]).values()
    total: Counter[str] = Counter()
    for output in outputs:
        total.update(output.counts)
    assert (total["drafted"], total["checks_layer_3"], total["steps"]) == (0, 8, 9)


def test_without_verification_the_drafts_stand() -> None:
    model = random_model("llama", agreement=1.0)
    requests = [Stream("a", (5, 6), 40), Stream("b", (7,), 40)]
    executor = open_executor(model, (1,))
    drafter = ExitDrafter(executor, PredictionPolicy((0.0,), 4))
    lossy = Decoder(executor, drafter, verify=False)
    found = run(lossy, requests)
    total: Counter[str] = Counter()
    for output in itertools.chain.from_iterable(found.values()):
        total.update(output.counts)
    assert total["accepted"] == total["drafted"] > 40
    exact = Decoder(open_executor(model, ()))
    assert texts(found) != texts(run(exact, [Stream("a", (5, 6), 40), Stream("b", (7,), 40)]))


def test_margins_are_the_distance_of_the_two_best_logits() -> None:
    model = random_model("tied")
    executor = open_executor(model, ())
    decoder = Decoder(executor, margins=True)
    (outputs,) = run(decoder, [Stream("a", (4, 5, 6), 5)]).values()
    told = {k: v for output in outputs for k, v in output.counts.items() if "@" in k}
    assert sorted(told) == [f"top2_margin@{i}" for i in range(5)]
    assert all(value > 0 for value in told.values())
    assert texts({"a": outputs}) == texts(run(Decoder(executor), [Stream("a", (4, 5, 6), 5)]))


@pytest.mark.parametrize("prefill_tokens", [1, 3, 10, 70])
@pytest.mark.parametrize("exits", [(), (2, 4)])
def test_prompts_cut_anyhow_give_the_same_text(exits: tuple[int, ...], prefill_tokens: int) -> None:
    model = random_model("llama", torch.bfloat16)
    executor = open_executor(model, exits)
    policy = PredictionPolicy((0.2,) * len(exits), 3)
    drafter = ExitDrafter(executor, policy) if exits else None
    for sampling in (GREEDY, TokenSampling(0.8, 0.9, seed=11)):
        decoder = Decoder(executor, drafter, prefill_tokens=prefill_tokens)
        assert texts(run(decoder, streams(model, 8, sampling))) == plain(model, sampling)


def test_more_requests_than_slots_queue_and_reset_forgets_them() -> None:
    model = random_model("llama")
    decoder = early_decoder(model, (2,), PredictionPolicy((0.3,)), slots=2)
    for stream in streams(model, 8):
        decoder.add(stream)
    for _ in range(3):
        decoder.step()
    decoder.reset()
    assert decoder.step() == []
    assert texts(run(decoder, streams(model, 8))) == plain(model)


def test_a_sampled_draft_is_compared_with_what_plain_decoding_draws() -> None:
    """The paper's acceptance rule is not exact at a temperature above 0; comparing is."""
    model = random_model("llama", agreement=0.1)
    sampling = TokenSampling(1.0, seed=2)
    decoder = early_decoder(model, (3,), PredictionPolicy((0.0,), 5))
    (outputs,) = run(decoder, [Stream("a", (9, 8), 30, frozenset(), sampling)]).values()
    ids = [t for output in outputs for t in output.tokens]
    from backends.engine.model.forward import final_logits, hidden_states

    every = torch.tensor([[9, 8, *ids]])
    hidden = hidden_states(model.weights, model.architecture, every, (6,))[6]
    logits = final_logits(model.weights, hidden)[0].float()
    assert ids == [select(logits[p], sampling, p + 1) for p in range(1, len(ids) + 1)]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (PredictionPolicy((0.5,)), "1 thresholds for 2 exits"),
        (PredictionPolicy((0.5, 0.5), 16), "max_drafts 16: expected 0 to 15"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(policy: PredictionPolicy, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        early_decoder(random_model("llama"), (2, 4), policy)


def test_an_executor_with_exits_is_refused_without_a_drafter_at_them() -> None:
    executor = open_executor(random_model("llama"), (2, 4))
    with pytest.raises(ValueError, match=r"exits \(\) for an executor with \(2, 4\)"):
        Decoder(executor)
