"""Two versions of the code in turns: whose turn it is, what is run again, where engines do not fit
side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from harness.core.nouns import Trial
from harness.measure.sweep import SweepEvent, SweepResult
from harness.measure.turns import cell_by_cell, pair_by_pair
from harness.measure.versions.paired import Side, run_paired
from tests.support.harness.sessions import MemoryStore, make_trial, open_session
from tests.support.harness.sweeping import opened, room_for


def trials_of(repeats: int, options: dict[str, object] | None = None) -> list[Trial]:
    found = [
        make_trial(seed=cell, repeat=repeat, tokens=engine)
        for engine in (1, 2, 3)
        for cell in (0, 1)
        for repeat in range(repeats)
    ]
    return [replace(trial, options={**trial.options, **(options or {})}) for trial in found]


def sides_of(*stores: MemoryStore) -> tuple[Side, Side]:
    base, new = (
        Side(name, store, {"cpu": "x"}, "machine", lambda trial: "code")
        for name, store in zip(("base", "new"), stores, strict=True)
    )
    return base, new


def paired(
    trials: list[Trial], stores: tuple[MemoryStore, MemoryStore], room: int = 6
) -> tuple[SweepResult, list[SweepEvent]]:
    events: list[SweepEvent] = []
    with room_for(room):
        result = run_paired(
            trials,
            sides_of(*stores),
            open_session,
            events=lambda event: events.append(event) if event.kind == "started" else None,
        )
    return result, events


def test_each_version_goes_first_equally_often_in_each_cell() -> None:
    found = pair_by_pair(trials_of(4))
    assert [trial for trial, _ in found] == cell_by_cell(trials_of(4))
    first: dict[tuple[int, object], Counter[bool]] = {}
    for trial, turned in found:
        first.setdefault((trial.seed, trial.options["tokens"]), Counter())[turned] += 1
    assert all(count == {True: 2, False: 2} for count in first.values())
    # nor does one of them lead a whole repeat
    assert {turned for trial, turned in found if trial.repeat == 0} == {True, False}


def test_halves_follow_each_other_and_are_stored_on_their_sides() -> None:
    stores = MemoryStore(), MemoryStore()
    trials = trials_of(2)
    result, events = paired(trials, stores)
    assert result.statuses == {"ok": 24}
    assert [len(store.records) for store in stores] == [12, 12]
    halves = [(event.side, event.trial.key("")) for event in events]
    for one, other in zip(halves[::2], halves[1::2], strict=True):
        assert one[1] == other[1]
        assert {one[0], other[0]} == {"base", "new"}
    assert events[0].label.startswith(f"{events[0].side} | ")
    invocations = {r.environment["invocation"] for store in stores for r in store.records}
    assert len(invocations) == 1


def test_a_pair_that_lacks_a_half_is_run_again_as_a_whole() -> None:
    stores = MemoryStore(), MemoryStore()
    trials = trials_of(2)
    paired(trials, stores)
    lost = stores[0].records.pop(5)
    before = len(stores[1].records)
    result, events = paired(trials, stores)
    assert (result.stored, result.statuses) == (22, {"ok": 2})
    assert {event.trial.key("") for event in events} == {lost.trial.key("")}
    assert (len(stores[0].records), len(stores[1].records)) == (12, before + 1)


def test_the_half_of_an_edited_version_has_failed() -> None:
    stores = MemoryStore(), MemoryStore()
    base, new = sides_of(*stores)
    new = replace(new, edited=lambda trial: "a.py changed")
    result = run_paired(trials_of(1)[:1], (base, new), open_session)
    assert result.statuses == {"ok": 1, "failed": 1}
    assert [store.records[0].status for store in stores] == ["ok", "failed"]


def test_engines_that_do_not_fit_side_by_side_take_turns_by_version(tmp_path: Path) -> None:
    """One load too many shows it; after that each version has its trials of an engine and a repeat
    in a row, and the other one begins in the next repeat."""
    log = tmp_path / "opened"
    trials = trials_of(2, {"test": {"opened": str(log)}})
    stores = MemoryStore(), MemoryStore()
    result, events = paired(trials, stores, room=1)
    assert result.statuses == {"ok": 24}
    assert all(len({r.key for r in store.records}) == 12 for store in stores)
    blocks = [(e.side, e.trial.repeat, e.trial.options["tokens"], e.trial.seed) for e in events]
    second = [block[:3] for block in blocks if block[1] == 1]
    runs = [block for place, block in enumerate(second) if place == 0 or second[place - 1] != block]
    assert len(runs) == 6
    assert {side for side, _, _ in runs[::2]} == {"new"}
    assert len(opened(log)) <= 2 * 6 + 2
