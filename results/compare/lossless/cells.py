"""The evidence on the text of every cell of a group, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from results.compare.agreement import Agreement
from results.compare.lossless.evidence import (
    Margins,
    TextEvidence,
    against_another,
    against_itself,
    is_sampled,
    recorded_margins,
    sampled,
)
from results.compare.machines import settings
from results.compare.pairing import (
    NATIVE,
    ComparableTrials,
    Member,
    Versus,
    arithmetic,
    group_key,
    with_itself,
)
from results.compare.validity import has_kernels, other_draws
from results.store.records import StoredTrial


def in_settings(
    found: Sequence[Mapping[str, Any]], stored: Sequence[StoredTrial]
) -> list[dict[str, Any]]:
    """The evidence of a run's cells, each with what tells its setting from others of the run."""
    own = settings([one.record for one in stored])
    by_group = {group_key(one): own[one.record.key] for one in stored}
    return [{**one, "setting": by_group[one["group"]]} for one in found]


class GroupTexts:
    """Holds the answers of a group's cells against the reference's, and those of our own engine
    against plain decoding on it too."""

    def __init__(
        self, group: ComparableTrials, own_pairs: Sequence[tuple[Member, Member, Agreement]]
    ) -> None:
        """`own_pairs`: the reference's repeats against one another (`with_itself`)."""
        self._group = group
        self._own_pairs = [p for p in own_pairs if p[0].answers_stand and p[1].answers_stand]
        self._margins = {
            id(repeats): recorded_margins(group, repeats)
            for repeats in (group.reference, *group.natives)
        }

    def of_cell(
        self,
        same: Sequence[Member],
        pairs: Sequence[Versus | None],
        natives: Sequence[Versus | None],
    ) -> Iterator[dict[str, Any]]:
        """A row for each that the repeats of a cell are held against, where answers stand; none for
        replays, whose text is chance."""
        places = [place for place, member in enumerate(same) if member.answers_stand]
        same = [same[place] for place in places]
        pairs, natives = _standing(pairs, places), _standing(natives, places)
        if not same or any(member.stored.record.is_replay for member in same):
            return
        reference, native = self._group.reference, self._group.native(same[0])
        if reference:
            yield self._row(same, pairs, reference)
        if native and not _is_one_backend(reference, native) and has_kernels(same[0]):
            yield self._row(same, natives, native)

    def _row(
        self,
        same: Sequence[Member],
        pairs: Sequence[Versus | None],
        other: Mapping[int, Member],
    ) -> dict[str, Any]:
        first, theirs = same[0], other[min(other)]
        is_self = first.variant == theirs.variant
        evidence = self._evidence(same, pairs, other, is_self=is_self)
        drawn_otherwise = other_draws(first, theirs) and not is_self
        if drawn_otherwise:
            evidence["draws"] = sampled(same, theirs)
        trial, record = first.trial, first.stored.record
        return {
            "group": group_key(first.stored),
            "variant": first.variant,
            "backend": trial.backend,
            "options": dict(trial.options),
            "label": self._group.labels.get(first.variant),
            "lossless": record.backend.lossless if record.backend else None,
            "model": trial.model.label(),
            "dtype": trial.model.dtype,
            "machine": str(record.environment.get("fingerprint") or ""),
            "workload": trial.workload.name,
            "checksum": trial.workload.checksum or trial.workload.name,
            "load": trial.load.label(),
            "against": theirs.trial.backend,
            "is_self": is_self,
            "same_arithmetic": theirs.trial.backend == NATIVE
            and has_kernels(first)
            and arithmetic(first) == arithmetic(theirs),
            "other_draws": drawn_otherwise,
            "evidence": evidence,
        }

    def _evidence(
        self,
        same: Sequence[Member],
        pairs: Sequence[Versus | None],
        other: Mapping[int, Member],
        *,
        is_self: bool,
    ) -> TextEvidence:
        if is_self:
            is_reference = other is self._group.reference
            pairs_of_own = self._own_pairs if is_reference else with_itself(other, neighbours=True)
            return against_itself(pairs_of_own, self._margins[id(other)])
        if is_sampled(same[0]) and other_draws(same[0], other[min(other)]):
            return against_another((), (), Margins(()))
        return against_another(same, pairs, self._margins[id(other)])


def _standing(pairs: Sequence[Versus | None], places: Sequence[int]) -> list[Versus | None]:
    some = (pairs[place] for place in places)
    return [pair if pair and pair.other.answers_stand else None for pair in some]


def _is_one_backend(reference: Mapping[int, Member], native: Mapping[int, Member]) -> bool:
    return bool(reference) and (
        reference[min(reference)].trial.backend == native[min(native)].trial.backend
    )
