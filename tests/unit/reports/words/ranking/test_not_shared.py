"""Where a reference and the rest have no cell in common, the page says which loads each ran."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reports.cells import Cell
from reports.variants import NamedOptions, Variant, variants
from reports.words.ranking.headline import headline
from reports.words.verdict import verdicts
from tests.unit.reports.words.test_verdict import measured

FILES = variants(
    [
        NamedOptions("plain", {}, "imported", True),
        NamedOptions("fast", {}, "imported", False),
        NamedOptions("next", {}, "imported", False),
    ]
)
PLAIN, FAST, NEXT = FILES


def cell(variant: Variant, load: str, **changed: Any) -> Cell:
    found = replace(measured(None, None, None, same=None), variant=variant, load=load)
    return replace(found, metrics={**found.metrics, "output_tok_per_s": 9.0}, **changed)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"load": "poisson 6/s"}, "no load was run by both (plain: closed c=3; fast: poisson 6/s)"),
        ({"workload": "xsum"}, "no workload was run by both (plain: gsm8k; fast: xsum)"),
        ({"group": '["b", {}]'}, "nothing was run by both on one machine with the same settings"),
        ({}, "no two answers have times between tokens that can be compared"),
    ],
    ids=["loads", "workloads", "machines", "none"],
)
def test_what_both_did_not_run_is_named(changed: dict[str, Any], told: str) -> None:
    cells = [cell(PLAIN, "closed c=3"), replace(cell(FAST, "closed c=3"), **changed)]
    assert headline(cells, [PLAIN, FAST], "").endswith(f" could be computed: {told}.")
    _, card = verdicts(cells, [PLAIN, FAST], "")
    assert card.speed_caption == told


def test_a_card_names_its_own_loads_and_the_first_sentence_all() -> None:
    loads = "closed c=3", "poisson 6/s", "poisson 20/s"
    cells = [cell(variant, load) for variant, load in zip(FILES, loads, strict=True)]
    own = "(plain: closed c=3; fast: poisson 6/s; next: poisson 20/s)"
    assert f"no load was run by it and another {own}." in headline(cells, FILES, "")
    _, _, card = verdicts(cells, FILES, "")
    assert card.speed_caption == "no load was run by both (plain: closed c=3; next: poisson 20/s)"
    _, alone = verdicts(cells[1:2], [PLAIN, FAST], "")
    assert alone.speed_caption == "plain was not run there"
