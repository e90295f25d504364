"""Traces made from rates: how often a method leaves where, how often it is right, how long answers
are."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from harness.core.errors import UserError, nearest
from harness.core.nouns import FinishReason
from results.traces.recorded import Counts, DecisionTrace, TraceRow

SAMPLES, SAMPLE_TOKENS = 64, 256
"""Rows that stand for all, and their length where the rates give none."""
SAMPLE_MOST_TOKENS = 4096
"""Of a row that stands for all: a longer one shows no more of the rates, and takes long to draw."""
SPREAD = 4.0
"""Sum of the two parameters of the beta distribution that lengths are drawn from: it has a single
peak, inside the bounds, for means in the middle half of them."""
LENGTHS = ("mean", "min", "max")
MEAN = ("length", "drafts")
MOST_PLACES = 64
"""Of a chain of drafts."""
_NONE: Counts = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Rates:
    """A trace that is made as it is asked for, from the request's id and a seed alone.

    A token's decision is drawn from the shares; with probability `correlation` it is that of the
    token before, which leaves the shares as they are. A token that leaves at an exit is sure there
    and at all later ones (confidence 1), and unsure before (0). The last token of an answer never
    leaves early: a stop token is never said early.
    """

    method: ClassVar[None] = None
    thresholds: ClassVar[tuple[float, ...]] = ()
    settings: ClassVar[Mapping[str, Any]] = {}
    fractions: tuple[float, ...]
    """Each exit's depth as a share of the model's, ascending."""
    shares: tuple[float, ...]
    """Of the tokens that leave at each exit."""
    acceptance: float | None
    """Probability that a token which leaves early is the last layer's; None where only drafts are
    spoken of."""
    chain: tuple[float, ...]
    """By its place in a chain, the probability that a draft stands where all before it do; the last
    one goes for later places too. Empty: not told."""
    found: float
    """Share of the tokens after which a search of the text finds something to draft."""
    length: tuple[float, int, int] | None
    """Mean, least and most tokens of an answer; None: as many as are asked for."""
    correlation: float
    seed: int

    def row_for(self, request_id: str, max_new_tokens: int, *, ignore_eos: bool) -> TraceRow:
        """The row that a request replays; as long as it may be where its end is ignored."""
        draw = random.Random(f"{self.seed} {request_id}")
        drawn = self._tokens(draw)
        tokens = max_new_tokens if ignore_eos or drawn is None else min(drawn, max_new_tokens)
        positions = np.arange(tokens - 1, dtype=np.int32)
        left, right = self._decisions(draw, len(positions))
        exits = np.arange(len(self.shares))
        confidence = (exits[None, :] >= left[:, None]).astype(np.float32)
        agrees = np.repeat(right[:, None], len(exits), 1).astype(np.int8)
        finished: FinishReason = "length" if tokens == max_new_tokens else "stop"
        return TraceRow(
            "", request_id, 0, tokens, finished, positions, confidence, agrees, _NONE, _NONE, _NONE
        )

    def samples(self) -> Sequence[TraceRow]:
        """Rows that stand for all: some."""
        most = SAMPLE_TOKENS if self.length is None else min(self.length[2], SAMPLE_MOST_TOKENS)
        return [self.row_for(f"sample {n}", most, ignore_eos=False) for n in range(SAMPLES)]

    def _tokens(self, draw: random.Random) -> int | None:
        if self.length is None:
            return None
        mean, low, high = self.length
        if low == high:
            return low
        place = (mean - low) / (high - low)
        return round(low + (high - low) * draw.betavariate(SPREAD * place, SPREAD * (1 - place)))

    def _decisions(self, draw: random.Random, count: int) -> tuple[Counts, Counts]:
        """Of each position, the exit at which it leaves (beyond the last: at none), and whether the
        token said there is right."""
        exits = range(len(self.shares) + 1)
        weights = [*self.shares, max(0.0, 1.0 - sum(self.shares))]
        left, right = np.zeros(count, np.int32), np.zeros(count, np.int32)
        for place in range(count):
            if place and draw.random() < self.correlation:
                left[place], right[place] = left[place - 1], right[place - 1]
            else:
                left[place] = draw.choices(exits, weights)[0]
                right[place] = draw.random() < (self.acceptance or 0.0)
        if count:
            left[-1] = len(self.shares)
        return left, right


TraceSource = DecisionTrace | Rates
"""Where a replay finds its rows."""
KEYS = ("name", "exits", "acceptance", "found", "length", "correlation", "seed")
"""A name decides nothing: tables show it in the place of the numbers."""


def parse_rates(given: Mapping[str, Any], where: str) -> Rates:
    """The rates of an experiment file; `where` begins every error line. Raises `UserError`."""
    for key in given:
        if key not in KEYS:
            raise UserError(f"{where}.{key}: unknown key; {nearest(str(key), KEYS)}")
    name = given.get("name", "rates")
    if not isinstance(name, str) or not name:
        raise UserError(f"{where}.name: expected a text, got {name!r}")
    shares = _exits(given.get("exits", {}), f"{where}.exits")
    correlation = _share(given.get("correlation", 0.0), f"{where}.correlation")
    if correlation == 1:
        raise UserError(f"{where}.correlation: expected a number from 0 to below 1, got 1")
    acceptance, chain = _acceptance(given.get("acceptance"), f"{where}.acceptance")
    seed = given.get("seed", 0)
    if not _is_count(seed, 0):
        raise UserError(f"{where}.seed: expected a whole number of at least 0, got {seed!r}")
    return Rates(
        fractions=tuple(shares),
        shares=tuple(shares.values()),
        acceptance=acceptance,
        chain=chain,
        found=_share(given.get("found", 1.0), f"{where}.found"),
        length=_length(given.get("length"), f"{where}.length"),
        correlation=correlation,
        seed=seed,
    )


def _acceptance(given: Any, where: str) -> tuple[float | None, tuple[float, ...]]:
    """The fields `acceptance` and `chain`: of a number; of the shares of the verifications in which
    the draft of each place stands, as servers log them; of a mean acceptance length."""
    if given is None:
        return 1.0, ()
    if isinstance(given, Mapping):
        return None, (_of_length(given, where),)
    if not isinstance(given, list):
        found = _share(given, where)
        return found, (found,)
    shares = [_share(value, f"{where}: place {place}") for place, value in enumerate(given, 1)]
    if not 0 < len(shares) <= MOST_PLACES:
        raise UserError(f"{where}: expected 1 to {MOST_PLACES} shares, got {len(shares)}")
    for place, (before, share) in enumerate(itertools.pairwise(shares), 2):
        if share > before:
            raise UserError(
                f"{where}: place {place}: is {share:g}, and the place before {before:g}; expected "
                "no more: a draft stands only where those before it do"
            )
    befores = [1.0, *shares[:-1]]
    return None, tuple(s / b if b else 0.0 for b, s in zip(befores, shares, strict=True))


def _of_length(given: Mapping[str, Any], where: str) -> float:
    """The acceptance at which verifications of so many drafts bring so many tokens on average:
    (1 - a^(k + 1)) / (1 - a) (Leviathan et al., 2023, equation 1)."""
    for key in given:
        if key not in MEAN:
            raise UserError(f"{where}.{key}: unknown key; {nearest(str(key), MEAN)}")
    if missing := [key for key in MEAN if key not in given]:
        raise UserError(f"{where}: the key '{missing[0]}' is missing")
    drafts, length = given["drafts"], given["length"]
    if not _is_count(drafts, 1) or drafts > MOST_PLACES:
        raise UserError(
            f"{where}.drafts: expected a whole number from 1 to {MOST_PLACES}, got {drafts!r}"
        )
    number = None if isinstance(length, str) else _number(length)
    if number is None or not 1 <= number <= drafts + 1:
        raise UserError(
            f"{where}.length: expected the tokens of a verification, 1 to {drafts + 1} with "
            f"{drafts} drafts, got {length!r}"
        )
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if sum(middle**place for place in range(drafts + 1)) < number:
            low = middle
        else:
            high = middle
    return high


def _exits(given: Any, where: str) -> dict[float, float]:
    """Depth -> share of the tokens that leave there, ascending."""
    if not isinstance(given, Mapping):
        raise UserError(f"{where}: expected a mapping of depths to shares, got {given!r}")
    found: dict[float, float] = {}
    for key, value in given.items():
        depth = _number(key)
        if depth is None or not 0 < depth < 1:
            raise UserError(
                f"{where}: {key!r}: expected a depth between 0 and 1, as a share of the layers"
            )
        if depth in found:
            raise UserError(f"{where}: the depth {depth:g} stands twice")
        found[depth] = _share(value, f"{where}.{key}")
    if (total := sum(found.values())) > 1 + 1e-9:
        raise UserError(f"{where}: the shares add up to {total:g}; expected at most 1")
    return dict(sorted(found.items()))


def _length(given: Any, where: str) -> tuple[float, int, int] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        if not _is_count(given, 1):
            expected = "a whole number of at least 1, or {mean, min, max}"
            raise UserError(f"{where}: expected {expected}, got {given!r}")
        return float(given), given, given
    for key in given:
        if key not in LENGTHS:
            raise UserError(f"{where}.{key}: unknown key; {nearest(str(key), LENGTHS)}")
    if missing := [key for key in LENGTHS if key not in given]:
        raise UserError(f"{where}: the key '{missing[0]}' is missing")
    for key in ("min", "max"):
        if not _is_count(given[key], 1):
            got = f"got {given[key]!r}"
            raise UserError(f"{where}.{key}: expected a whole number of at least 1, {got}")
    mean, low, high = _number(given["mean"]), given["min"], given["max"]
    if mean is None or not (low < mean < high or low == mean == high):
        raise UserError(f"{where}.mean: expected a number between min and max, got {mean!r}")
    return mean, low, high


def _share(value: Any, where: str) -> float:
    number = None if isinstance(value, str) else _number(value)
    if number is None or not 0 <= number <= 1:
        raise UserError(f"{where}: expected a number from 0 to 1, got {value!r}")
    return number


def _number(value: Any) -> float | None:
    """None for what is no finite number; a key of a mapping may have become text."""
    if isinstance(value, bool):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _is_count(value: Any, least: int) -> bool:
    most = 10_000_000
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
