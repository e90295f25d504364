"""Which trials may be compared with which.

A *group* is the set of trials that differ in backend, options and repeat only: same model,
workload, load, requests, seed and machine, and all or none with replayed decisions. Within a group
every trial is set against the experiment's `reference` backend (the first options variant that it
lists of that kind), and against `autoregressive` with the same kernels and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.core.names import QUALITY, row_id
from harness.core.nouns import Load, Trial, canonical_json, to_json
from results.compare.agreement import Agreement, compare
from results.compare.decomposition import speedup_parts
from results.compare.reasons import FAILURES, answers_hold
from results.compare.stats import log_ratios, matched_log_ratios
from results.metrics.arrays import Floats, Ints, RequestArrays
from results.store.records import StoredTrial

NATIVE = "autoregressive"
_DIFFER = ("backend", "options", "repeat")
ARITHMETIC = ("kernels", "threads")
"""Options of our own engine that decide how numbers are rounded."""


@dataclass(frozen=True, slots=True)
class Member:
    """One stored trial with its requests; None when the trial did not end well."""

    stored: StoredTrial
    requests: RequestArrays | None

    @property
    def trial(self) -> Trial:
        """The cell that was run."""
        return self.stored.record.trial

    @property
    def variant(self) -> str:
        """Backend and options, as text that is equal for equal ones."""
        return variant(self.trial.backend, self.trial.options)

    @property
    def answers_stand(self) -> bool:
        """Whether nothing that was found while it ran is against its answers. Those of requests
        that failed are none, and the others' stand."""
        return answers_hold(self.stored.record.validity, FAILURES)


@dataclass(frozen=True, slots=True)
class Versus:
    """One trial against another of its group."""

    other: Member
    agreement: Agreement
    log_ratios: Floats | None
    """(R,) log speed-up per request of this trial, NaN where undefined; None across repeats, which
    are never paired for speed, and where answers alone count."""
    matched: Floats | None = None
    """(R,) the same at equal lengths; the very same array where no lengths differ."""
    parts: Mapping[str, Floats] | None = None
    """What the speed-ups are made of (`results.compare.decomposition`)."""


@dataclass(frozen=True, slots=True)
class ComparableTrials:
    """Trials that may be compared, and the repeats of the two that they are compared with."""

    members: Sequence[Member]
    reference: Mapping[int, Member]
    """Repeat -> trial of the reference; empty without one."""
    natives: Sequence[Mapping[int, Member]]
    """Likewise of each variant of `autoregressive`, as the experiment lists them; empty where it
    failed."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """By variant, what the experiment calls it, where it does."""

    def native(self, member: Member) -> Mapping[int, Member]:
        """Repeat -> trial of `autoregressive` that a trial is set against: of the first variant
        with its kernels and threads, else of the first (a stage of several has fewer threads).
        Where the first failed there is none."""
        if not self.natives or not self.natives[0]:
            return {}
        own = arithmetic(member)
        alike = (one for one in self.natives if one and arithmetic(one[min(one)]) == own)
        return next(alike, self.natives[0])


def arithmetic(member: Member) -> list[Any]:
    """Its values of `ARITHMETIC`, None where it names none."""
    backend = member.stored.record.backend
    return [None if backend is None else backend.options.get(name) for name in ARITHMETIC]


def variant(backend: str, options: Mapping[str, Any]) -> str:
    """Text that is equal for equal backend and options."""
    return canonical_json([backend, to_json(options)])


def group_key(stored: StoredTrial) -> str:
    """Equal for trials that may be compared with each other."""
    trial = to_json(stored.record.trial)
    machine = stored.record.environment.get("fingerprint")
    alike = {k: v for k, v in trial.items() if k not in _DIFFER}
    if stored.record.trial.load.kind == QUALITY:
        alike["load"] = QUALITY  # how many are in flight decides times, which nobody reads there
    return canonical_json([machine, alike, *["replay"] * stored.record.trial.replays])


def make_group(members: Sequence[Member], experiment: Mapping[str, Any]) -> ComparableTrials:
    """Find the group's reference and native trials (the latest one where a repeat is doubled)."""
    reference = experiment.get("reference")
    named = isinstance(reference, str) and _variants(members, reference, experiment)
    natives = [_repeats(members, one) for one in _variants(members, NATIVE, experiment)]
    return ComparableTrials(
        members,
        _repeats(members, named[0]) if named else {},
        natives,
        {
            variant(choice["name"], choice.get("options", {})): choice["label"]
            for choice in _choices(experiment, "backends")
            if choice.get("label")
        },
    )


def versus(member: Member, others: Mapping[int, Member]) -> Versus | None:
    """Set a trial against the same repeat of another backend. Where that repeat is missing the
    first one there is serves for the answers, but not for speed."""
    if member.requests is None or not others:
        return None
    repeat = member.trial.repeat
    other = others[repeat if repeat in others else min(others)]
    if other.requests is None:
        return None
    counts_hold = _counts_tokens(member) and _counts_tokens(other)
    agreement = compare(member.requests, other.requests, counts_hold=counts_hold)
    if other.trial.repeat != repeat or member.trial.load.kind == QUALITY:
        return Versus(other, agreement, None)
    logs = log_ratios(member.requests, other.requests)
    matched = matched_log_ratios(member.requests, other.requests, logs)
    parts = speedup_parts(member.requests, other.requests)
    return Versus(other, agreement, logs, matched, parts)


def _counts_tokens(member: Member) -> bool:
    """Whether the tokens were counted, by id or by a server, and not made from text again."""
    backend = member.stored.record.backend
    return backend is None or backend.options.get("token_counting") != "tokenizer"


def plain_decoding(member: Member, group: ComparableTrials) -> Member | None:
    """The trial of `autoregressive` whose token ids a lossless trial has promised to give: same
    repeat, same kernels and threads. None for a trial that promised nothing, and for a backend that
    names no kernels (vLLM's round differently, which is what the noise floor is for)."""
    backend = member.stored.record.backend
    if member.requests is None or backend is None or not backend.lossless:
        return None
    if backend.options.get("kernels") is None:
        return None
    for other in group.members:
        plain = other.stored.record.backend
        if (
            other.trial.backend == NATIVE
            and other.requests is not None
            and other.trial.repeat == member.trial.repeat
            and plain is not None
            and all(plain.options.get(n) == backend.options.get(n) for n in ARITHMETIC)
        ):
            return other
    return None


def data_rows(ids: Sequence[str]) -> Ints | None:
    """(R,) the number of the data row behind each request; None where no row is asked twice.

    A source with fewer rows than there are requests is asked again from its first row on, as
    ID#2, ID#3 and so on.
    """
    if not any("#" in name for name in ids):
        return None
    places = {name: place for place, name in enumerate(ids)}
    rows = np.array([places[row_id(name, places)] for name in ids])
    return rows if len(np.unique(rows)) < len(rows) else None


def with_itself(
    repeats: Mapping[int, Member], *, neighbours: bool = False
) -> list[tuple[Member, Member, Agreement]]:
    """The answers of a backend's repeats against one another's, each pair of repeats once, or of
    each repeat against the next one's only."""
    members = [repeats[r] for r in sorted(repeats)]
    return [
        (left, right, compare(left.requests, right.requests))
        for place, left in enumerate(members)
        for right in members[place + 1 : place + 2 if neighbours else None]
        if left.requests is not None and right.requests is not None
    ]


def noise_floor(agreements: Iterable[Agreement]) -> float | None:
    """Consistency of a backend with itself: the share of equal answers over all pairs of repeats
    (`with_itself`) and all requests. None with fewer than two repeats."""
    equal = count = 0
    for agreement in agreements:
        equal += int(agreement.equal().sum())
        count += len(agreement)
    return equal / count if count else None


def ordering(experiment: Mapping[str, Any]) -> Callable[[Trial], tuple[Any, ...]]:
    """A sort key: models, workloads and backends as the experiment lists them, load and repeat."""
    models = _places(_model_place(model) for model in _listed_models(experiment))
    workloads = _places(c["workload"]["name"] for c in _choices(experiment, "workloads"))
    names = _places(choice["name"] for choice in _choices(experiment, "backends"))
    variants = _places(
        variant(choice["name"], choice.get("options", {}))
        for choice in _choices(experiment, "backends")
    )

    def key(trial: Trial) -> tuple[Any, ...]:
        own = variant(trial.backend, trial.options)
        load, model = trial.load, _model_place(to_json(trial.model))
        return (
            models.get(model, len(models)),
            model,
            workloads.get(trial.workload.name, len(workloads)),
            trial.workload.name,
            _load_place(load),
            names.get(trial.backend, len(names)),
            trial.backend,
            variants.get(own, len(variants)),
            own,
            trial.repeat,
        )

    return key


def _load_place(load: Load) -> tuple[Any, ...]:
    """What is asked for the answers' sake stands last, whatever is in flight."""
    if load.kind == QUALITY:
        return True, load.kind
    return False, load.kind, load.concurrency or 0, load.rate or 0.0, load.label()


def _variants(members: Sequence[Member], backend: str, experiment: Mapping[str, Any]) -> list[str]:
    """Those of a backend that the experiment lists, in order, for replays those that replay; else
    those that there are."""
    replays = any(member.trial.replays for member in members)
    listed = [
        variant(choice["name"], choice.get("options", {}))
        for choice in _choices(experiment, "backends")
        if choice["name"] == backend
        and (choice.get("options", {}).get("replay") is not None) == replays
    ]
    found = {member.variant for member in members if member.trial.backend == backend}
    return listed or sorted(found)


def _repeats(members: Sequence[Member], wanted: str) -> dict[int, Member]:
    """Repeat -> trial of a variant. Where that one failed or is not run yet there is none: another
    in its place would be a reference that changes from cell to cell."""
    chosen = [m for m in members if m.variant == wanted and m.requests is not None]
    chosen.sort(key=lambda member: member.stored.record.started_at)
    return {member.trial.repeat: member for member in chosen}


def _choices(experiment: Mapping[str, Any], key: str) -> list[Any]:
    listed = experiment.get(key)
    return [c for c in listed if isinstance(c, dict)] if isinstance(listed, list) else []


def _listed_models(experiment: Mapping[str, Any]) -> list[Any]:
    listed = experiment.get("model")
    models = listed if isinstance(listed, list) else [listed]
    return [model for model in models if isinstance(model, dict)]


def _model_place(model: Mapping[str, Any]) -> str:
    """Name and layers, which tell the models of a run apart."""
    return f"{model.get('name')} {model.get('layers')}"


def _places(names: Iterable[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for name in names:
        places.setdefault(name, len(places))
    return places
