"""When the decoder predicts early: rules that leave the text alone, so that only counts tell."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from backends.engine.decoder import Decoder
from backends.engine.drafters.exits import ExitDrafter, PredictionPolicy
from backends.engine.streams import Output, Stream
from tests.support.engine.told_executor import ToldExecutor

FINAL = list(range(20, 52))
"""The token after each position: 20 after the first."""
GAMMA = 0.5


def decode(
    executor: ToldExecutor,
    policy: PredictionPolicy,
    limit: int = 6,
    stops: frozenset[int] = frozenset(),
) -> tuple[list[int], Counter[str], list[Output]]:
    decoder = Decoder(executor, ExitDrafter(executor, policy))  # type: ignore[arg-type]
    decoder.add(Stream("a", (1, 2), limit, stops))
    outputs: list[Output] = []
    while found := decoder.step():
        outputs += found
    counts: Counter[str] = Counter()
    for output in outputs:
        counts.update(output.counts)
    return [token for output in outputs for token in output.tokens], counts, outputs


@pytest.mark.parametrize(("sure", "drafts"), [(GAMMA, 0), (math.nextafter(GAMMA, 1), 1)])
def test_a_prediction_counts_above_its_threshold_and_not_at_it(sure: float, drafts: int) -> None:
    executor = ToldExecutor(FINAL, [{3: (FINAL[3], sure)}])
    tokens, counts, _ = decode(executor, PredictionPolicy((GAMMA,)))
    assert tokens == FINAL[1:7]
    assert counts["drafted"] == counts["accepted"] == drafts


def test_each_exit_has_its_own_threshold() -> None:
    guesses = [{3: (FINAL[3], 0.6)}, {4: (FINAL[4], 0.6)}]
    executor = ToldExecutor(FINAL, guesses, exits=(2, 5))
    _, counts, _ = decode(executor, PredictionPolicy((0.7, 0.5)))
    assert (counts["exits_layer_2"], counts["exits_layer_5"]) == (0, 1)


def test_a_stop_token_is_never_predicted_early() -> None:
    stop = FINAL[3]
    executor = ToldExecutor(FINAL, [{2: (FINAL[2], 1.0), 3: (stop, 1.0)}])
    tokens, counts, outputs = decode(executor, PredictionPolicy((GAMMA,)), stops=frozenset({stop}))
    assert tokens == FINAL[1:4]
    assert outputs[-1].finished == "stop"
    assert (counts["drafted"], counts["accepted"]) == (1, 1)
    assert (0, 3) in executor.asked, "it was checked, and its head was sure"


def test_no_more_drafts_wait_than_allowed_and_none_beyond_the_answers_end() -> None:
    guesses = {p: (FINAL[p], 1.0) for p in range(len(FINAL))}
    tokens, counts, outputs = decode(
        ToldExecutor(FINAL, [guesses]), PredictionPolicy((GAMMA,), 3), 10
    )
    assert tokens == FINAL[1:11]
    assert [len(output.tokens) for output in outputs] == [1, 4, 4, 1]
    assert counts["drafted"] == counts["accepted"] == 6
    # an answer of two tokens has room for the prompt's and for one that is verified
    _, counts, _ = decode(ToldExecutor(FINAL, [guesses]), PredictionPolicy((GAMMA,), 3), 2)
    assert counts["drafted"] == counts["checks_layer_2"] == 0


def test_what_follows_a_wrong_draft_is_thrown_away_and_counted() -> None:
    guesses = {2: (FINAL[2], 1.0), 3: (99, 1.0), 4: (FINAL[4], 1.0)}
    tokens, counts, outputs = decode(
        ToldExecutor(FINAL, [guesses]), PredictionPolicy((GAMMA,), 3), 6
    )
    assert tokens == FINAL[1:7]
    assert [len(output.tokens) for output in outputs][:2] == [1, 2]
    assert counts["drafted"] - counts["accepted"] == 2
    first = outputs[1].counts
    assert (first["exits_layer_2"], first["accepted_layer_2"]) == (3, 1)


def test_a_stop_token_that_a_draft_is_refused_for_ends_the_answer() -> None:
    """The draft after position 2 is wrong: the last layer says stop there."""
    guesses = {2: (99, 1.0), 3: (98, 1.0)}
    tokens, _, outputs = decode(
        ToldExecutor(FINAL, [guesses]), PredictionPolicy((GAMMA,), 3), 8, frozenset({FINAL[2]})
    )
    assert tokens == FINAL[1:3]
    assert outputs[-1].finished == "stop"


@pytest.mark.parametrize(("most", "drafts"), [(2, True), (1, False)])
def test_a_batch_as_large_as_allowed_still_predicts_early(most: int, drafts: bool) -> None:
    guesses = {p: (FINAL[p], 1.0) for p in range(len(FINAL))}
    executor = ToldExecutor(FINAL, [guesses])
    policy = PredictionPolicy((GAMMA,), 3, most)
    decoder = Decoder(executor, ExitDrafter(executor, policy))  # type: ignore[arg-type]
    for name in "ab":
        decoder.add(Stream(name, (1, 2), 10))
    assert [len(output.tokens) for output in decoder.step()] == [1, 1], "the prompts"
    assert [len(output.tokens) for output in decoder.step()] == [4 if drafts else 1] * 2


def reading(slots: int, prefill_tokens: int, **lengths: int) -> tuple[ToldExecutor, Decoder]:
    """A decoder with streams of these prompt lengths and answers of three tokens."""
    executor = ToldExecutor(FINAL, [], exits=())
    executor.slots = slots
    decoder = Decoder(executor, prefill_tokens=prefill_tokens)  # type: ignore[arg-type]
    for name, length in lengths.items():
        decoder.add(Stream(name, (1,) * length, 3))
    return executor, decoder


def test_prompts_are_read_in_pieces_and_streams_go_on_between_them() -> None:
    executor, decoder = reading(4, 4, a=2, b=1, c=9, d=1)
    told = ["".join(output.id for output in decoder.step()) for _ in range(9)]
    assert told == ["ab", "ab", "ab", "c", "c", "d", "cd", "d", ""]
    first, *others = executor.calls
    assert first == [(0, 0), (0, 1), (1, 0), (2, 0)], "several share a piece, in order"
    assert others[:2] == [[(2, p) for p in range(1, 5)], [(2, p) for p in range(5, 9)]]
    assert others[2:] == [[(1, 0)]], "the slot that was left last is taken first"


@pytest.mark.parametrize(
    ("prefill_tokens", "lengths"), [(6, [3, 4, 5, 2]), (2, [3, 4, 4, 1, 2]), (20, [14])]
)
def test_prompts_are_cut_where_the_executor_allows_it(
    prefill_tokens: int, lengths: list[int]
) -> None:
    executor, decoder = reading(4, prefill_tokens, a=3, b=9, c=2)
    executor.piece = 4
    while decoder.step():
        pass
    assert [len(call) for call in executor.calls] == lengths


def test_a_reset_frees_the_slot_of_a_prompt_that_is_half_read() -> None:
    executor, decoder = reading(2, 4, a=1, b=9)
    decoder.step()
    decoder.reset()
    assert decoder.step() == []
    for name in "cd":
        decoder.add(Stream(name, (1, 2), 1))
    assert sorted(output.id for output in decoder.step()) == ["c", "d"]
    assert {slot for slot, _ in executor.calls[-1]} == {0, 1}
    assert {position for _, position in executor.calls[-1]} == {0, 1}, "from the beginning"
