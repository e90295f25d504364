"""As many drafts as pay, by costs and acceptances chosen by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
import torch

from backends.engine.costs.draft_costs import (
    DraftModelCosts,
    FirstLayersCosts,
    LookupCosts,
    PartialPass,
)
from backends.engine.costs.row_costs import RowCosts, pass_costs, row_costs
from backends.engine.decoder import Decoder
from backends.engine.drafters.adaptive import EXPLORED, AdaptiveDrafts
from backends.engine.drafters.lookup import PromptLookup
from backends.engine.streams import Stream
from backends.engine.sublayers.sets import Sublayers
from tests.support.engine.random_models import open_executor, random_model


@dataclass
class Priced:
    """A pass costs 100, a draft `draft`, a row `row`, whatever is drafted."""

    draft: float = 10.0
    row: float = 0.0

    def of(self, sequences: int, positions: int, tokens: Sequence[float]) -> list[float]:
        return [
            100 + made * self.draft + self.row * sequences * (1 + sum(tokens[:made]))
            for made in range(len(tokens) + 1)
        ]


class Chance:
    """Drafts as many as it may; each stands with a probability."""

    exits: tuple[int, ...] = ()

    def __init__(self, most: int) -> None:
        self.max_drafts = most
        self.asked: list[tuple[int, int]] = []
        """Of each call, the streams and the drafts that each could have."""

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        self.asked.append((len(streams), self.max_drafts))
        for stream in streams:
            stream.tokens += [1] * min(self.max_drafts, stream.room(self.max_drafts))
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        return {"told": accepted}

    def reset(self) -> None:
        self.asked.clear()


def play(adaptive: AdaptiveDrafts, chance: float, steps: int, count: int = 1) -> None:
    """So many steps of some streams that never end."""
    draw = random.Random(3)
    for _ in range(steps):
        streams = [Stream(f"r{n}", (1,), 99, tokens=[1], done=[0], slot=n) for n in range(count)]
        adaptive.draft(streams)
        for stream in streams:
            stood = 0
            while stood < stream.drafts and draw.random() < chance:
                stood += 1
            assert adaptive.verified(stream, stood) == {"told": stood}


def usual(chance: Chance, last: int = 200) -> int:
    """The number of drafts that was asked for most often of late."""
    asked = [most for _, most in chance.asked[-last:]]
    return max(set(asked), key=asked.count)


@pytest.mark.parametrize(
    ("stands", "price", "best"),
    [
        (1.0, Priced(10), {8}),
        (0.9, Priced(10), {5, 6, 7, 8}),
        (0.5, Priced(10), {2, 3}),
        (0.05, Priced(10), {0}),
        (1.0, Priced(150), {0}),
        (0.5, Priced(0.1, row=300.0), {0}),
    ],
)
def test_it_finds_what_brings_most(stands: float, price: Priced, best: set[int]) -> None:
    inner = Chance(8)
    adaptive = AdaptiveDrafts(inner, price, 0.8)
    play(adaptive, stands, 1500)
    assert usual(inner) in best
    inner_goodput = [
        sum(stands**i for i in range(k + 1)) / us for k, us in enumerate(price.of(1, 1, [1.0] * 8))
    ]
    assert inner_goodput[usual(inner)] >= 0.97 * max(inner_goodput)


def test_it_changes_its_mind_both_ways() -> None:
    inner = Chance(8)
    adaptive = AdaptiveDrafts(inner, Priced(10), 0.8)
    play(adaptive, 0.9, 600)
    assert usual(inner) >= 4
    play(adaptive, 0.0, 600)
    assert usual(inner) == 0
    play(adaptive, 1.0, 20 * EXPLORED)
    assert usual(inner) >= 6, "one draft now and then showed that they stand again"


def test_what_could_never_pay_is_not_tried_and_a_try_is_one_draft_of_one_stream() -> None:
    inner = Chance(4)
    play(AdaptiveDrafts(inner, Priced(500), 0.8), 1.0, 3 * EXPLORED, count=3)
    assert {most for _, most in inner.asked} == {0}
    inner = Chance(4)
    adaptive = AdaptiveDrafts(inner, Priced(30), 0.1)
    play(adaptive, 0.0, 2 * EXPLORED + 2, count=3)
    assert inner.asked.count((1, 1)) == 2
    assert set(inner.asked) == {(3, 0), (1, 1)}


def test_more_rows_than_are_free_are_left_out_in_a_batch() -> None:
    alone, batch = Chance(8), Chance(8)
    price = Priced(1, row=20)
    play(AdaptiveDrafts(alone, price, 0.7), 0.7, 500)
    play(AdaptiveDrafts(batch, price, 0.7), 0.7, 500, count=16)
    assert usual(alone) > usual(batch)


def test_a_reset_forgets_what_was_seen() -> None:
    inner = Chance(4)
    adaptive = AdaptiveDrafts(inner, Priced(10), 0.9)
    play(adaptive, 0.0, 300)
    assert usual(inner) == 0
    adaptive.reset()
    assert inner.asked == []
    play(adaptive, 0.0, 1)
    assert inner.asked[0][1] > 0


def test_costs_between_and_beyond_what_was_timed() -> None:
    costs = RowCosts((1, 2, 4), (10.0, 20.0, 60.0), positions=100, cache_us=5.0)
    assert [costs.of(rows, 100) for rows in (1, 1.5, 2, 3, 4, 6)] == [10, 15, 20, 40, 60, 100]
    assert costs.of(2, 300) == 30
    assert costs.of(1, 50) == 7.5
    assert RowCosts((1, 2), (10.0, 20.0), 512, 150.0).of(1, 2) == 5, "timed ill, but not negative"
    flat = RowCosts((1, 2), (100.0, 100.0), 100, 0.0)
    small = RowCosts((1, 2), (10.0, 10.0), 100, 0.0)
    assert DraftModelCosts(flat, small).of(3, 100, [1.0, 0.5]) == [100, 110, 120]
    assert DraftModelCosts(flat, small).of(1, 100, [0.5, 0.0, 0.0]) == [100, 110, 115, 115]
    assert DraftModelCosts(flat, small).of(2, 100, [0.5, 0.5]) == [100, 110, 117.5], "one of two"
    third = RowCosts((1, 2), (70.0, 70.0), 100, 0.0)
    left_out = Sublayers(frozenset({1}), frozenset({0, 1}))
    partial = PartialPass(flat, third, small, 4, lambda: left_out)
    # a layer's attention takes 30 / 4 us and its MLP 90 / 4, of four layers
    assert partial.of(1, 100) == 100 - 30 / 4 - 2 * 90 / 4
    assert DraftModelCosts(flat, partial).of(1, 100, [1.0]) == [100, 147.5]
    assert LookupCosts(flat).of(1, 100, [0.5]) == [100, 110]
    assert FirstLayersCosts(small, flat).of(1, 100, [1.0, 1.0]) == [110, 120, 130]


def test_what_brings_hardly_more_than_plain_decoding_is_not_drafted() -> None:
    """Nine tokens for the time of 8.6: less than costs and beliefs may be wrong by."""
    inner = Chance(8)
    play(AdaptiveDrafts(inner, Priced(95), 1.0), 1.0, 300)
    assert usual(inner) == 0
    inner = Chance(8)
    play(AdaptiveDrafts(inner, Priced(80), 1.0), 1.0, 300)
    assert usual(inner) == 8


def test_a_pass_that_other_work_made_longer_does_not_make_rows_look_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def timed(calls: Mapping[int, object]) -> dict[int, float]:
        return {rows: 100.0 + 5 * rows + 400 * (rows in (2, 64)) for rows in calls}

    monkeypatch.setattr("backends.engine.costs.row_costs.lower_quartiles", timed)
    costs = row_costs(open_executor(random_model("llama"), ()))
    seen = dict(zip(costs.rows, costs.us, strict=True))
    assert (seen[1], seen[2], seen[4], seen[48]) == (105, 120, 120, 340)


def test_costs_of_a_thinned_pass_are_measured() -> None:
    executor = open_executor(random_model("llama"), ())
    found = PartialPass.measure(executor, Sublayers)
    assert found.layers == 6
    assert found.of(1, found.whole.positions) == found.whole.us[0]
    assert found.no_attention.rows == found.no_mlp.rows == found.whole.rows


def test_costs_of_an_executor_grow_with_rows() -> None:
    executor = open_executor(random_model("llama", torch.bfloat16), (2,))
    costs = row_costs(executor)
    assert costs.rows[0] == 1
    assert costs.rows[-1] < executor.max_len
    assert list(costs.us) == sorted(costs.us)
    assert costs.us[0] > 0
    assert row_costs(executor, 1, 2).rows == costs.rows


def test_the_text_does_not_depend_on_it() -> None:
    model = random_model("llama", torch.bfloat16)

    def text(decoder: Decoder) -> dict[str, list[int]]:
        for number in range(3):
            decoder.add(Stream(f"r{number}", (3, 4, 5) * (1 + number), 40))
        found: dict[str, list[int]] = {}
        while outputs := decoder.step():
            for output in outputs:
                found.setdefault(output.id, []).extend(output.tokens)
        return found

    lookup = AdaptiveDrafts(PromptLookup(4, 6, 1, 3), Priced(1), 0.5)
    assert text(Decoder(open_executor(model, ()), lookup)) == text(
        Decoder(open_executor(model, ()))
    )


def test_passes_in_one_call_have_costs_too() -> None:
    executor = open_executor(random_model("tied", torch.bfloat16), ())
    apart, together = row_costs(executor), pass_costs(executor)
    assert together.rows == apart.rows
    assert all(us > 0 for us in together.us)
