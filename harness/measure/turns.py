"""In which order the trials of a sweep are run, so that a machine that drifts favours nobody."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from harness.core.canonical import canonical_json, to_json
from harness.core.names import QUALITY
from harness.core.nouns import Trial

Key = TypeVar("Key", bound=Hashable)


def cell_by_cell(trials: Sequence[Trial]) -> list[Trial]:
    """What is compared is run side by side: repeat by repeat, in each model by model, in each cell
    by cell, in each engine by engine: A B C D, D C B A, then C D A B, B A D C, and so on.

    A pair of repeats has each engine in the same place on average, so that a drift hits all alike.
    The next pair begins two engines further on: in one order for all, what stands far from the
    reference shares more with itself from repeat to repeat than with the reference, and intervals
    come out too narrow (`benchmarks/soundness/wandering.py --systems 7`). Neighbouring cells go in
    opposite directions: the engine that ends one begins the next.

    What is asked for the answers' sake alone comes last.

    It asks for all engines of a model to be loaded at once: `engine_by_engine` where they are not.
    """
    models = _places(trial.model for trial in trials)
    cells = _places(_cell(trial) for trial in trials)
    engines = {
        model: _places(trial.engine_key() for trial in trials if trial.model == model)
        for model in models
    }
    turns = _places(sorted(trial.repeat for trial in trials))

    def rank(trial: Trial) -> tuple[bool, int, int, int, int]:
        turn, cell, rivals = turns[trial.repeat], cells[_cell(trial)], engines[trial.model]
        place = (rivals[trial.engine_key()] - turn // 2 * 2) % len(rivals)
        model = models[trial.model]
        return _is_last(trial), trial.repeat, _back(turn) * model, cell, _back(turn + cell) * place

    return sorted(trials, key=rank)


def pair_by_pair(trials: Sequence[Trial]) -> list[tuple[Trial, bool]]:
    """The order for two versions of the code, that of `cell_by_cell`, and of each trial whether the
    second version goes first: in every other repeat, begun in turns by engines and cells, so that
    over a pair of repeats both versions have either place in each cell."""
    cells = _places(_cell(trial) for trial in trials)
    engines = _places(trial.engine_key() for trial in trials)
    turns = _places(sorted(trial.repeat for trial in trials))

    def turned(trial: Trial) -> bool:
        places = turns[trial.repeat] + cells[_cell(trial)] + engines[trial.engine_key()]
        return places % 2 == 1

    return [(trial, turned(trial)) for trial in cell_by_cell(trials)]


def engine_by_engine(rest: Sequence[Trial], loaded: str, trials: Sequence[Trial]) -> list[Trial]:
    """Engines A B C and then C B A, each with all its trials of a repeat: as few loads as fair
    repeats allow.

    Args:
        rest: what is still to be run of `trials`.
        loaded: the key of the engine that has its part of the first repeat before the others.
    """
    engines = _places(trial.engine_key() for trial in trials)
    turns = _places(sorted(trial.repeat for trial in trials))
    first = min((turns[trial.repeat] for trial in rest), default=0)

    def rank(trial: Trial) -> tuple[bool, int, bool, int]:
        key, turn = trial.engine_key(), turns[trial.repeat]
        other = turn > first or key != loaded
        return _is_last(trial), trial.repeat, other, _back(turn) * engines[key]

    return sorted(rest, key=rank)


def _is_last(trial: Trial) -> bool:
    return trial.load.kind == QUALITY


def _back(turn: int) -> int:
    """What turns an order round in every other turn."""
    return 1 if turn % 2 == 0 else -1


def _places(keys: Iterable[Key]) -> dict[Key, int]:
    return {key: place for place, key in enumerate(dict.fromkeys(keys))}


def _cell(trial: Trial) -> str:
    return canonical_json(to_json(replace(trial, backend="", options={}, repeat=0)))
