"""Two runs set side by side: which cells and metrics there are, and what each of them says."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from harness.core.errors import UserError
from harness.core.names import FINGERPRINT_FIELDS, UNSOUND
from results.compare.gate.decision import Decision, Tested, decided
from results.compare.gate.evidence import (
    ChangedAnswer,
    answer_pairs,
    answers,
    changed_answers,
    evidence,
    p_same_answers,
    repeats_agree,
    unequal_work,
)
from results.compare.gate.identity import ANSWERS, check_alike
from results.compare.gate.margins import GateRules, MarginRule, direction
from results.compare.gate.quantities import GateQuantity, quantities
from results.compare.gate.reduced import CellName, ReducedRun, ReducedTrial, named_as, share_failed
from results.compare.gate.verdicts import Verdict
from results.compare.intervals.crossed import CrossedMean

SOUND_REPEATS = 2
"""With fewer the noise between repeats is not known."""
FAILED = 0.01
"""The share of requests that may fail beyond BASE's."""
_EXACT = CrossedMean(0.0, 0.0, 1.0, 1, 1, 0.0)
_UNKNOWN = CrossedMean(math.nan, math.nan, math.nan, 0, 0, math.nan)


def compare_runs(
    base: ReducedRun, new: ReducedRun, rules: GateRules, allowed: Collection[str] = ()
) -> Decision:
    """Whether NEW is worse than BASE by more than the rules allow. Cells have NEW's names.

    `allowed` holds names of fields, `ANSWERS` or `UNSOUND`. Raises `UserError` where the runs may
    not be compared (`check_alike`), where no cell is in both, and where a rule of a file is about
    nothing.
    """
    base = named_as(base, new)
    differing = check_alike(base, new, allowed)
    rules.check_cells(base.cells())
    found = _Comparison(rules, not differing & set(FINGERPRINT_FIELDS), frozenset(allowed))
    theirs = new.cells()
    if not theirs.keys() & base.cells().keys():
        raise UserError(f"{base.where} and {new.where} have no cell in common")
    for cell, trials in base.cells().items():
        found.add(cell, trials, theirs.get(cell, []))
    _check_metrics(base, rules)
    if extra := theirs.keys() - base.cells().keys():
        found.notes.append(f"not in BASE, not gated: {'; '.join(c.label() for c in sorted(extra))}")
    if differing:
        found.notes.append(f"allowed to differ: {', '.join(sorted(differing))}")
    rows = decided(found.tested, rules.alpha)
    if not rows and not found.missing:
        raise UserError(f"{base.where}: no cell has a metric to be gated")
    return Decision(
        base.where,
        new.where,
        rules.alpha,
        found.paired,
        rows,
        found.missing,
        found.notes,
        base.origin,
        new.origin,
        found.paired and _in_turns(base, new),
        frozenset(found.lacking),
    )


def _in_turns(base: ReducedRun, new: ReducedRun) -> bool:
    """Whether each trial of BASE was run in the same call as NEW's of its cell and repeat."""
    theirs = {(trial.cell, trial.repeat): trial.invocation for trial in new.trials}
    both = [
        (trial.invocation, theirs[trial.cell, trial.repeat])
        for trial in base.trials
        if (trial.cell, trial.repeat) in theirs
    ]
    return bool(both) and all(one is not None and one == other for one, other in both)


@dataclass(slots=True)
class _Comparison:
    """Gathers what is to be tested, cell by cell."""

    rules: GateRules
    paired: bool
    allowed: frozenset[str]
    tested: list[Tested] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    lacking: set[CellName] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def add(
        self, cell: CellName, base: Sequence[ReducedTrial], new: Sequence[ReducedTrial]
    ) -> None:
        """All quantities of a cell."""
        whole = [trial for trial in base if trial.ended_well]
        if not whole:
            self._add_unknown(cell, base, new)
            return
        failed = [trial for trial in new if not trial.ended_well]
        if not new:
            self._add_missing(cell, "cell missing in NEW")
        elif failed:
            told = f"{len(failed)} of {len(new)} trials ended as {failed[0].status}"
            self._add_missing(cell, told)
        if len(base) > len(whole):
            lost = f"{len(base) - len(whole)} of {len(base)} trials of BASE did not end well"
            self.notes.append(f"{lost}: {cell.label()}")
        ended = [trial for trial in new if trial.ended_well]
        if 0 < len(ended) != len(whole) and not failed:
            told = f"{len(whole)} repeats in BASE, {len(ended)} in NEW"
            self.notes.append(f"{told}: {cell.label()}")
        if told := _unanswered(whole, ended):
            self._add_missing(cell, told)
        for name, rule in self.rules.margins(cell).items() if ended else ():
            self._add_quantity(cell, quantities()[name], rule, whole, ended)

    def _add_missing(self, cell: CellName, what: str) -> None:
        self.missing.append(f"{what}: {cell.label()}")
        self.lacking.add(cell)

    def _add_unknown(
        self, cell: CellName, base: Sequence[ReducedTrial], new: Sequence[ReducedTrial]
    ) -> None:
        """Nothing can be said of a cell that failed in BASE, be it no worse in NEW: a row at least
        says so, where it was tried at all. Without one the others would pass without it."""
        note = "no trial of BASE ended well"
        self.notes.append(f"{note}: {cell.label()}")
        ended = [trial for trial in new if trial.ended_well]
        known = [quantities()[name] for name in self.rules.margins(cell)]
        was_tried = any(trial.status != "skipped" for trial in (*base, *new))
        for found in [q for q in known if _has(q, ended)] or known[:was_tried]:
            margin = self.rules.margins(cell)[found.name].margin
            tested = Tested(cell, found, margin, _UNKNOWN, None, None, note, _doubtful())
            self.tested.append(tested)

    def _add_quantity(
        self,
        cell: CellName,
        found: GateQuantity,
        rule: MarginRule,
        base: Sequence[ReducedTrial],
        new: Sequence[ReducedTrial],
    ) -> None:
        of_answers = found.form in ("answers", "score")
        if of_answers and base[0].replayed:
            return
        if not _has(found, base):
            told = base[0].instead_of(found.name)
            if told or _has(found, new):
                self.notes.append(f"no {found.name} in BASE, not gated{told}: {cell.label()}")
            return
        if not _has(found, new):
            told = new[0].instead_of(found.name)
            self._add_missing(cell, f"metric {found.name} missing in NEW{told}")
        elif found.form != "answers":
            self.tested.append(self._measured(cell, found, rule, base, new))
        elif base[0].greedy or self.rules.where:
            self.tested.append(self._answers(cell, found, rule, base, new))

    def _measured(
        self,
        cell: CellName,
        found: GateQuantity,
        rule: MarginRule,
        base: Sequence[ReducedTrial],
        new: Sequence[ReducedTrial],
    ) -> Tested:
        note, known = "", None
        if found.by_the_clock:
            sound = [
                [t for t in side if t.sound or (self.paired and t.is_usable)]
                for side in (base, new)
            ]
            if min(map(len, sound)) >= SOUND_REPEATS:
                left = len(base) + len(new) - sum(map(len, sound))
                note = f"{left} unsound trials left out" if left else ""
                base, new = sound
            elif doubts := dict.fromkeys(t.doubt for t in (*base, *new) if t.doubt):
                note = f"fewer than two sound repeats ({'; '.join(doubts)})"
                known = None if UNSOUND in self.allowed else _doubtful()
        seen = evidence(found, direction(found, rule), base, new, paired=self.paired)
        worse = seen.worse
        if worse is None:
            return self._lost(cell, found, rule)
        if found.by_the_clock and worse.repeats < SOUND_REPEATS:
            one = "one load of the engine" if found.is_of_a_load else "one repeat"
            note, known = f"{one}: noise between repeats unknown", _doubtful()
        unequal = unequal_work(base, new) if found.is_of_whole_answers else 0.0
        if unequal:
            than = "longer" if unequal > 0 else "shorter"
            told = f"NEW's answers are {abs(math.expm1(unequal)):.1%} {than}"
            note = f"{note}; {told}: unequal work".removeprefix("; ")
        return Tested(
            cell, found, rule.margin, worse, seen.base, seen.new, note, known, unequal=unequal
        )

    def _lost(self, cell: CellName, found: GateQuantity, rule: MarginRule) -> Tested:
        note = "no request has it in both runs"
        return Tested(cell, found, rule.margin, _EXACT, None, None, note, "fail")

    def _answers(
        self,
        cell: CellName,
        found: GateQuantity,
        rule: MarginRule,
        base: Sequence[ReducedTrial],
        new: Sequence[ReducedTrial],
    ) -> Tested:
        seen = answers(base, new)
        promised = base[0].lossless and base[0].greedy and ANSWERS not in self.allowed
        exact = promised and base[0].exact and repeats_agree(base)
        pairs = answer_pairs(base, new, further=exact)
        changed = list(changed_answers(pairs))
        note = _changes(changed, pairs)
        known: Verdict | None = None
        by_chance = None
        if promised and (broken := _broken(base, new)):
            note, known = broken, "fail"
        elif exact and changed:
            note, known = f"lossless, yet {note}", "fail"
        elif changed and len(base) < SOUND_REPEATS:
            note, known = f"{note}; one repeat of BASE: its own noise is unknown", _doubtful()
        elif promised and changed and not base[0].exact:
            by_chance = p_same_answers(base, new)
            if by_chance is None:
                note, known = f"{note}; no request's were told in every repeat", _doubtful()
            else:
                note = f"lossless, yet {note}; so many by chance: p = {by_chance:.2g}"
        worse = seen.worse
        if worse is None:
            return self._lost(cell, found, rule)
        return Tested(cell, found, rule.margin, worse, seen.base, seen.new, note, known, by_chance)


def _doubtful() -> Verdict:
    return "inconclusive"


def _has(found: GateQuantity, trials: Sequence[ReducedTrial]) -> bool:
    if found.form == "answers":
        return any(bool((trial.answers != 0).any()) for trial in trials)
    kept = "numbers" if found.is_of_a_trial else "values"
    return any(found.name in getattr(trial, kept) for trial in trials)


def _unanswered(base: Sequence[ReducedTrial], new: Sequence[ReducedTrial]) -> str:
    """What is said where more requests have no answer in NEW, by more than one in a hundred: they
    would be missing among its times and scores, which looks like an improvement."""
    before, now = share_failed(base), share_failed(new)
    if now - before <= FAILED:
        return ""
    return f"{now:.1%} of the requests failed, {before:.1%} in BASE"


def _broken(base: Sequence[ReducedTrial], new: Sequence[ReducedTrial]) -> str | None:
    """Why a backend that was lossless in BASE no longer is, by what NEW alone says."""
    if not all(trial.lossless for trial in new):
        return "no longer says that it is lossless"
    if any(trial.broken_promise for trial in base):
        return None
    return next((trial.broken_promise for trial in new if trial.broken_promise), None)


def _changes(
    changed: Sequence[ChangedAnswer], pairs: Sequence[tuple[ReducedTrial, ReducedTrial]]
) -> str:
    if not changed:
        return ""
    count, failed = sum(len(one.ids) for one, _ in pairs), sum(one.failed for one in changed)
    first = f"first {changed[0].request} of repeat {changed[0].repeat}"
    if failed == len(changed):
        return f"{failed} of {count} requests failed that BASE answered, {first}"
    told = f"{len(changed)} of {count} answers are not BASE's, {first}"
    return told + (f"; {failed} of them failed" if failed else "")


def _check_metrics(base: ReducedRun, rules: GateRules) -> None:
    """Raise `UserError` for a rule of a gate file whose metric none of its cells has in BASE. Cells
    that failed there say nothing of it."""
    known = quantities()
    ended = {c for c, trials in base.cells().items() if any(t.ended_well for t in trials)}
    for rule in rules.rules if rules.where else ():
        cells = {cell for cell in ended if rule.holds(cell)}
        trials = [trial for trial in base.trials if trial.cell in cells]
        if trials and not any(_has(known[name], trials) for name in rule.names):
            raise UserError(
                f"{rules.where}: no trial of {base.where} has the metric '{rule.metric}'"
                + " in the cells of its rule" * (len(trials) < len(base.trials))
                + "".join({trial.instead_of(rule.metric) for trial in trials})
            )
