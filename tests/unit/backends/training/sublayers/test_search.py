"""The search for sublayers to leave out, on a model made in a moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.engine.costs.draft_costs import LookupCosts
from backends.engine.costs.row_costs import RowCosts
from backends.engine.streams import Output
from backends.own.drafting.sublayer_sets import ABOUT, find_set, read_set
from backends.training.sublayers import display
from backends.training.sublayers.acceptance import Acceptance
from backends.training.sublayers.recipe import SublayerRecipe
from backends.training.sublayers.search import SearchProgress, find_sublayers
from harness.core.errors import UserError

SMALL: dict[str, Any] = {"rows": 2, "iterations": 12, "drafts": 4, "threshold": 0.0}


def search(model: Path | str, out: Path, **changes: Any) -> dict[str, Any]:
    workloads = changes.pop("workloads", ["gsm8k"])
    return find_sublayers(str(model), workloads, out, **SMALL | changes)


def test_a_set_is_found_and_read(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[SearchProgress] = []
    found = search(model, tmp_path / "set", progress=seen.append)
    assert json.loads((tmp_path / "set" / ABOUT).read_text()) == found
    where = find_set("option", str(tmp_path / "set"), model)
    left_out = read_set(where, model, 4)
    assert sorted(left_out.attention) == found["skipped_attention"]
    assert [progress.done for progress in seen] == [*range(1, 13)]
    assert seen[-1].best == left_out
    speeds = [progress.speed_up for progress in seen]
    assert speeds == sorted(speeds), "the best so far"
    assert found["predicted"]["speed_up"] == round(speeds[-1], 3)
    assert found["searched_on"]["answers"] == 2
    assert found["held_out"]["answers"] == 4
    assert found["search"]["sets"] <= 12
    assert found["recipe"] == SublayerRecipe(("gsm8k",), **SMALL).to_dict()
    for progress in seen:
        display.printer()(progress)
    assert "iteration 12 of 12  predicted speed-up" in capsys.readouterr().out
    assert "2 sets" not in display.report_lines(found)[0].replace("12 sets", "")
    off = found | {"predicted": {"drafts": 0, "speed_up": 1.0}}
    assert display.report_lines(off)[-1].startswith("no set pays here")


def test_a_set_is_no_other_models(model: Path, tmp_path: Path) -> None:
    search(model, tmp_path / "set", iterations=1, seed=2**63 - 1)
    from backends.checkpoints import models

    with pytest.raises(UserError, match="trained for another checkpoint"):
        read_set(tmp_path / "set" / ABOUT, models.BUNDLED["demo"], 8)
    with pytest.raises(UserError, match="has a set already; choose another folder"):
        search(model, tmp_path / "set")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": 0}, "--rows: expected at least 1, got 0"),
        ({"iterations": 0}, "--iterations: expected at least 1, got 0"),
        ({"drafts": 16}, "--drafts: expected 1 to 15, got 16"),
        ({"threshold": 1.5}, "--threshold: expected 0 to 1, got 1.5"),
        ({"workloads": ["gsm9k"]}, "did you mean 'gsm8k'"),
        ({"source": "/nowhere"}, "/nowhere"),
    ],
)
def test_what_no_search_can_use(
    model: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as caught:
        search(model, tmp_path / "set", **changes)
    assert said in str(caught.value)
    assert not (tmp_path / "set").exists()


def outputs(*pairs: tuple[int, int, str | None]) -> list[Output]:
    """Drafted and accepted tokens of verifications, and whether an answer ended there."""
    found = []
    for drafted, accepted, finished in pairs:
        counts: dict[str, float] = {"drafted": drafted, "accepted": accepted}
        for place in range(1, min(drafted, accepted + 1) + 1):
            counts |= {f"judged_at_{place}": 1, f"accepted_at_{place}": place <= accepted}
        found.append(Output("a", (1,), finished, counts))
    return found


def test_acceptance_and_what_it_would_bring() -> None:
    seen = outputs((3, 3, None), (3, 1, None), (1, 1, None), (0, 0, None), (3, 0, "stop"))
    found = Acceptance.of([Output("a", (1,), None, {}), *seen], 3)
    assert found.verifications == 4
    assert found.come == (0.75, 0.5, 0.5)
    assert found.stand == (0.75, 0.25, 0.25)
    assert found.rates == (1.0, 0.5, 1.0)
    assert found.told()["drafts_that_stand"] == 1.25
    # a pass of 90 us for any rows, and 10 us of drafting: the more drafts the better
    costs = LookupCosts(RowCosts((1, 2), (90.0, 90.0), 100, 0.0))
    drafts, speed_up = found.best(costs, 100)
    assert (drafts, speed_up) == (3, 2.25 * 90 / 100)
    dear = LookupCosts(RowCosts((1, 2), (90.0, 180.0), 100, 0.0))
    assert found.best(dear, 100) == (0, 1.0)
    nothing = Acceptance.of([], 2)
    assert nothing.best(costs, 100) == (0, 1.0)
