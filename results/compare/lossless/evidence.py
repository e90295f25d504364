"""What a cell's answers say of whether they are another's: which prompts' answers differ, where the
texts fork, and how sure the other one was there. Kept as plain data, and added up over cells.

Answers are paired request by request: what is asked again as ID#2 with the other's ID#2, which may
have a seed of its own. What the pairs of one prompt come to is one piece of evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from harness.core.names import row_id
from results.compare.agreement import MARGIN_PREFIX, Agreement
from results.compare.lossless.sampled import Draws, draws_of, same_distribution
from results.compare.pairing import ComparableTrials, Member, Versus
from results.metrics.arrays import RequestArrays


class TextFork(TypedDict):
    """Where an answer first leaves the other's."""

    request: str
    token: int
    """Index of the first differing token."""
    margin: float | None
    """Of the other's two best logits there; None where nobody recorded it."""


class TextEvidence(TypedDict):
    """A cell's answers against another's, all repeats."""

    pairs: int
    """Requests that both completed and of which all token ids are known, over all repeats."""
    equal: int
    requests: int
    """Different prompts among the pairs: greedy decoding repeats itself."""
    differing: dict[str, list[int]]
    """Prompt (`row_id`) -> [equal pairs, pairs], of those with a pair that differs."""
    asked: dict[str, int]
    """Prompt -> pairs."""
    forks: list[TextFork]
    """Each place once."""
    draws: dict[str, Any] | None
    """`SampledTest` as plain data, of sampled text whose draws are others than the reference's."""


class Margins:
    """The top-2 logit margins that some trial of a backend recorded."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._trials = [
            (found, {name: row for row, name in enumerate(found.ids)})
            for member in members
            if (found := member.requests) is not None and member.trial.options.get("margins")
        ]

    def at(self, request: str, tokens: np.ndarray) -> float | None:
        """The margin behind these tokens of an answer, of whichever trial has the same ones."""
        for requests, places in self._trials:
            row = places.get(request)
            if row is None:
                continue
            start = requests.token_start[row]
            known = requests.token_ids[start : requests.token_start[row + 1]][: len(tokens)]
            if np.array_equal(known, tokens):
                margin = requests.telemetry_of(row).get(f"{MARGIN_PREFIX}{len(tokens)}")
                if margin is not None:
                    return float(margin)
        return None


def recorded_margins(group: ComparableTrials, repeats: Mapping[int, Member]) -> Margins:
    """Those of the backend that the trials of `repeats` are of: any options of it will do, since
    a margin is taken only where the tokens before it are the same."""
    names = {member.trial.backend for member in repeats.values()}
    return Margins(member for member in group.members if member.trial.backend in names)


def against_another(
    same: Sequence[Member], pairs: Sequence[Versus | None], margins: Margins
) -> TextEvidence:
    """The evidence of the repeats of one cell, each against its pair."""
    compared = [
        (member.requests, pair.other.requests, pair.agreement)
        for member, pair in zip(same, pairs, strict=True)
        if member.requests is not None and pair is not None and pair.other is not member
    ]
    return _evidence(compared, margins)


def against_itself(
    pairs: Iterable[tuple[Member, Member, Agreement]], margins: Margins
) -> TextEvidence:
    """The evidence of a backend's repeats against one another (`with_itself`): its noise floor."""
    return _evidence([(one.requests, other.requests, how) for one, other, how in pairs], margins)


def sampled(same: Sequence[Member], other: Member) -> dict[str, Any] | None:
    """The test on distributions of a cell against a trial of another engine; of one repeat, since
    all repeats have the same seeds. None where no prompt was asked often enough."""
    first = next((m.requests for m in same if m.requests is not None), None)
    if first is None or other.requests is None:
        return None
    ours, theirs = draws_of(first), draws_of(other.requests)
    prompts: list[tuple[Draws, Draws]] = [
        (ours[name], theirs[name]) for name in ours if name in theirs
    ]
    found = same_distribution(prompts)
    return None if found is None else found._asdict()


def is_sampled(member: Member) -> bool:
    """Whether its tokens are drawn."""
    return member.trial.sampling.temperature > 0


def _evidence(
    compared: Iterable[tuple[RequestArrays | None, RequestArrays | None, Agreement]],
    margins: Margins,
) -> TextEvidence:
    places: dict[str, int] = {}
    forks: dict[tuple[str, int], TextFork] = {}
    names: list[str] = []
    numbers = np.zeros(0, np.int64)
    asked: list[np.ndarray] = []
    differing: list[np.ndarray] = []
    for this, other, agreement in compared:
        assert this is not None
        assert other is not None
        if this.ids != names:
            names, known = this.ids, set(this.ids)
            prompts = [row_id(name, known) for name in names]
            numbers = np.array([places.setdefault(row, len(places)) for row in prompts], np.int64)
        unequal = np.flatnonzero(~agreement.equal())
        asked.append(numbers[agreement.rows])
        differing.append(numbers[agreement.rows[unequal]])
        for place in unequal:
            name, token = this.ids[agreement.rows[place]], int(agreement.divergence[place])
            if (name, token) not in forks:
                start = int(other.token_start[agreement.other_rows[place]])
                margin = margins.at(name, other.token_ids[start : start + token])
                forks[name, token] = TextFork(request=name, token=token, margin=margin)
    pairs = np.bincount(np.concatenate([*asked, []]).astype(np.int64), minlength=len(places))
    other_pairs = np.bincount(
        np.concatenate([*differing, []]).astype(np.int64), minlength=len(places)
    )
    names = list(places)
    return TextEvidence(
        pairs=int(pairs.sum()),
        equal=int(pairs.sum() - other_pairs.sum()),
        requests=int((pairs > 0).sum()),
        differing={
            names[n]: [int(pairs[n] - other_pairs[n]), int(pairs[n])]
            for n in np.flatnonzero(other_pairs)
        },
        asked={names[n]: int(pairs[n]) for n in np.flatnonzero(pairs)},
        forks=list(forks.values()),
        draws=None,
    )
