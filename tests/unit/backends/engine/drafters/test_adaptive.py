"""As many drafts as pay, by costs and acceptances chosen by hand."""

from __future__ import annotations

import pytest
import torch

from backends.engine.decoder import Decoder
from backends.engine.drafters.adaptive import EXPLORED, AdaptiveDrafts
from backends.engine.drafters.lookup import PromptLookup
from backends.engine.streams import Stream
from tests.support.engine.priced_drafts import Chance, Priced, play, usual
from tests.support.engine.random_models import open_executor, random_model


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
    play(adaptive, inner, stands, 1500)
    assert usual(inner) in best
    inner_goodput = [
        sum(stands**i for i in range(k + 1)) / us
        for k, us in enumerate(price.of(1, 1, [1.0] * 8, []))
    ]
    assert inner_goodput[usual(inner)] >= 0.97 * max(inner_goodput)


def test_it_changes_its_mind_both_ways() -> None:
    inner = Chance(8)
    adaptive = AdaptiveDrafts(inner, Priced(10), 0.8)
    play(adaptive, inner, 0.9, 600)
    assert usual(inner) >= 4
    play(adaptive, inner, 0.0, 600)
    assert usual(inner) == 0
    play(adaptive, inner, 1.0, 20 * EXPLORED)
    assert usual(inner) >= 6, "one draft now and then showed that they stand again"


def verdicts(adaptive: AdaptiveDrafts, stood: list[bool], count: int = 1) -> list[int]:
    """By verification of so many streams that never end, how many drafts each had; all of them
    stand, or none."""
    found = []
    for stands in stood:
        streams = [Stream(f"r{n}", (1,), 99, tokens=[1], done=[0], slot=n) for n in range(count)]
        adaptive.draft(streams)
        found.append(streams[-1].drafts)
        for stream in streams:
            adaptive.verified(stream, stream.drafts if stands else 0)
    return found


def test_what_may_well_pay_is_tried_by_a_stream_alone() -> None:
    """At an acceptance of 0.75, as it is hoped, drafts bring 1.09 of what plain decoding does, and
    1.36 where it is a standard error more."""
    alone, batch = (AdaptiveDrafts(Chance(8), Priced(60), 0.75) for _ in range(2))
    assert verdicts(alone, [True])[0] > 0
    assert verdicts(batch, [True], count=3) == [0]


def test_a_bad_start_is_no_verdict() -> None:
    """At these costs drafts pay from an acceptance of 0.95 on. Three of four stand: that is less,
    and may be chance."""
    start = [True, True, False, True]
    adaptive = AdaptiveDrafts(Chance(8), Priced(70), 0.9)
    assert min(verdicts(adaptive, [*start, *[True] * 40])[2:]) > 0


def test_tries_of_what_does_not_pay_come_to_an_end() -> None:
    """Of three verifications all eight drafts stand in two: 6.3 tokens for the time of 6."""
    adaptive = AdaptiveDrafts(Chance(8), Priced(62), 0.9)
    drafted = verdicts(adaptive, [number % 3 > 0 for number in range(600)])
    assert 5 < sum(map(bool, drafted)) < 40
    assert not any(drafted[-30:])


def test_what_could_never_pay_is_not_tried_and_a_try_is_one_draft_of_one_stream() -> None:
    inner = Chance(4)
    play(AdaptiveDrafts(inner, Priced(500), 0.8), inner, 1.0, 30 * EXPLORED, count=3)
    assert {most for _, most in inner.asked} == {0}
    inner = Chance(4)
    adaptive = AdaptiveDrafts(inner, Priced(30), 0.1)
    play(adaptive, inner, 0.0, 4 * EXPLORED, count=3)
    assert inner.asked.count((1, 1)) == 2
    assert set(inner.asked) == {(3, 0), (1, 1)}


def test_more_rows_than_are_free_are_left_out_in_a_batch() -> None:
    alone, batch = Chance(8), Chance(8)
    price = Priced(1, row=20)
    play(AdaptiveDrafts(alone, price, 0.7), alone, 0.7, 500)
    play(AdaptiveDrafts(batch, price, 0.7), batch, 0.7, 500, count=16)
    assert usual(alone) > usual(batch)


def test_a_reset_forgets_what_was_seen() -> None:
    inner = Chance(4)
    adaptive = AdaptiveDrafts(inner, Priced(10), 0.9)
    play(adaptive, inner, 0.0, 300)
    assert usual(inner) == 0
    adaptive.reset()
    assert inner.asked == []
    play(adaptive, inner, 0.0, 1)
    assert inner.asked[0][1] > 0


def test_what_brings_hardly_more_than_plain_decoding_is_not_drafted() -> None:
    """Nine tokens for the time of 8.6: less than costs and beliefs may be wrong by."""
    inner = Chance(8)
    play(AdaptiveDrafts(inner, Priced(95), 1.0), inner, 1.0, 300)
    assert usual(inner) == 0
    inner = Chance(8)
    play(AdaptiveDrafts(inner, Priced(80), 1.0), inner, 1.0, 300)
    assert usual(inner) == 8


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


def test_drafts_that_may_not_come_are_not_charged_as_if_all_did() -> None:
    """A row takes 20 us and a draft 2: with all drafts made, of which 0.8 stand, two bring most;
    four where one in ten never comes."""
    for comes, most in ((1.0, 2), (0.9, 4)):
        inner = Chance(4)
        play(AdaptiveDrafts(inner, Priced(2.0, row=20.0), 0.8, comes), inner, 0.8, 1, count=3)
        assert inner.asked == [(3, most)]
