"""A run cut down to what the gate compares: values and answers of each request of each trial."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.core.errors import UserError
from harness.core.nouns import Trial, Workload, canonical_json, to_json
from results.compare.reasons import FAILURES, PASSING, REMARKS
from results.metrics.arrays import Floats, Ints

FEW_FAILED = 0.05
"""The share of a trial's requests that may fail before its other times are doubted: they are pairs
of what both runs answered, at nearly the same load."""
OF_SEVERAL = {
    "max_new_tokens": "max_new_tokens",
    "rows": "workload.checksum",
    "source": "workload.checksum",
}
"""What entries of one experiment for one workload can differ in, beside its options, none of which
has these names; and the field of `identity` that tells whether it differs between runs."""
UNKNOWN_ANSWER, NO_ANSWER = 0, 1
"""In the place of an answer's digest: token ids were not told; the request did not complete."""


_OF_LABELS = {"output_tok_per_s": "request_per_s", "goodput_tok_per_s": "goodput_req_per_s"}
"""By a rate of tokens, the one that labels have."""


@dataclass(frozen=True, slots=True, order=True)
class CellName:
    """What is compared with what: repeats of one cell have the same name, in both runs."""

    model: str
    workload: str
    load: str
    backend: str
    options: str
    """Canonical JSON."""

    def label(self) -> str:
        """For people: ``gsm8k, closed c=8, demo: scripted {"itl_s":0.001}``."""
        return f"{self.workload}, {self.load}, {self.model}: {self.variant()}"

    def variant(self) -> str:
        """Backend and options."""
        return self.backend + (f" {self.options}" if self.options != "{}" else "")

    @property
    def plain(self) -> CellName:
        """The name that it has where its experiment has its workload once."""
        name, options = self._workload()
        left = {key: value for key, value in options.items() if key not in OF_SEVERAL}
        return replace(self, workload=_named(name, left))

    @property
    def told_by(self) -> frozenset[str]:
        """The fields of `identity` that tell it from others of its plain name."""
        return frozenset(OF_SEVERAL[key] for key in self._workload()[1] if key in OF_SEVERAL)

    def _workload(self) -> tuple[str, dict[str, Any]]:
        name, _, options = self.workload.partition(" {")
        try:
            return name, json.loads("{" + options) if options else {}
        except ValueError:  # the name of another tool's, which says what it likes
            return self.workload, {}


@dataclass(frozen=True, slots=True)
class ReducedTrial:
    """One trial. All sequences have an entry for each of R requests, in one order."""

    cell: CellName
    repeat: int
    status: str
    doubt: str
    """Why its stored verdict does not believe its times, in a few words; empty where it does."""
    lossless: bool
    greedy: bool
    replayed: bool
    """Its decisions were replayed, so that its answers say nothing."""
    broken_promise: str | None
    """Where its answers are not those of `autoregressive` though they should be: which."""
    fingerprint: str | None
    identity: Mapping[str, Any]
    """What must be equal before runs may be compared, by the names of `identity`."""
    ids: Sequence[str]
    answers: Ints
    """(R,) digest of each answer, or one of `UNKNOWN_ANSWER` and `NO_ANSWER`."""
    values: Mapping[str, Floats]
    """GateQuantity -> (R,), NaN where undefined."""
    numbers: Mapping[str, float]
    """GateQuantity -> the trial's value, where it is defined."""
    invocation: str | None = None
    """Equal for trials of one call of `run`; None where it is not told."""
    exact: bool = True
    """Whether the answers of a lossless backend are the same in each run: its kernels are its own.
    vLLM's round by what else is in the batch. A record of before it was told is held to it."""
    commit: str | None = None
    """Of the harness that ran it, "+" behind it for changed files."""
    started: str | None = None
    """ISO 8601, UTC."""
    lengths: Ints | None = None
    """(R,) output tokens of each answer; None in a record of before they were told."""

    @property
    def sound(self) -> bool:
        """Whether its times may be believed."""
        return not self.doubt

    @property
    def is_usable(self) -> bool:
        """Whether they may be beside those of another run on this machine: sound, or with few
        requests failed and nothing else to doubt; remarks are in valid trials too."""
        return self.sound or (self._doubts == {FAILURES} and share_failed([self]) <= FEW_FAILED)

    @property
    def is_disturbed(self) -> bool:
        """Whether it is not sound, and only for what may pass when it is measured again."""
        return not self.sound and self._doubts <= PASSING

    @property
    def _doubts(self) -> set[str]:
        return set(self.doubt.split(", ")) - REMARKS

    def instead_of(self, metric: str) -> str:
        """What a message about a rate of tokens has behind it where all answers are labels, which
        have none; empty of all else."""
        answered = self.answers > NO_ANSWER
        are_labels = self.lengths is not None and answered.any() and not self.lengths.any()
        other = _OF_LABELS.get(metric)
        return f" (answers are labels: expected '{other}')" if are_labels and other else ""

    @property
    def ended_well(self) -> bool:
        """Whether there is something to compare."""
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class ReducedRun:
    """The trials of one run, and where they come from, for messages."""

    where: str
    trials: Sequence[ReducedTrial]

    @property
    def origin(self) -> str:
        """Commits and day, for people; empty where no trial tells them."""
        told = sorted({t.commit for t in self.trials if t.commit})
        commits = [name[:12] + "+" * name.endswith("+") for name in told]
        days = sorted({t.started[:10] for t in self.trials if t.started})
        return ", ".join([*commits, *days[:1]])

    def cells(self) -> dict[CellName, list[ReducedTrial]]:
        """The trials of each cell, by repeat. Raises `UserError` when one is there twice."""
        found: dict[CellName, list[ReducedTrial]] = {}
        for trial in sorted(self.trials, key=lambda one: one.repeat):
            others = found.setdefault(trial.cell, [])
            if others and others[-1].repeat == trial.repeat:
                raise UserError(
                    f"{self.where}: repeat {trial.repeat} of {trial.cell.label()} is there twice: "
                    f"they differ in {_differing(others[-1], trial)}; expected one run of one "
                    "version on one machine"
                )
            others.append(trial)
        return found

    @property
    def fingerprint(self) -> str | None:
        """The machine's. Raises `UserError` where there are several."""
        found = sorted({str(trial.fingerprint) for trial in self.trials})
        if len(found) > 1:
            raise UserError(f"{self.where}: trials of several machines: {', '.join(found)}")
        return self.trials[0].fingerprint if self.trials else None


def share_failed(trials: Sequence[ReducedTrial]) -> float:
    """Of the requests of these trials, those that did not complete."""
    asked = sum(len(trial.answers) for trial in trials)
    failed = sum(int((trial.answers == NO_ANSWER).sum()) for trial in trials)
    return failed / asked if asked else 0.0


def cell_name(trial: Trial, experiment: Mapping[str, Any]) -> CellName:
    """The cell that a trial is a repeat of. Where its experiment, as it was resolved, has its
    workload several times, that says what these differ in."""
    return CellName(
        trial.model.label(),
        workload_name(trial.workload, trial.max_new_tokens, experiment),
        trial.load.label(),
        trial.backend,
        canonical_json(to_json(trial.options)),
    )


def workload_name(workload: Workload, max_new_tokens: int, experiment: Mapping[str, Any]) -> str:
    """A workload as cells are named, of an experiment as plain data: ``xsum {"rows":5}``."""
    options = to_json(workload.options)
    return _named(workload.name, options | _of_several(workload, max_new_tokens, experiment))


def named_as(base: ReducedRun, new: ReducedRun) -> ReducedRun:
    """BASE with the names that its cells have in NEW, whose experiment may have other entries for
    a workload, and so other names for the same cells."""
    theirs: dict[CellName, list[ReducedTrial]] = {}
    for trial in {trial.cell: trial for trial in new.trials}.values():
        theirs.setdefault(trial.cell.plain, []).append(trial)
    own = {trial.cell: trial for trial in base.trials}
    names = {cell: _name_among(theirs.get(cell.plain, ()), one) for cell, one in own.items()}
    return replace(base, trials=[replace(t, cell=names[t.cell]) for t in base.trials])


def _name_among(theirs: Collection[ReducedTrial], one: ReducedTrial) -> CellName:
    names = {other.cell: one.cell.told_by | other.cell.told_by for other in theirs}
    if one.cell in names:
        return one.cell
    for other in theirs:
        if all(one.identity.get(n) == other.identity.get(n) for n in names[other.cell]):
            return other.cell
    return one.cell


def _named(workload: str, options: Mapping[str, Any]) -> str:
    return workload + (f" {canonical_json(options)}" if options else "")


def _of_several(
    own: Workload, max_new_tokens: int, experiment: Mapping[str, Any]
) -> dict[str, Any]:
    asked = {"max_new_tokens": max_new_tokens, "rows": own.rows, "source": own.source}
    same = [
        {**choice, **choice["workload"]}
        for choice in experiment.get("workloads", ())
        if choice["workload"]["name"] == own.name
        and choice["workload"].get("options", {}) == to_json(own.options)
    ]
    return {
        key: value for key, value in asked.items() if len({choice.get(key) for choice in same}) > 1
    }


def _differing(one: ReducedTrial, other: ReducedTrial) -> str:
    """The fields of `identity` in which they do, else what else may."""
    names = [name for name, value in one.identity.items() if other.identity.get(name) != value]
    if not names and one.fingerprint != other.fingerprint:
        names = ["fingerprint"]
    return ", ".join(names) or "data sources or code"
