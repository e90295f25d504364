"""Runs whose repeats had engines of their own, and runs whose repeats shared them."""

from __future__ import annotations

import dataclasses

import pytest

from harness.core.errors import UserError
from results.compare.gate.comparison import compare_runs
from results.compare.gate.identity import identity
from results.compare.gate.margins import GateRules, MarginRule
from tests.support.results.make_trials import trial
from tests.support.results.reduced_runs import IDENTITY, a_run, everywhere

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
