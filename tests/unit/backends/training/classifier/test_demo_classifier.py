"""The exit classifier that is shipped with the demo model, and what its model card says of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from backends.checkpoints import models
from backends.checkpoints.classifier import BUNDLED, open_classifier
from workloads import WORKLOADS


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return open_classifier(BUNDLED, models.BUNDLED["demo"]).report


def rows_of(head: str) -> dict[str, str]:
    """The rows of the card's table whose head begins so."""
    card = (models.DEMO / "README.md").read_text()
    table = card.split("## Exit classifier")[1].split(f"\n| {head} | ")[1].split("\n\n")[0]
    return dict(re.findall(r"^\| (\w+) \| (.+) \|$", table, re.MULTILINE))


def test_what_is_shipped_is_small_and_finished() -> None:
    names = sorted(path.name for path in BUNDLED.iterdir())
    assert names == ["classifier.json", "classifier.safetensors"]
    assert sum(path.stat().st_size for path in BUNDLED.iterdir()) < 30_000


def test_it_does_better_than_chance_and_an_exit_is_nearly_always_right(
    report: dict[str, Any],
) -> None:
    for by_workload in report["layers"].values():
        assert set(by_workload) == {"all", *WORKLOADS}
        for figures in by_workload.values():
            assert figures["auc"] > 0.8
            for over in figures["over"].values():
                assert over["precision"] > figures["agrees"]
    for exits in report["exits"].values():
        assert exits["0.9"]["agreement"] > 0.995
        assert exits["0.9"]["skipped"] > 0.45


def test_the_cards_layers_are_those_of_the_report(report: dict[str, Any]) -> None:
    rows = rows_of("layer")
    assert list(rows) == list(report["layers"]) == ["1", "2", "3", "4", "5", "6", "7"]
    for layer, cells in rows.items():
        own = report["layers"][layer]["all"]
        names = ("agrees", "auc", "softmax_auc", "balanced_accuracy")
        expected = [f"{own[name]:.3f}" for name in names]
        expected += [f"{o['share']:.3f} ({o['precision']:.3f})" for o in own["over"].values()]
        assert cells.split(" | ") == expected


def test_the_cards_first_passages_are_those_of_the_report(report: dict[str, Any]) -> None:
    rows = rows_of("rows")
    assert list(rows) == list(report["exits"])
    for name, cells in rows.items():
        exits = report["exits"][name].values()
        expected = [f"{own['layers_run']:.2f} ({own['agreement']:.3f})" for own in exits]
        assert cells.split(" | ") == expected
