"""How often drafts stand, against what theory says of it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from backends.engine.decoder import Decoder
from backends.engine.sampling import GREEDY, TokenSampling, select
from backends.engine.streams import Stream
from benchmarks.support.chi_square import fit
from tests.support.engine.random_models import open_executor, random_model

DRAWS = 8_000
SIGMAS = 4.5
LENGTH = 90


def two(seed: int, sharp: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a model and of one that drafts for it."""
    draw = torch.Generator().manual_seed(seed)
    model = torch.randn(12, generator=draw) * sharp
    return model, model + torch.randn(12, generator=draw)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_draft_of_the_same_noise_stands_as_often_as_theory_says(seed: int) -> None:
    """The exponential clock behind Gumbel-max: both choose i where its clock, in the larger of both
    scales, is first: sum over i of 1 / (sum over j of max(p_j / p_i, q_j / q_i)). It lies between
    (1 - d) / (1 + d) and rejection sampling's 1 - d = sum of min(p, q)."""
    model, draft = two(seed, 1.5)
    p, q = (torch.softmax(logits.double(), 0).numpy() for logits in (model, draft))
    theory = sum(1 / np.maximum(p / p[i], q / q[i]).sum() for i in range(len(p)))
    overlap = float(np.minimum(p, q).sum())
    assert overlap / (2 - overlap) <= theory <= overlap
    counts, same = np.zeros(len(p), np.int64), 0
    for number in range(DRAWS):
        sampling = TokenSampling(1.0, 1.0, seed=number)
        token = select(model, sampling, 7)
        counts[token] += 1
        same += token == select(draft, sampling, 7)
    error = (theory * (1 - theory) / DRAWS) ** 0.5
    assert abs(same / DRAWS - theory) < SIGMAS * error
    assert fit(counts, p).p_value > 1e-6, "whatever is drafted, the text is the model's"


class OracleDrafter:
    """Knows the answer, and drafts it with a probability, else something else."""

    exits: tuple[int, ...] = ()

    def __init__(self, answer: Sequence[int], right: float, drafts: int, seed: int) -> None:
        self.answer, self.right, self.max_drafts = answer, right, drafts
        self.draw = random.Random(seed)

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        for stream in streams:
            for _ in range(stream.room(self.max_drafts)):
                place = len(stream.tokens) - len(stream.prompt)
                token = self.answer[place]
                wrong = self.draw.random() >= self.right
                stream.tokens.append((token + 1) % 97 if wrong else token)
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        return {}

    def reset(self) -> None:
        """Nothing to forget."""


@pytest.mark.parametrize(("right", "drafts"), [(0.8, 4), (0.5, 3), (0.9, 12)])
def test_tokens_of_a_verification(right: float, drafts: int) -> None:
    """(1 - a^(k+1)) / (1 - a) with k drafts that each stand with probability a (Leviathan et al.,
    2023, equation 1)."""
    model = random_model("llama")
    found, counted = 0, 0
    for start in range(20):
        stream = Stream(f"s{start}", (start + 1, 2), LENGTH, frozenset(), GREEDY)
        answer = _decoded(Decoder(open_executor(model, (), 1)), stream)
        oracle = OracleDrafter([*answer, 0], right, drafts, start)
        again = Stream("again", (start + 1, 2), LENGTH, frozenset(), GREEDY)
        steps = _steps(Decoder(open_executor(model, (), 1), oracle), again)
        place = steps[0]  # the prompt's own
        for tokens in steps[1:]:
            if place + drafts + 1 <= LENGTH:  # the end leaves no room for all drafts
                found, counted = found + tokens, counted + 1
            place += tokens
    mean = (1 - right ** (drafts + 1)) / (1 - right)
    assert found / counted == pytest.approx(mean, rel=0.08)


def _steps(decoder: Decoder, stream: Stream) -> list[int]:
    """Tokens of each step."""
    decoder.add(stream)
    found = []
    while outputs := decoder.step():
        found += [len(one.tokens) for one in outputs if one.tokens]
    return found


def _decoded(decoder: Decoder, stream: Stream) -> list[int]:
    decoder.add(stream)
    found: list[int] = []
    while outputs := decoder.step():
        found += [token for one in outputs for token in one.tokens]
    return found
