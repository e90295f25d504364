"""LookAhead's window and pool by hand, and when it goes without."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from backends.engine.costs.draft_costs import (
    LOOKAHEAD_ROW_US,
    LOOKAHEAD_US,
    LookAheadCosts,
)
from backends.engine.costs.row_costs import RowCosts, tree_factor
from backends.engine.decoder import Decoder
from backends.engine.drafters.trees.adaptive import BURST, PAUSES, AdaptiveTrees
from backends.engine.drafters.trees.base import Guesses
from backends.engine.drafters.trees.lookahead import LookAhead
from backends.engine.executors.trees import TreeRows
from backends.engine.streams import Stream
from tests.support.engine.random_models import open_executor, random_model


def stream(*tokens: int, most: int = 40, stops: tuple[int, ...] = ()) -> Stream:
    found = Stream("a", tokens, most, frozenset(stops), tokens=list(tokens), slot=0)
    found.done = [len(tokens) - 1]
    return found


def step(drafter: LookAhead, one: Stream, token: int, said: Sequence[int]) -> Guesses:
    """A pass that says so after the window's last rows, and a token more."""
    (guesses,) = drafter.grow([one])
    assert len(guesses.asked) == len(said)
    drafter.told(one, said)
    one.tokens.append(token)
    one.done = [len(one.tokens) - 1]
    drafter.verified(one, 0)
    return guesses


def ways(guesses: Guesses) -> list[list[int]]:
    """The tokens that each row attends to, itself included."""
    found = [[guesses.tokens[0]]]
    for row in range(1, len(guesses.tokens)):
        found.append([*found[row - guesses.back[row]], guesses.tokens[row]])
    return found


def test_the_window_is_that_of_the_paper() -> None:
    """W = 3, N = 4: a later token of a place follows the earlier ones of its place, and those of
    the oldest iteration up to it."""
    drafter, one = LookAhead(100, 3, 4, 2), stream(7, 7)
    assert ways(step(drafter, one, 8, [11, 12, 13])) == [[7], [7, 7], [7, 7, 7]]
    trunk = [[8], [8, 7], [8, 7, 7]]
    found = ways(step(drafter, one, 9, [21, 22, 23]))
    assert found == [
        *(trunk[0], [8, 11]),
        *(trunk[1], [8, 7, 12]),
        *(trunk[2], [8, 7, 7, 13]),
    ]
    guesses = step(drafter, one, 7, [31, 32, 33])
    assert guesses.asked == [2, 5, 8]
    assert ways(guesses) == [
        *([9], [9, 11], [9, 11, 21]),
        *([9, 7], [9, 7, 12], [9, 7, 12, 22]),
        *([9, 7, 7], [9, 7, 7, 13], [9, 7, 7, 13, 23]),
    ]
    # now there are n-grams: 9 11 21 31 and, of the trunk's 7s, two; and a new oldest iteration
    guesses = step(drafter, one, 9, [41, 42, 43])
    assert guesses.judged == 7
    assert ways(guesses)[1:7] == [
        *([7, 12], [7, 12, 22], [7, 12, 22, 32]),
        *([7, 13], [7, 13, 23], [7, 13, 23, 33]),
    ]
    assert ways(guesses)[9:] == [
        *([7, 12], [7, 12, 22], [7, 12, 22, 32]),
        *([7, 12, 13], [7, 12, 13, 23], [7, 12, 13, 23, 33]),
    ]
    (guesses,) = drafter.grow([one])
    assert ways(guesses)[1:4] == [[9, 11], [9, 11, 21], [9, 11, 21, 31]]


def test_the_newest_guesses_stay_and_end_before_a_stop_token() -> None:
    prompt = (1, 2, 3, 1, 4, 5, 1, 2, 3, 1, 6, 7, 1)
    one = stream(*prompt, stops=(7,))
    drafter = LookAhead(100, 1, 3, 2, pool_prompt=True)
    (guesses,) = drafter.grow([one])
    assert ways(guesses)[1:3] == [[1, 2], [1, 2, 3]], "1 4 5 is the oldest of three"
    assert ways(guesses)[3 : guesses.judged] == [[1, 6]], "7 is a stop token"
    one.max_new_tokens = 2
    (guesses,) = drafter.grow([one])
    assert ways(guesses)[1 : guesses.judged] == [[1, 2], [1, 6]], "there is room for one"
    one.max_new_tokens = 1
    (guesses,) = drafter.grow([one])
    assert len(guesses.tokens) == 1
    assert not guesses.asked


def test_near_the_end_of_a_context_there_is_no_window() -> None:
    drafter = LookAhead(12, 4, 3, 2)
    for length, rows in ((8, 4), (9, 4), (10, 1)):
        one = stream(*range(length))
        (guesses,) = drafter.grow([one])
        assert len(guesses.tokens) == rows, length
        joined = TreeRows.joined([(0, length - 1, guesses.tokens, guesses.back)])
        assert joined.rows.positions.max() < 12
        drafter.reset()


def test_a_stream_knows_nothing_of_the_one_before_in_its_slot() -> None:
    drafter = LookAhead(100, 2, 2, 2, pool_prompt=True)
    one = stream(1, 2, 1)
    step(drafter, one, 2, [5, 5])
    one.finished = "stop"
    drafter.verified(one, 0)
    other = stream(3, 1)
    (guesses,) = drafter.grow([other])
    assert guesses.judged == 1


def test_jacobi_iterations_find_what_plain_decoding_says() -> None:
    """With agreement near 1 of a repeating text, guesses stand; all of them are the model's."""
    model = random_model("llama", torch.bfloat16)
    plain, drafting = (open_executor(model, (), 1) for _ in range(2))
    decoder = Decoder(drafting, LookAhead(128, 6, 4, 4))

    def decoded(decoder: Decoder) -> tuple[list[int], float]:
        decoder.add(Stream("a", (4, 5, 6), 90))
        tokens: list[int] = []
        accepted = 0.0
        while outputs := decoder.step():
            tokens += outputs[0].tokens
            accepted += outputs[0].counts.get("accepted", 0)
        return tokens, accepted

    text, accepted = decoded(decoder)
    assert text == decoded(Decoder(plain))[0]
    assert accepted > 5


@dataclass
class PricedTrees:
    """A plain step costs 100; one with trees as given."""

    trees: float

    def of(self, sequences: int, positions: int, rows: float) -> tuple[float, float]:
        assert rows == pytest.approx(5)
        return 100, self.trees


class ChanceTrees:
    """Trees of five rows; a first token stands with a probability, and then all four."""

    exits: tuple[int, ...] = ()
    max_drafts = 4

    def __init__(self) -> None:
        self.grown = self.resets = 0

    def grow(self, streams: Sequence[Stream]) -> Sequence[Guesses]:
        self.grown += 1
        return [Guesses.of(1, [(1, 2, 3, 4)]) for _ in streams]

    def told(self, stream: Stream, tokens: Sequence[int]) -> None:
        raise AssertionError

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        return {"told": accepted}

    def reset(self) -> None:
        self.resets += 1


def play(adaptive: AdaptiveTrees, chance: float, steps: int) -> int:
    """The steps with trees, of so many."""
    draw = random.Random(2)
    one, count = stream(1, 2), 0
    for _ in range(steps):
        grown = adaptive.grow([one])
        count += bool(grown)
        accepted = 4 if grown and draw.random() < chance else 0
        assert adaptive.verified(one, accepted) == {"told": accepted}
    return count


def test_trees_go_on_as_long_as_they_pay() -> None:
    inner = ChanceTrees()
    adaptive = AdaptiveTrees(inner, PricedTrees(150), 5, 1.7)
    assert play(adaptive, 0.5, 1000) > 950, "3 tokens for one and a half"
    assert play(adaptive, 0.0, 1000) < 100
    assert play(adaptive, 0.9, 20 * PAUSES[1]) > 15 * PAUSES[1], "trials find that out"
    adaptive.reset()
    assert inner.resets == 1
    assert play(adaptive, 0.5, 10) == 10, "the hope is back"


def test_trials_become_rare_and_end_where_nothing_can_pay() -> None:
    adaptive = AdaptiveTrees(ChanceTrees(), PricedTrees(300), 5, 1.7)
    first = PAUSES[0] + BURST
    assert play(adaptive, 0.0, PAUSES[0] - 1) == 0
    assert play(adaptive, 0.0, first) == BURST
    assert play(adaptive, 0.0, 30 * first) < 10 * BURST
    assert play(AdaptiveTrees(ChanceTrees(), PricedTrees(501), 5, 1.7), 1.0, 10 * first) == 0


def test_costs_of_a_pass_over_trees() -> None:
    verify = RowCosts((1, 11), (100.0, 200.0), 10, 0.0)
    plain, trees = LookAheadCosts(verify, 1.5).of(2, 20, 5)
    assert (plain, trees) == (110.0, 1.5 * 190 + 2 * (LOOKAHEAD_US + 5 * LOOKAHEAD_ROW_US))
    executor = open_executor(random_model("llama"), (), 1)
    usual = LookAhead(128, 4, 4, 3).usual()
    assert len(usual.tokens) == 3 + 4 * 3
    assert usual.judged == 4
    assert tree_factor(executor, usual) >= 1
