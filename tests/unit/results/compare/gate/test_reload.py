"""Runs whose repeats had engines of their own, and runs whose repeats shared them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.nouns import TrialRecord
from results.compare.gate.comparison import compare_runs
from results.compare.gate.extraction import reduce_run
from results.compare.gate.identity import identity
from results.compare.gate.margins import GateRules, MarginRule
from results.history.observed import observed_runs
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.reduced_runs import IDENTITY, a_run, everywhere
from tests.support.results.stored_runs import run_of

TPOT = GateRules((MarginRule("tpot_s", 0.05),))


@pytest.mark.parametrize("reload", [True, None])
def test_engines_that_were_loaded_otherwise_are_told(reload: bool | None) -> None:
    """They lie apart by other reasons; in records of before nothing was loaded anew."""
    asked = dataclasses.replace(trial("fast"), reload=reload)
    told = identity(asked, {}, {})["reload"]
    assert told is bool(reload)
    base, new = (everywhere(a_run(), identity={**IDENTITY, "reload": r}) for r in (told, not told))
    with pytest.raises(UserError, match="they differ in reload"):
        compare_runs(base, new, TPOT)
    unsaid = {name: value for name, value in IDENTITY.items() if name != "reload"}
    older = everywhere(a_run(), identity=unsaid)
    same, other = (base, new) if not told else (new, base)
    assert compare_runs(older, same, TPOT).verdict == "pass"
    with pytest.raises(UserError, match=r"they differ in reload \(false / true\)"):
        compare_runs(older, other, TPOT)


def made(repeat: int, *, reload: bool | None) -> TrialRecord:
    asked = dataclasses.replace(trial("fast", repeat=repeat), reload=reload)
    day = 2 if reload else 1
    return record(
        asked,
        [generation(f"r{n}", [5, 15, 25]) for n in range(6)],
        started_at=f"2026-01-0{day}T00:00:00+00:00",
        environment={"commit": f"c{day}"},
    )


def test_a_folder_of_both_kinds_is_refused_for_what_it_lacks(tmp_path: Path) -> None:
    """Of the kind that its experiment asks for; trials of before it was changed fill no gap, and
    where that is whole, that there are both is said."""
    older = [made(n, reload=None) for n in range(3)]
    anew = [made(n, reload=True) for n in range(3)]
    half = run_of(tmp_path / "half", *older, *anew[:2], repeats=3, reload=True)
    with pytest.raises(UserError, match="half a run: 1 of 1 cells have fewer than 3 repeats"):
        reduce_run(half, ["tpot_s"])
    both = reduce_run(run_of(tmp_path / "both", *older, *anew, repeats=3, reload=True), ["tpot_s"])
    with pytest.raises(UserError, match="they differ in reload"):
        compare_runs(both, both, TPOT)


def test_a_history_keeps_both_kinds_apart(tmp_path: Path) -> None:
    for name, reload in (("before", None), ("after", True)):
        records = [made(n, reload=reload) for n in range(3)]
        run_of(tmp_path / name, *records, repeats=3, reload=bool(reload))
    found, _ = observed_runs([tmp_path], [], ["tpot_s_p50"])
    [before], [after] = (one.cells for one in found)
    assert before.cell == after.cell
    assert before.same != after.same
