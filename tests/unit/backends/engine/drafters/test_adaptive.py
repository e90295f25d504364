"""As many drafts as pay, by costs and acceptances chosen by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from backends.engine.decoder import Decoder
from backends.engine.drafters.adaptive import EXPLORED, AdaptiveDrafts
from backends.engine.drafters.lookup import PromptLookup
from backends.engine.streams import Stream
from tests.support.engine.random_models import open_executor, random_model


@dataclass
class Priced:
    """A pass costs 100, a draft `draft`, a row `row`, whatever is drafted."""

    draft: float = 10.0
    row: float = 0.0
    read_us: float = 0.0

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        return [
            100 + made * self.draft + self.row * sequences * (1 + sum(tokens[:made]))
            for made in range(len(tokens) + 1)
        ]


@dataclass
class Counted(Priced):
    """How often they are asked."""

    asked: int = 0

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        self.asked += 1
        return super().of(sequences, positions, tokens, stands)


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


def drafted(adaptive: AdaptiveDrafts, inner: Chance, streams: Sequence[Stream]) -> bool:
    """A step's drafts; whether any were asked for, which `inner` notes either way."""
    calls = len(inner.asked)
    adaptive.draft(streams)
    if len(inner.asked) == calls:
        inner.asked.append((len(streams), 0))
    return inner.asked[-1][1] > 0


def play(
    adaptive: AdaptiveDrafts, inner: Chance, chance: float, steps: int, count: int = 1
) -> None:
    """So many steps of some streams that never end."""
    draw = random.Random(3)
    for _ in range(steps):
        streams = [Stream(f"r{n}", (1,), 99, tokens=[1], done=[0], slot=n) for n in range(count)]
        some = drafted(adaptive, inner, streams)
        for stream in streams:
            stood = 0
            while stood < stream.drafts and draw.random() < chance:
                stood += 1
            assert adaptive.verified(stream, stood) == ({"told": stood} if some else {})
            assert some or not stream.drafts


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


def test_what_could_never_pay_is_not_tried_and_a_try_is_one_draft_of_one_stream() -> None:
    inner = Chance(4)
    play(AdaptiveDrafts(inner, Priced(500), 0.8), inner, 1.0, 12 * EXPLORED, count=3)
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


def answers(
    adaptive: AdaptiveDrafts, inner: Chance, *, prompt: int, tokens: int, count: int, most: int
) -> None:
    """One after the other, of which every draft stands."""
    for number in range(count):
        text = tuple(range(prompt))
        stream = Stream(f"r{number}", text, most, tokens=list(text), done=[prompt - 1], slot=0)
        while stream.finished is None:
            drafted(adaptive, inner, [stream])
            stood = stream.drafts
            stream.tokens.append(1)
            stream.done[0] = len(stream.tokens) - 1
            stream.finished = "stop" if len(stream.tokens) >= prompt + tokens else None
            adaptive.verified(stream, stood)


def test_drafts_that_may_not_come_are_not_charged_as_if_all_did() -> None:
    """A row takes 20 us and a draft 2: with all drafts made, of which 0.8 stand, two bring most;
    four where one in ten never comes."""
    for comes, most in ((1.0, 2), (0.9, 4)):
        inner = Chance(4)
        play(AdaptiveDrafts(inner, Priced(2.0, row=20.0), 0.8, comes), inner, 0.8, 1, count=3)
        assert inner.asked == [(3, most)]


def test_reading_a_prompt_has_to_pay_within_the_answer() -> None:
    """Eight drafts spare 80 of 100 us a token, and a prompt of 100 positions takes 2,000 us."""
    inner = Chance(8)
    adaptive = AdaptiveDrafts(inner, Priced(10, read_us=20), 1.0)
    answers(adaptive, inner, prompt=100, tokens=10, count=30, most=400)
    assert inner.asked[0] == (1, 8), "half of 400 tokens may come"
    assert usual(inner, 50) == 0, "ten come"
    inner = Chance(8)
    adaptive = AdaptiveDrafts(inner, Priced(10, read_us=20), 1.0)
    answers(adaptive, inner, prompt=100, tokens=90, count=30, most=20)
    assert usual(inner, 50) == 8
    inner = Chance(8)
    answers(
        AdaptiveDrafts(inner, Priced(10), 1.0), inner, prompt=100, tokens=10, count=30, most=400
    )
    assert usual(inner, 50) == 8, "nothing to read"


def test_what_was_read_is_not_read_again() -> None:
    """A text that was drafted from has nothing behind, so that its later drafts have their price
    alone; one that was decoded without drafts has."""
    inner = Chance(4)
    adaptive = AdaptiveDrafts(inner, Priced(30, read_us=1000.0), 1.0)
    stream = Stream("r", (1,) * 9, 10**6, tokens=[1] * 9, done=[8], slot=0)
    drafted(adaptive, inner, [stream])
    assert inner.asked == [(1, 4)], "9,000 us are little for 500,000 tokens"
    stream.max_new_tokens = 30
    stream.tokens, stream.done = [1] * 14, [13]
    adaptive.verified(stream, 4)
    drafted(adaptive, inner, [stream])
    assert inner.asked[-1] == (1, 4), "five tokens are what a verification brings"
    stream.tokens, stream.done = [1] * 25, [24]
    adaptive.verified(stream, 4)
    drafted(adaptive, inner, [stream])
    assert inner.asked[-1] == (1, 0)


def test_while_off_it_asks_for_nothing_and_tells_of_ends_alone() -> None:
    inner = Chance(4)
    adaptive = AdaptiveDrafts(inner, Priced(500), 0.8)
    stream = Stream("r", (1,), 99, tokens=[1], done=[0], slot=0)
    for _ in range(200):
        adaptive.draft([stream])
        assert adaptive.verified(stream, 0) == {}
    assert inner.asked == []
    stream.finished = "stop"
    assert adaptive.verified(stream, 0) == {"told": 0}


def test_tries_stay_rare_where_the_number_of_streams_changes() -> None:
    inner = Chance(4)
    adaptive = AdaptiveDrafts(inner, Priced(30), 0.0)
    for number in range(1000):
        play(adaptive, inner, 0.0, 1, count=8 + number % 2)
    assert 3 <= inner.asked.count((1, 1)) <= 1000 / EXPLORED


def test_what_a_try_has_to_read_is_paid_out_of_a_share_of_the_time() -> None:
    """A try reads 50 positions, 5,000 us: half a hundredth of 10,000 steps of 100 us."""
    inner = Chance(4)
    costs = Counted(30, read_us=100.0)
    adaptive = AdaptiveDrafts(inner, costs, 0.0)
    stream = Stream("r", (1,) * 50, 10**6, tokens=[1] * 50, done=[49], slot=0)

    def steps(count: int) -> None:
        for _ in range(count):
            drafted(adaptive, inner, [stream])
            del stream.tokens[50:]
            adaptive.verified(stream, 0)

    steps(10_000)
    assert all(most == 0 for _, most in inner.asked)
    assert costs.asked < 20, "after 64 steps, 128 and so on, and from 2,048 on after 1,024 more"
    steps(1200)
    assert (1, 1) in inner.asked


def test_a_try_that_costs_too_much_does_not_hold_up_one_draft_more() -> None:
    """Off in a batch of texts that nobody read, for 3,000 steps; then one stream of which two
    drafts stand: a third is tried after 64 steps, and not once the batch could afford its try."""
    inner = Chance(8)
    adaptive = AdaptiveDrafts(inner, Priced(30, row=20.0, read_us=100.0), 0.8)
    batch = [
        Stream(f"r{n}", (1,) * 500, 600, tokens=[1] * 500, done=[499], slot=n) for n in range(16)
    ]
    for _ in range(3000):
        drafted(adaptive, inner, batch)
        for stream in batch:
            adaptive.verified(stream, 0)
    assert set(inner.asked) == {(16, 0)}
    for _ in range(640):
        stream = Stream("r", (1,), 99, tokens=[1], done=[0], slot=0)
        drafted(adaptive, inner, [stream])
        adaptive.verified(stream, min(stream.drafts, 2))
    assert usual(inner) == 2
    assert (1, 3) in inner.asked[-4 * EXPLORED :]


class ByLength(Priced):
    """Drafts are dear behind 1,000 positions; counts how often it is asked what reading costs."""

    asked = 0

    @property
    def read_us(self) -> float:
        self.asked += 1
        return 0.0

    @read_us.setter
    def read_us(self, us: float) -> None:
        pass

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        return Priced(10.0 if positions < 1000 else 500.0).of(sequences, positions, tokens, stands)


def test_what_a_long_text_is_not_worth_a_short_one_may_be() -> None:
    inner = Chance(8)
    adaptive = AdaptiveDrafts(inner, ByLength(), 0.8)
    for length, steps in ((2000, 20), (20, 40)):
        for _ in range(steps):
            text = [1] * length
            stream = Stream("r", (1,), 9999, tokens=text, done=[length - 1], slot=0)
            drafted(adaptive, inner, [stream])
            adaptive.verified(stream, stream.drafts)
    assert {most for _, most in inner.asked[:20]} == {0}
    assert max(most for _, most in inner.asked) > 0, "before anything would have been tried"


def test_rests_are_short_again_after_a_reset() -> None:
    inner, costs = Chance(8), ByLength()
    adaptive = AdaptiveDrafts(inner, costs, 0.8)
    stream = Stream("r", (1,), 9999, tokens=[1] * 2000, done=[1999], slot=0)
    for _ in range(100):
        adaptive.draft([stream])
    adaptive.reset()
    costs.asked = 0
    for _ in range(10):
        adaptive.draft([stream])
    assert costs.asked == 2, "at once, and after eight steps"
