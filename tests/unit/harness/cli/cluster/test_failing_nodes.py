"""Trials that end badly on nodes of a cluster: what runs again, and what is told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli.cluster.node import ShareOver
from harness.core.errors import UserError
from harness.core.nouns import Trial
from results.store.folder import Store
from tests.unit.harness.cli.cluster.test_nodes import (
    LostNodeError,
    PretendedNode,
    stored,
    sweep,
    trials,
    two_engines,
)


class FailingNode(PretendedNode):
    """Trials of one engine fail there."""

    def _tidings(self, wait_s: float) -> list[Any]:
        (told,) = super()._tidings(wait_s)
        if isinstance(told, ShareOver) or told.record.trial.options.get("itl_s") != 0.2:
            return [told]
        return [replace(told, record=replace(told.record, status="failed"))]


def test_an_engine_that_fails_costs_the_others_nothing_when_it_is_tried_again(
    tmp_path: Path,
) -> None:
    asked, store = two_engines(), Store(tmp_path)
    first, _, _ = sweep(store, [FailingNode("a", "m")], asked)
    assert first.statuses == {"ok": 4, "failed": 4}
    node = PretendedNode("a", "m")
    again, _, _ = sweep(store, [node], asked)
    assert (again.stored, again.statuses) == (4, {"ok": 4})
    assert {trial.options["itl_s"] for trial in node.ran} == {0.2}


def test_what_failed_on_a_lost_node_and_went_well_elsewhere_has_not_failed(tmp_path: Path) -> None:
    nodes = [FailingNode("a", "m", lives=3), PretendedNode("b", "m")]
    result, _, lost = sweep(Store(tmp_path), nodes, two_engines())
    assert len(lost) == 1
    assert sum(result.statuses.values()) == 8
    assert result.statuses["failed"] <= 1


def test_what_failed_on_a_node_of_another_kind_is_gone_with_it(tmp_path: Path) -> None:
    nodes = [FailingNode("a", "m", lives=3), PretendedNode("b", "other")]
    store = Store(tmp_path)
    result, _, _ = sweep(store, nodes, two_engines())
    assert result.statuses == {"ok": 8}
    assert {one.environment["node"] for one in stored(store)} == {"b"}


class WatchedNode(PretendedNode):
    """Takes a share only when the one before is over; one that is `gone` takes none."""

    gone = False
    working = False

    def _begin(self, trials: Sequence[Trial], stored: Collection[str], limit_s: float) -> None:
        if self.gone:
            raise LostNodeError
        assert not self.working, "a second share"
        self.working = True
        super()._begin(trials, stored, limit_s)

    def _tidings(self, wait_s: float) -> list[Any]:
        told = super()._tidings(wait_s)
        self.working = not isinstance(told[0], ShareOver)
        return told


@pytest.mark.parametrize("gone", ["a", "ab", "ac", "bd"])
def test_nodes_that_are_lost_as_they_begin_cost_the_others_one_share_each(
    tmp_path: Path, gone: str
) -> None:
    """Also where another one is lost later."""
    nodes = [WatchedNode(name, "m") for name in "abcde"]
    for node in nodes:
        node.gone = node.name in gone
    nodes[-1].lives = 1
    asked = trials(cells=16, repeats=1)
    result, _, lost = sweep(Store(tmp_path), nodes, asked)
    assert len(lost) == len(gone) + 1
    assert result.statuses == {"ok": 16}
    assert len({trial.load for node in nodes for trial in node.ran}) == 16


class SickNode(PretendedNode):
    """Cannot go on after two trials."""

    def _tidings(self, wait_s: float) -> list[Any]:
        if len(self.ran) == 2:
            return [ShareOver(None, "/shared/logs: Permission denied")]
        return super()._tidings(wait_s)


def test_a_node_that_cannot_go_on_is_left_to_itself(tmp_path: Path) -> None:
    sick, well = SickNode("a", "m"), PretendedNode("b", "m")
    asked = trials(cells=8, repeats=1)
    result, _, lost = sweep(Store(tmp_path), [sick, well], asked)
    assert result.statuses == {"ok": 8}
    assert (len(sick.ran), len(well.ran)) == (2, 6)
    (told,) = lost
    assert told.startswith("node a is lost (/shared/logs: Permission denied); what it had begun")


def test_what_the_last_node_says_ends_the_sweep(tmp_path: Path) -> None:
    nodes, store = [SickNode("a", "m"), SickNode("b", "m")], Store(tmp_path)
    with pytest.raises(UserError, match=r"^node .: /shared/logs: Permission denied: the last node"):
        sweep(store, nodes, trials(cells=8, repeats=1))
    assert len(stored(store)) == 4
