"""In which order trials are run: what is compared side by side, and nobody favoured by a drift."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.core.nouns import Load, Model, Trial
from harness.measure.fleet import Fleet
from harness.measure.turns import cell_by_cell, engine_by_engine
from tests.support.harness.sessions import make_trial
from tests.support.harness.sweeping import opened, room_for, sweep

ENGINES, CELLS = (1, 2, 3), (0, 1)


def trials_of(repeats: int, model: str = "none") -> list[Trial]:
    """As an experiment lists them: each engine with all its cells and repeats."""
    return [
        replace(make_trial(seed=cell, repeat=repeat, tokens=engine), model=Model(model))
        for engine in ENGINES
        for cell in CELLS
        for repeat in range(repeats)
    ]


def places(trials: list[Trial]) -> list[tuple[int, int, int]]:
    return [(t.repeat, t.seed, t.options["tokens"]) for t in trials]


def test_engines_take_turns_in_each_cell_forth_and_back() -> None:
    found = places(cell_by_cell(trials_of(2)))
    first = [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 3), (0, 1, 2), (0, 1, 1)]
    second = [(1, 0, 3), (1, 0, 2), (1, 0, 1), (1, 1, 1), (1, 1, 2), (1, 1, 3)]
    assert found == first + second


def test_engines_take_turns_with_whole_repeats_where_they_are_loaded_anew() -> None:
    trials = trials_of(2)
    found = places(engine_by_engine(trials, trials[0].engine_key(), trials))
    first = [(0, cell, engine) for engine in (1, 2, 3) for cell in CELLS]
    second = [(1, cell, engine) for engine in (3, 2, 1) for cell in CELLS]
    assert found == first + second
    loaded = make_trial(tokens=2).engine_key()
    found = places(engine_by_engine(trials, loaded, trials))
    assert [engine for repeat, _, engine in found if repeat == 0] == [2, 2, 1, 1, 3, 3]
    assert found[6:] == second
    rest = cell_by_cell(trials)[2:]
    found = places(engine_by_engine(rest, loaded, trials))
    assert [engine for repeat, _, engine in found if repeat == 0] == [2, 1, 3, 3]
    assert found[4:] == second


def test_a_drift_hits_the_same_cell_of_all_engines_alike() -> None:
    """Over an even number of repeats the mean place in the order is the same for every engine."""
    trials = trials_of(4)
    for ordered in (
        cell_by_cell(trials),
        engine_by_engine(trials, trials[0].engine_key(), trials),
    ):
        found: dict[tuple[int, int], list[int]] = {}
        for place, (_, cell, engine) in enumerate(places(ordered)):
            found.setdefault((cell, engine), []).append(place)
        for cell in CELLS:
            assert len({sum(found[cell, engine]) for engine in ENGINES}) == 1


def test_models_follow_one_another_forth_and_back_so_that_the_last_one_stays_loaded() -> None:
    both = cell_by_cell([*trials_of(2, "small"), *trials_of(2, "large")])
    names = [trial.model.name for trial in both]
    assert names == ["small"] * 6 + ["large"] * 12 + ["small"] * 6


def begun(tmp_path: Path, room: int, trials: list[Trial]) -> list[Trial]:
    """The trials of a sweep as they began."""
    found: list[Trial] = []
    sweep(
        trials,
        room=room,
        events=lambda event: found.append(event.trial) if event.kind == "started" else None,
    )
    return found


def test_a_sweep_goes_cell_by_cell_as_long_as_all_engines_fit(tmp_path: Path) -> None:
    trials = trials_of(2)
    log = {"test": {"opened": str(tmp_path / "opened")}}
    told = [replace(trial, options={**trial.options, **log}) for trial in trials]
    assert begun(tmp_path, 3, told) == cell_by_cell(told)
    assert len(opened(tmp_path / "opened")) == len(ENGINES)


def test_where_they_do_not_fit_an_engine_finishes_its_part_first(tmp_path: Path) -> None:
    """One load too many shows it; after that as few as ever."""
    log = {"test": {"opened": str(tmp_path / "opened")}}
    told = [replace(trial, options={**trial.options, **log}) for trial in trials_of(2)]
    found = places(begun(tmp_path, 1, told))
    assert [engine for repeat, _, engine in found if repeat == 0] == [1, 2, 2, 1, 3, 3]
    assert [engine for repeat, _, engine in found if repeat == 1] == [3, 3, 2, 2, 1, 1]
    assert len(opened(tmp_path / "opened")) == 6


def test_engines_of_another_model_that_go_are_no_reason_to_change_the_order() -> None:
    fleet = Fleet(lambda trial: None, None)
    assert not fleet.crowded
    small, large = (make_trial(tokens=n) for n in (1, 2))
    for rivals, crowded in (({large.engine_key()}, False), ({small.engine_key()}, True)):
        fleet._alive[small.engine_key()] = Gone()  # type: ignore[assignment]
        fleet._rivals = rivals
        with room_for(1):
            fleet._make_room(large.engine_key(), [small.engine_key()])
        assert fleet.crowded == crowded


def test_an_engine_that_never_starts_does_not_end_the_turns_of_the_others(tmp_path: Path) -> None:
    """It is tried alone before that is known."""
    trials = [
        replace(trial, options={**trial.options, "test": {"start": "raise"}})
        if trial.options["tokens"] == ENGINES[-1]
        else trial
        for trial in trials_of(2)
    ]
    assert begun(tmp_path, len(ENGINES), trials) == cell_by_cell(trials)


class Gone:
    """An engine that can end."""

    def close(self) -> None: ...


def test_what_is_asked_for_its_answers_alone_comes_last() -> None:
    trials = trials_of(2)
    more = [
        replace(trial, load=Load("quality", concurrency=8), seed=9)
        for trial in trials
        if (trial.seed, trial.repeat) == (0, 0)
    ]
    found = cell_by_cell([*more, *trials])
    assert [t.load.kind for t in found] == ["closed"] * len(trials) + ["quality"] * len(more)
    found = engine_by_engine([*more, *trials], trials[0].engine_key(), [*more, *trials])
    assert [t.load.kind for t in found[-len(more) :]] == ["quality"] * len(more)
