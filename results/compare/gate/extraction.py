"""A run folder, cut down to what the gate compares."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from harness.core.errors import UserError
from harness.core.names import stands_in_for
from harness.core.nouns import BackendInfo, Trial, Validity
from results.compare.gate.identity import identity
from results.compare.gate.quantities import (
    GateQuantity,
    of_the_trial,
    per_request,
    quantities,
)
from results.compare.gate.reduced import (
    NO_ANSWER,
    UNKNOWN_ANSWER,
    CellName,
    ReducedRun,
    ReducedTrial,
    cell_name,
)
from results.compare.pairing import ComparableTrials, Member, make_group
from results.compare.quality import without_quality
from results.compare.reasons import slug
from results.compare.validity import broken_promise
from results.goodput.stored import without_probes
from results.metrics.arrays import Floats, Ints, RequestArrays
from results.registry.metric import TrialInputs
from results.run import Run


def reduce_run(run: Run, names: Iterable[str]) -> ReducedRun:
    """The trials of a run with these quantities, all that `names` has of `quantities()`. Probes of
    searches and sweeps, whose rates differ from run to run, are none of them, nor is what was asked
    for the answers' sake alone.

    Raises `UserError` for a folder without trials and for one whose run was stopped half way.
    """
    where = str(run.path)
    if not run.stored:
        raise UserError(f"{where}: no trials in it; 'run' goes on with one that was stopped")
    run = without_quality(without_probes(run))
    if not run.stored:
        raise UserError(f"{where}: holds a search or a sweep alone; expected loads to compare")
    check_whole(run)
    known = quantities()
    wanted = [known[name] for name in names if known[name].form != "answers"]
    found: list[ReducedTrial] = []
    for members in run.groups():
        group = make_group(members, run.experiment)
        for member in _standing(members):
            parts = run.store.read_code(str(member.stored.code)) or {}
            cell = cell_name(member.trial, run.experiment)
            found.append(_reduced(cell, member, group, wanted, parts))
    return ReducedRun(where, found)


def own_repeat(trial: Trial) -> int:
    """The repeat of the experiment that a trial is, or was measured in the place of."""
    first = stands_in_for(trial.repeat)
    return trial.repeat if first is None else first


def _standing(members: Iterable[Member]) -> list[Member]:
    """One trial for each repeat of a cell of a group: the disturbed one's stand-in where that is
    sound."""
    found: dict[tuple[str, int], Member] = {}
    for member in sorted(members, key=lambda one: one.trial.repeat):
        place = member.trial.engine_key(), own_repeat(member.trial)
        before, after = found.get(place), member.stored.record
        if before is None or (after.validity.valid and not before.stored.record.validity.valid):
            found[place] = member
    return list(found.values())


def check_whole(run: Run) -> None:
    """Raise `UserError` when a cell has repeats of several versions of the code, or fewer than the
    experiment asks for."""
    codes: dict[str, str | None] = {}
    for stored in run.stored:
        trial, machine = stored.record.trial, stored.record.environment.get("fingerprint")
        if codes.setdefault(replace(trial, repeat=0).key(str(machine)), stored.code) != stored.code:
            cell = cell_name(trial, run.experiment)
            raise UserError(
                f"{run.path}: half a run: repeats of {cell.label()} were run by several versions "
                "of the code; 'run' measures those of older ones again, '--fresh' all"
            )
    repeats = run.experiment.get("repeats")
    if not isinstance(repeats, int):
        return
    cells: dict[Any, set[int]] = {}
    for stored in run.stored:
        trial = stored.record.trial
        if bool(trial.reload) != bool(run.experiment.get("reload")):
            continue  # of before it was changed: `check_one_version` tells of it
        key = cell_name(trial, run.experiment), trial.workload.checksum
        cells.setdefault(key, set()).add(own_repeat(trial))
    if short := [key for key, found in cells.items() if len(found) < repeats]:
        raise UserError(
            f"{run.path}: half a run: {len(short)} of {len(cells)} cells have fewer than "
            f"{repeats} repeats ({short[0][0].label()}); 'run' does the rest"
        )


def answer_digests(requests: RequestArrays) -> Ints:
    """(R,) a number for each answer, equal for equal token ids (or labels): 62 bits of BLAKE2b."""
    found = np.full(len(requests), UNKNOWN_ANSWER, np.int64)
    data = np.ascontiguousarray(requests.token_ids, np.int32).tobytes()
    start = (4 * requests.token_start).tolist()
    known = requests.known
    for row in np.flatnonzero(known).tolist():
        content = data[start[row] : start[row + 1]]
        if requests.labels is not None and requests.labels[row] is not None:
            content += str(requests.labels[row]).encode()
        digest = hashlib.blake2b(content, digest_size=8).digest()
        found[row] = (int.from_bytes(digest, "little") >> 2) + NO_ANSWER + 1
    found[~requests.completed] = NO_ANSWER
    return found


def _reduced(
    cell: CellName,
    member: Member,
    group: ComparableTrials,
    wanted: Collection[GateQuantity],
    parts: Mapping[str, str],
) -> ReducedTrial:
    record, requests = member.stored.record, member.requests
    values: Mapping[str, Floats] = {}
    numbers: Mapping[str, float] = {}
    if requests is not None:
        inputs = TrialInputs(record, requests)
        values = _values(inputs, wanted)
        found = {q.name: of_the_trial(q, inputs) for q in wanted if q.is_of_a_trial}
        numbers = {name: value for name, value in found.items() if value is not None}
    return ReducedTrial(
        cell=cell,
        repeat=own_repeat(record.trial),
        status=record.status,
        doubt=_doubt(record.validity),
        lossless=record.backend is not None and record.backend.lossless is True,
        greedy=record.trial.sampling.temperature == 0,
        replayed=record.is_replay,
        broken_promise=broken_promise(member, group),
        fingerprint=record.environment.get("fingerprint"),
        identity=identity(record.trial, record.environment, parts),
        ids=requests.ids if requests is not None else [],
        answers=answer_digests(requests) if requests is not None else np.zeros(0, np.int64),
        values=values,
        numbers=numbers,
        invocation=record.environment.get("invocation"),
        exact=record.backend is None or _is_exact(record.backend),
        commit=record.environment.get("commit"),
        started=record.started_at,
        lengths=requests.tokens if requests is not None else None,
    )


def _is_exact(backend: BackendInfo) -> bool:
    """Whether what it computes with is known, so that its answers are the same in each run."""
    return backend.options.get("kernels") is not None or backend.provenance == "simulation"


def _values(inputs: TrialInputs, wanted: Collection[GateQuantity]) -> dict[str, Floats]:
    """Of what is defined for a request at least."""
    each = [q for q in wanted if q.form in ("request", "score")]
    found = {q.name: per_request(q, inputs) for q in each}
    return {name: values for name, values in found.items() if not np.isnan(values).all()}


def _doubt(found: Validity) -> str:
    slugs = dict.fromkeys(slug(reason) for reason in found.reasons)
    return "" if found.valid else ", ".join(slugs) or "not valid"
