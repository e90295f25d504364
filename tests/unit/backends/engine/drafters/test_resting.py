"""What drafting has to read, and steps without drafts: by costs chosen by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backends.engine.drafters.adaptive import EXPLORED, AdaptiveDrafts
from backends.engine.streams import Stream
from tests.support.engine.priced_drafts import Chance, Priced, drafted, play, usual


@dataclass
class Counted(Priced):
    """How often they are asked."""

    asked: int = 0

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        self.asked += 1
        return super().of(sequences, positions, tokens, stands)


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
    """Drafts are dear behind 1,000 positions."""

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        return Priced(10.0 if positions < 1000 else 500.0).of(sequences, positions, tokens, stands)


class Looked(AdaptiveDrafts):
    """How often it looks for what is best."""

    looked = 0

    def _chosen_for(self, streams: Sequence[Stream], reading_us: float) -> int:
        self.looked += 1
        return super()._chosen_for(streams, reading_us)


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
    adaptive = Looked(Chance(8), ByLength(), 0.8)
    stream = Stream("r", (1,), 9999, tokens=[1] * 2000, done=[1999], slot=0)
    for _ in range(100):
        adaptive.draft([stream])
    adaptive.reset()
    adaptive.looked = 0
    for _ in range(10):
        adaptive.draft([stream])
    assert adaptive.looked == 2, "at once, and after eight steps"
