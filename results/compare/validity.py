"""Which numbers of a trial may be believed, and for each that may not, why.

A trial that is unsound by itself has no number that holds. Where only what it is set against is
unsound, or was measured at another time, its own numbers stand and those of the comparison are
void. Where answers have other lengths than the reference's the trial is valid, and void is only
what compares unequal work. `results.compare.reasons` has the reasons by name, and
`results.compare.pooling` says which repeats a cell does without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from harness.core.names import REJECTION_SAMPLING, repeat_label
from harness.core.nouns import Validity
from results import registry
from results.compare import agreement
from results.compare.pairing import ComparableTrials, Member, Versus, plain_decoding
from results.compare.reasons import (
    CELL_NOT_VALID,
    CODE_CHANGED,
    PASSING,
    REMARKS,
    answers_hold,
    slug,
)

APART_LIMIT_S = 6 * 3600.0
"""So far apart may the halves of a pair be measured: a quarter of a day. Beyond it a shared machine
is at another hour of its load, and a card in a room of another temperature."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What trials are set against, and the metrics that come of it."""

    slug: str
    """Begins the reasons that are not the reference's."""
    name: Literal["reference", "native"]

    @property
    def speed(self) -> tuple[str, ...]:
        """Metrics that compare speed."""
        return registry.void_with(f"{self.name} speed")

    @property
    def answers(self) -> tuple[str, ...]:
        """Metrics that compare answers."""
        return registry.void_with(f"{self.name} answers")


REFERENCE = Comparison("", "reference")
NATIVE = Comparison("native-", "native")


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason against a comparison."""

    text: str
    names: tuple[str, ...]
    """Metrics that it makes void."""
    passes: bool
    """Whether the comparison may be free of it when it is measured again."""


@dataclass(frozen=True, slots=True)
class Reasons:
    """Reasons against a trial, and the names of the metrics that they make void."""

    valid: bool
    reasons: tuple[str, ...]
    void: tuple[str, ...]
    passing: frozenset[str] = frozenset()
    """Those of `void` whose reasons may pass: measured again they may hold."""
    is_passing: bool = False
    """Not valid, and only for reasons that may pass."""


def alone(member: Member, group: ComparableTrials, same: Iterable[Member]) -> Validity:
    """The verdict on a trial whatever the reference is: the record's own (which may give reasons
    that concern single percentiles and still be valid), that it ended well, that its answers are
    plain decoding's where the backend promised them, and that one code ran its cell, `same`."""
    record = member.stored.record
    found: list[str] = []
    if record.status != "ok":
        found.append(f"failures: the trial ended as '{record.status}'")
    if (broken := broken_promise(member, group)) is not None:
        found.append(broken)
    if (codes := len({one.stored.code for one in same})) > 1:
        found.append(
            f"{CODE_CHANGED}: repeats of the cell were run by {codes} versions of the code; 'run' "
            "measures those of older ones again, '--fresh' all"
        )
    return Validity(record.validity.valid and not found, (*record.validity.reasons, *found))


def broken_promise(member: Member, group: ComparableTrials) -> str | None:
    """The reason that marks a trial whose text is not that of the plain decoding which it promised;
    None where it is, or nothing tells."""
    plain = plain_decoding(member, group)
    if plain is None or plain is member or member.requests is None or plain.requests is None:
        return None
    pairs = agreement.compare(member.requests, plain.requests)
    return agreement.not_lossless(pairs, member.requests.ids)


def is_passing(verdict: Validity) -> bool:
    """Whether a trial is unsound, and only for what may pass when it is measured again."""
    slugs = {slug(reason) for reason in verdict.reasons} - REMARKS
    return not verdict.valid and bool(slugs) and slugs <= PASSING


def judge(
    member: Member,
    compared: Iterable[tuple[Comparison, Versus | None]],
    own: Mapping[str, Validity],
    metrics: Sequence[str],
) -> Reasons:
    """The whole verdict on a trial. `compared`: what it is set against, the reference first; `own`:
    trial key -> `alone`, of the whole group; `metrics`: all names."""
    verdict = own[member.stored.record.key]
    reasons, beside, void, lasting = list(verdict.reasons), set[str](), set[str](), set[str]()
    elsewhere, kept = set[str](), set[str]()
    told: list[Member] = []
    for baseline, against in compared:
        if against is None or against.other is member:
            continue
        if baseline is REFERENCE and (text := agreement.length_mismatch(against.agreement)):
            reasons.append(text)
            beside.update(registry.unequal_work())
        if text := _other_draws(member, against.other, baseline):
            reasons.append(text)
            beside.update(baseline.answers)
        doubts = list(_doubts(member, against, baseline, own[against.other.stored.record.key]))
        if baseline is NATIVE and _on_another_engine(member, against.other):
            # what another engine's noise does to a ratio across engines says nothing of the trial
            for doubt in doubts:
                (elsewhere if doubt.passes else kept).update(doubt.names)
            continue
        if not any(against.other is other for other in told):
            reasons += [doubt.text for doubt in doubts]
        for doubt in doubts:
            void.update(doubt.names)
            lasting.update(doubt.names * (not doubt.passes))
        told.append(against.other)
    doubtful = {name for name in metrics if not verdict.valid or name in void}
    if not verdict.valid and not is_passing(verdict):
        lasting = doubtful
    names = tuple(name for name in metrics if name in doubtful | beside | elsewhere | kept)
    passing = frozenset((doubtful | elsewhere - kept) - lasting)
    gone = bool(doubtful) and not lasting
    return Reasons(not doubtful, tuple(reasons), names, passing, gone)


def _on_another_engine(member: Member, native: Member) -> bool:
    """Whether plain decoding on our own engine, which names its kernels, is compared with a backend
    that has none of them."""
    return member.stored.record.backend is not None and (
        has_kernels(native) and not has_kernels(member)
    )


def has_kernels(member: Member) -> bool:
    """Whether it ran on our own engine, which names its kernels."""
    backend = member.stored.record.backend
    return backend is not None and backend.options.get("kernels") is not None


def tell_of_the_cell(rows: Sequence[dict[str, Any]], void: Collection[str]) -> None:
    """Where a number of the whole cell is void, it is so in the rows of all repeats, and where it
    is not, in none: change their `void_metrics`, and add a remark that leaves them valid otherwise.

    `void`: names of the cell's metrics that are.
    """
    every = registry.of_the_cell()
    lost = [name for name in every if name in void]
    repeats = [repeat_label(r["repeat"]) for r in rows if {*lost} & {*r["void_metrics"]}]
    for row in rows:
        held = [name for name in row["void_metrics"] if name not in every or name in lost]
        row["void_metrics"] = held
        names = [n for n in lost if n not in row["void_metrics"] and row[n] is not None]
        if names:
            row["void_metrics"] = [*row["void_metrics"], *names]
            row["invalid_reasons"] = [
                *row["invalid_reasons"],
                f"{CELL_NOT_VALID}: {', '.join(names)} pool all repeats, and these do not hold in "
                f"repeat {', '.join(repeats)}",
            ]


def _doubts(
    member: Member, against: Versus, baseline: Comparison, verdict: Validity
) -> Iterable[Doubt]:
    other = against.other
    name = f"{other.trial.backend}, repeat {repeat_label(other.trial.repeat)},"
    timed = against.log_ratios is not None
    if not verdict.valid:
        slugs = list(dict.fromkeys(slug(reason) for reason in verdict.reasons))
        both = not answers_hold(verdict)
        names = baseline.speed * timed + baseline.answers * both
        what = " and ".join(["speed"] * timed + ["answers"] * both)
        if names:
            yield Doubt(
                f"{baseline.slug or 'reference-'}not-valid: {name} is not valid "
                f"({', '.join(slugs)}): what compares {what} with it is void",
                names,
                is_passing(verdict),
            )
    if timed and (why := apart(member, other)):
        told = f"{baseline.slug}pairs-apart: {name} {why}: what compares speed with it is void"
        yield Doubt(told, baseline.speed, passes=True)


def _other_draws(member: Member, other: Member, baseline: Comparison) -> str | None:
    """The remark on sampled answers whose seeds the two turn into other random numbers."""
    if not other_draws(member, other):
        return None
    return (
        f"{baseline.slug}other-draws: {other.trial.backend} turns the same seed into other random "
        "numbers: what compares answers with it is void"
    )


def other_draws(member: Member, other: Member) -> bool:
    """Whether both draw their tokens, and turn the same seed into other random numbers."""
    return member.trial.sampling.temperature > 0 and _draws(member) != _draws(other)


def _draws(member: Member) -> str:
    """What turns seeds into tokens: where it is the same, sampled texts are; else at most their
    distribution is."""
    backend = member.stored.record.backend
    if backend is None:
        return ""
    if REJECTION_SAMPLING in backend.capabilities:
        return REJECTION_SAMPLING
    return "own engine" if has_kernels(member) else "others"


def apart(one: Member, other: Member) -> str | None:
    """Why two trials are no pair of the same time; None where they are.

    The time between trials of one invocation of `run` comes from the clock that it kept (see
    `harness.measure.sweep`). Across invocations no clock is the same, and something may have
    changed in between: they are no pair. Imported trials have only the text of the wall clock.
    """
    mine, theirs = one.stored.record.environment, other.stored.record.environment
    if mine.get("invocation") != theirs.get("invocation"):
        return "was run by another invocation of 'run'"
    if mine.get("invocation") is None:
        begun = [_wall_clock_s(m.stored.record.started_at) for m in (one, other)]
    else:
        begun = [mine.get("since_invocation_s"), theirs.get("since_invocation_s")]
    if begun[0] is None or begun[1] is None:
        return None
    seconds = abs(begun[0] - begun[1])
    if seconds <= APART_LIMIT_S:
        return None
    return f"was run {seconds / 3600:.1f} h away (limit {APART_LIMIT_S / 3600:g} h)"


def _wall_clock_s(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
