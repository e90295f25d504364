"""Do two trials give the same answers? Token ids are compared, lengths included; labels by name.

Requests are paired by id; their answers can be compared when both trials completed them and know
all token ids, their lengths already when both know the counts. Comparing is symmetric: swapping
the trials gives the same ratio and places of divergence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.metrics.arrays import Flags, Floats, Ints, RequestArrays

MARGIN_PREFIX = "top2_margin@"


@dataclass(frozen=True, slots=True)
class Agreement:
    """P paired requests of one trial against another's, and Q whose lengths at least are known."""

    rows: Ints
    """(P,) row of each pair in this trial."""
    other_rows: Ints
    """(P,) row of each pair in the other trial."""
    divergence: Ints
    """(P,) index of the first differing token, -1 where the ids are equal."""
    counted_rows: Ints
    """(Q,) row in this trial of each pair that both completed and counted, ids known or not."""
    tokens: Ints
    """(Q,) tokens of this trial's answer to each of these."""
    other_tokens: Ints
    """(Q,) tokens of the other's."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def length_differs(self) -> Flags:
        """(Q,) whether the two answers of such a pair have different numbers of tokens."""
        return np.asarray(self.tokens != self.other_tokens)

    @property
    def length_ratio(self) -> float | None:
        """All tokens of this trial's answers over those of the other's; None without any."""
        total = int(self.other_tokens.sum())
        return int(self.tokens.sum()) / total if total else None

    def equal(self) -> Flags:
        """(P,) whether the ids of a pair are equal."""
        return np.asarray(self.divergence < 0)


def pair(this: RequestArrays, other: RequestArrays) -> tuple[Ints, Ints]:
    """Rows of the requests that both trials completed."""
    if this.ids == other.ids:
        rows = others = np.arange(len(this))
    else:
        place = {request_id: row for row, request_id in enumerate(other.ids)}
        matched = np.array([place.get(request_id, -1) for request_id in this.ids], np.int64)
        rows = np.flatnonzero(matched >= 0)
        others = matched[rows]
    usable = this.completed[rows] & other.completed[others]
    return rows[usable], others[usable]


def compare(this: RequestArrays, other: RequestArrays, *, counts_hold: bool = True) -> Agreement:
    """Compare the token ids of two trials, for every request that has them in both, and the lengths
    of all others. `counts_hold`: both count what the engine made; where one was re-tokenised from
    text its counts may be off by the stop token, and only known ids tell a length."""
    rows, others = pair(this, other)
    told = this.known[rows] & other.known[others]
    counted = told | counts_hold
    counted_rows = rows[counted]
    tokens, other_tokens = this.tokens[counted_rows], other.tokens[others[counted]]
    rows, others = rows[told], others[told]
    length = np.diff(this.token_start)[rows]
    other_length = np.diff(other.token_start)[others]
    shared = np.minimum(length, other_length)
    divergence = np.where(length != other_length, shared, -1)
    places = np.flatnonzero(_tokens(this, rows, shared) != _tokens(other, others, shared))
    if len(places):
        end = np.cumsum(shared)
        pairs, first = np.unique(np.searchsorted(end, places, side="right"), return_index=True)
        divergence[pairs] = places[first] - (end - shared)[pairs]
    if this.labels is not None and other.labels is not None:
        divergence[this.labels[rows] != other.labels[others]] = 0
    return Agreement(rows, others, divergence, counted_rows, tokens, other_tokens)


def consistency_ratio(agreement: Agreement) -> float | None:
    """Share of paired requests whose token ids are equal, lengths included. None without pairs."""
    return float(np.mean(agreement.equal())) if len(agreement) else None


def first_divergence(agreement: Agreement) -> Floats:
    """Index of the first differing token of each diverging request (0 is the first output token;
    where one answer is the beginning of the other, the length of the shorter)."""
    return agreement.divergence[~agreement.equal()].astype(float)


def margin_at_divergence(
    agreement: Agreement, reference: RequestArrays, place: int
) -> float | None:
    """The reference's top-2 logit margin where pair number `place` first differs.

    A backend that knows the margin before output token i stores it in its telemetry under
    ``top2_margin@i`` (it may store small margins only). None where it did not.
    """
    told = reference.telemetry_of(int(agreement.other_rows[place]))
    return told.get(f"{MARGIN_PREFIX}{agreement.divergence[place]}")


def earliest_divergence(
    agreement: Agreement, this: RequestArrays, reference: RequestArrays
) -> tuple[int, str, float | None] | None:
    """The place where the trial's answers first leave the reference's: index of the token, request
    and `margin_at_divergence`. None where all answers are equal."""
    places = np.flatnonzero(~agreement.equal())
    if not len(places):
        return None
    place = int(places[np.argmin(agreement.divergence[places])])
    margin = margin_at_divergence(agreement, reference, place)
    return int(agreement.divergence[place]), this.ids[int(agreement.rows[place])], margin


def length_mismatch(agreement: Agreement) -> str | None:
    """The remark on a trial whose answers differ in length from the reference's: lossy and lossless
    backends alike did other work then, which is no fault of the trial."""
    count = int(agreement.length_differs.sum())
    if not count:
        return None
    change = 100 * ((agreement.length_ratio or 1.0) - 1)
    digits = ".2g" if abs(change) < 99.5 else ".0f"
    told = f"{abs(change):{digits}}% {'longer' if change > 0 else 'shorter'}"
    size = told if change else "as long"
    return (
        f"length-mismatch: {count} of {len(agreement.counted_rows)} answers differ in length from "
        f"the reference's, in all {size}: what compares unequal work is void, time per token "
        "stands (and `speedup_matched` compares equal lengths)"
    )


def not_lossless(agreement: Agreement, ids: Sequence[str]) -> str | None:
    """The reason that marks a trial which promised plain decoding's text and gave another. `ids`
    are the trial's own; None when all answers are equal."""
    places = np.flatnonzero(~agreement.equal())
    if not len(places):
        return None
    row, token = agreement.rows[places[0]], agreement.divergence[places[0]]
    return (
        f"not-lossless: {len(places)} of {len(agreement)} requests differ from autoregressive, "
        f"first at request {ids[row]} token {token}"
    )


def _tokens(requests: RequestArrays, rows: Ints, lengths: Ints) -> NDArray[np.int32]:
    """The first ``lengths[i]`` token ids of each ``rows[i]``, one after another."""
    whole = int(lengths.sum()) == len(requests.token_ids)
    if whole and np.array_equal(rows, np.arange(len(requests))):
        return requests.token_ids
    offset = requests.token_start[rows] - (np.cumsum(lengths) - lengths)
    places = np.repeat(offset, lengths) + np.arange(int(lengths.sum()))
    return np.asarray(requests.token_ids[places], np.int32)
