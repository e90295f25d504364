"""Do two engines draw text from the same distribution? Their draws differ, so texts cannot be
compared; how often each token follows the same beginning can.

At every beginning (of the same prompt) that both engines reached often enough the two counts of the
next token are compared by Pearson's chi-square for two samples, rare tokens put together; Fisher
(1932) combines the p values into one statistic. Deep beginnings are reached by few draws, where
p values from the chi-square distribution do not hold: so the statistic itself is referred to what
it comes to when whole answers to a prompt change sides at random. That is exact for any count,
since equal distributions make the answers exchangeable (Pitman 1937).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from harness.core.names import row_id
from results.metrics.arrays import Floats, RequestArrays

FEWEST = 5
"""Answers of each side that pass through a beginning that is compared; tokens that followed it less
often, on both sides together, share a bin (Cochran 1954). With so few a side that never gives the
other's answer is still told from it: p = 1 / 126."""
SHUFFLES = 1999
DEEPEST = 64
"""Tokens: beginnings that are longer are shared by few."""

Draws = Sequence[tuple[int, ...]]
"""Answers to one prompt."""


class SampledTest(NamedTuple):
    """What the test came to."""

    p_value: float
    """Of the answers if both sides have the same distribution; at least 1 / (SHUFFLES + 1). 1 where
    no beginning could be compared."""
    distance: float
    """The total variation distance of the next token, about: the mean over all draws, less what
    equal distributions would show by chance. 0 to 1."""
    prompts: int
    beginnings: int
    draws: int
    """Answers of both sides."""
    alike: bool
    """Whether every answer to a prompt is the same one on both sides, to those too that were asked
    too seldom to be compared."""


class _Beginning(NamedTuple):
    """Next tokens of the answers that share a beginning."""

    members: np.ndarray
    """(S, bins) which answers go on with which bin."""


def draws_of(requests: RequestArrays) -> dict[str, list[tuple[int, ...]]]:
    """The completed answers to each prompt, which is asked again as ID#2, ID#3 and so on."""
    usable = requests.completed & requests.known
    known, found = set(requests.ids), dict[str, list[tuple[int, ...]]]()
    for row in np.flatnonzero(usable):
        start, end = requests.token_start[row], requests.token_start[row + 1]
        tokens = tuple(requests.token_ids[start:end].tolist())
        found.setdefault(row_id(requests.ids[row], known), []).append(tokens)
    return found


def same_distribution(prompts: Sequence[tuple[Draws, Draws]]) -> SampledTest | None:
    """Test the answers of two sides, (ours, theirs) for each prompt, drawn independently of each
    other. None where no prompt has enough of both."""
    rng = np.random.default_rng(0)
    statistic, distance = np.zeros(SHUFFLES + 1), np.zeros(SHUFFLES + 1)
    weight = np.zeros(SHUFFLES + 1)
    beginnings = draws = used = 0
    alike = True
    for ours, theirs in prompts:
        alike = alike and len({*ours, *theirs}) <= 1
        if min(len(ours), len(theirs)) < FEWEST:
            continue
        used, draws = used + 1, draws + len(ours) + len(theirs)
        sides = _sides(len(ours), len(theirs), rng)
        for beginning in _beginnings([*ours, *theirs]):
            left = sides @ beginning.members
            right = beginning.members.sum(0) - left
            counted = (left.sum(1) >= FEWEST) & (right.sum(1) >= FEWEST)
            beginnings += int(counted[0])
            found, apart = _compared(left[counted], right[counted])
            statistic[counted] += found
            passing = float(beginning.members.sum())
            distance[counted] += passing * apart
            weight[counted] += passing
    if not used:
        return None
    mean = distance / np.maximum(weight, 1)
    p_value = float((statistic[1:] >= statistic[0] - 1e-9).sum() + 1) / (SHUFFLES + 1)
    # what is there and what chance adds are independent: their squares add up
    beyond = math.sqrt(max(0.0, float(mean[0] ** 2 - mean[1:].mean() ** 2)))
    return SampledTest(p_value, beyond, used, beginnings, draws, alike)


def _sides(ours: int, theirs: int, rng: np.random.Generator) -> Floats:
    """(SHUFFLES + 1, S) 1 for the answers on our side: first as they are, then shuffled."""
    real = np.repeat([1.0, 0.0], [ours, theirs])
    shuffled = rng.permuted(np.tile(real, (SHUFFLES, 1)), axis=1)
    return np.concatenate((real[None], shuffled))


def _beginnings(answers: Sequence[tuple[int, ...]]) -> Iterator[_Beginning]:
    """Those after which more than one token came, and which enough answers share."""
    waiting = [(0, list(range(len(answers))))]
    while waiting:
        depth, places = waiting.pop()
        going_on = [place for place in places if len(answers[place]) > depth]
        if len(going_on) < 2 * FEWEST or depth >= DEEPEST:
            continue
        followers: dict[int, list[int]] = {}
        for place in going_on:
            followers.setdefault(answers[place][depth], []).append(place)
        waiting += [(depth + 1, found) for found in followers.values()]
        bins = _binned(followers)
        if len(bins) > 1:
            members = np.zeros((len(answers), len(bins)))
            for column, found in enumerate(bins):
                members[found, column] = 1
            yield _Beginning(members)


def _binned(followers: dict[int, list[int]]) -> list[list[int]]:
    sizes = Counter({token: len(places) for token, places in followers.items()})
    rare = [token for token, count in sizes.items() if count < FEWEST]
    bins = [places for token, places in followers.items() if token not in rare]
    return [*bins, sorted(p for token in rare for p in followers[token])] if rare else bins


def _compared(left: Floats, right: Floats) -> tuple[Floats, Floats]:
    """For (N, bins) counts of both sides: (N,) -2 ln p of the chi-square test, and the total
    variation distance of the two shares."""
    ours, theirs = left.sum(1, keepdims=True), right.sum(1, keepdims=True)
    pooled = (left + right) / (ours + theirs)
    difference = left / ours - right / theirs
    chi_square = (difference**2 / pooled).sum(1) / (1 / ours + 1 / theirs)[:, 0]
    logs = log_chi_square_tail(chi_square, left.shape[1] - 1)
    return -2 * logs, np.abs(difference).sum(1) / 2


def log_chi_square_tail(values: Floats, degrees: int) -> Floats:
    """ln P(X > value) of the chi-square distribution."""
    from scipy.special import chdtrc

    return np.asarray(np.log(np.maximum(chdtrc(degrees, values), 1e-300)))


def fisher(p_values: Sequence[float]) -> float:
    """Fisher's combination (1932) of the p values of different prompts."""
    if len(p_values) == 1:
        return p_values[0]
    total = -2 * np.log(p_values).sum(keepdims=True)
    return float(np.exp(log_chi_square_tail(total, 2 * len(p_values)))[0])
