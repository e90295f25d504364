"""Drafts that are made without the model's layers: one pass verifies several rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
import torch

from backends.engine.decoder import Decoder
from backends.engine.drafters.draft_model import DraftModel
from backends.engine.executors.base import RING
from backends.engine.sampling import TokenSampling
from backends.engine.streams import Output, Stream
from tests.support.engine.random_models import open_executor, random_model
from tests.support.engine.told_executor import ToldExecutor

FINAL = list(range(20, 52))
"""The token after each position: 20 after the first."""


class ToldDrafter:
    """Guesses from a table of answers known beforehand, each `wrong`-th token of them wrong."""

    exits: tuple[int, ...] = ()

    def __init__(self, answers: Mapping[str, Sequence[int]], max_drafts: int, wrong: int) -> None:
        self.answers, self.max_drafts, self.wrong = answers, max_drafts, wrong
        self.told: list[tuple[str, int, str | None]] = []
        self.resets = 0

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        for stream in streams:
            begun = len(stream.tokens) - len(stream.prompt)
            guesses = self.answers[stream.id][begun : begun + stream.room(self.max_drafts)]
            for place, token in enumerate(guesses, begun):
                stream.tokens.append((token + (place % self.wrong == 0)) % 97)
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        assert stream.drafts == 0
        self.told.append((stream.id, accepted, stream.finished))
        return {"asked": 1}

    def reset(self) -> None:
        self.resets += 1


def run(decoder: Decoder, streams: Sequence[Stream]) -> dict[str, list[Output]]:
    for stream in streams:
        decoder.add(stream)
    found: dict[str, list[Output]] = {}
    while outputs := decoder.step():
        for output in outputs:
            found.setdefault(output.id, []).append(output)
    return found


def texts(found: Mapping[str, Sequence[Output]]) -> dict[str, tuple[list[int], str | None]]:
    return {
        name: ([t for output in outputs for t in output.tokens], outputs[-1].finished)
        for name, outputs in found.items()
    }


def requests(sampling: TokenSampling) -> list[Stream]:
    return [
        Stream(f"r{n}", (3 + n,) * (1 + 4 * n), (1, 2, 23, 30)[n], frozenset({5 * n}), sampling)
        for n in range(4)
    ]


@pytest.mark.parametrize("sampling", [TokenSampling(), TokenSampling(0.8, 0.9, seed=3)], ids=str)
@pytest.mark.parametrize("wrong", [1, 3, 1000])
def test_right_and_wrong_drafts_give_plain_decodings_text(
    sampling: TokenSampling, wrong: int
) -> None:
    model = random_model("llama", torch.bfloat16)
    expected = texts(run(Decoder(open_executor(model, (), 3)), requests(sampling)))
    answers = {name: ids + [7] * 40 for name, (ids, _) in expected.items()}
    drafter = ToldDrafter(answers, 5, wrong)
    found = run(Decoder(open_executor(model, (), 3), drafter), requests(sampling))
    assert texts(found) == expected
    total: Counter[str] = Counter()
    for outputs in found.values():
        for output in outputs:
            total.update(output.counts)
    assert total["layers_run"] == 6 * total["steps"], "one pass of all layers verifies all drafts"
    assert total["asked"] == total["steps"] == len(drafter.told)
    assert (total["accepted"] == 0) == (wrong == 1)
    assert (total["accepted"] == total["drafted"] > 30) == (wrong == 1000)
    ends = {name: end for name, _, end in drafter.told if end is not None}
    assert ends == {name: end for name, (ids, end) in expected.items() if len(ids) > 1}


def test_a_pass_commits_the_drafts_that_stood_and_one_token_more() -> None:
    drafter = ToldDrafter({"a": FINAL[1:]}, 4, wrong=6)
    decoder = Decoder(ToldExecutor(FINAL, [], exits=()), drafter)  # type: ignore[arg-type]
    (outputs,) = run(decoder, [Stream("a", (1, 2), 12)]).values()
    assert [len(output.tokens) for output in outputs] == [1, 5, 1, 5]
    assert [output.counts.get("drafted") for output in outputs] == [None, 4, 4, 4]
    assert [token for output in outputs for token in output.tokens] == FINAL[1:13]


def test_an_accepted_stop_token_ends_the_answer() -> None:
    drafter = ToldDrafter({"a": FINAL[1:]}, 4, wrong=1000)
    decoder = Decoder(ToldExecutor(FINAL, [], exits=()), drafter)  # type: ignore[arg-type]
    (outputs,) = run(decoder, [Stream("a", (1, 2), 12, frozenset({FINAL[3]}))]).values()
    assert [list(output.tokens) for output in outputs] == [FINAL[1:2], FINAL[2:4]]
    assert outputs[-1].finished == "stop"
    assert drafter.told == [("a", 2, "stop")]


@pytest.mark.parametrize("sampling", [TokenSampling(), TokenSampling(0.8, 0.9, seed=3)], ids=str)
def test_a_stop_token_ends_the_drafts_of_its_own_stream_alone(sampling: TokenSampling) -> None:
    model = random_model("llama")
    plain = run(Decoder(open_executor(model, (), 1)), [Stream("a", (3, 4), 12, sampling=sampling)])
    (answer, _) = texts(plain)["a"]
    own = frozenset({answer[3]})
    assert answer[3] not in answer[:3]
    streams = [
        Stream(name, (3, 4), 12, own if name == "stops" else frozenset({96}), sampling)
        for name in ("stops", "goes on")
    ]
    drafter = DraftModel(open_executor(model, (), 2), 4, threshold=0.0)
    found = run(Decoder(open_executor(model, (), 2), drafter), streams)
    assert texts(found) == {"stops": (answer[:4], "stop"), "goes on": (answer, "length")}
    drafted = {name: [o.counts.get("drafted", 0) for o in found[name]][1] for name in found}
    assert drafted == {"stops": 2, "goes on": 4}


def test_the_drafter_is_told_to_forget_and_may_not_outgrow_the_ring() -> None:
    drafter = ToldDrafter({}, RING - 1, 2)
    executor = ToldExecutor(FINAL, [], exits=())
    decoder = Decoder(executor, drafter)  # type: ignore[arg-type]
    decoder.reset()
    assert drafter.resets == 1
    drafter.max_drafts = RING
    with pytest.raises(ValueError, match="max_drafts 16: expected 0 to 15"):
        Decoder(executor, drafter)  # type: ignore[arg-type]
