"""Decoding with early predictions played step by step, as the algorithm is written down."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from backends.engine.costs.cost_model import StepCosts, Trace


@dataclass
class Played:
    """Counts and cost so far."""

    cost: float = 0.0
    tokens: int = 0
    cycles: int = 0
    passes: int = 0
    checks: Counter[int] = field(default_factory=Counter)
    exits: Counter[int] = field(default_factory=Counter)
    accepted: Counter[int] = field(default_factory=Counter)


def cycle(
    played: Played,
    costs: StepCosts,
    max_drafts: int,
    confident: list[list[bool]],
    right: list[bool],
) -> int:
    """One cycle over frontiers; `confident[d][s]` is whether token d would leave at exit s and
    `right[d]` whether its draft would be right. Returns the tokens that it emits."""
    segments = len(costs.segments)
    done, exits = [0] * segments, list[int]()
    full = costs.segments_full or costs.segments

    def price(one: float, many: float, rows: int) -> float:
        return one + (rows - 1) * (many - one) / max_drafts

    position = 0
    while True:
        for s in range(segments):
            rows = position + 1 - done[s]
            played.cost += price(costs.segments[s], full[s], rows)
            played.passes += 1
            done[s] = position + 1
            if s == segments - 1 or len(exits) == max_drafts:
                continue
            played.cost += costs.exit_heads[s]
            played.checks[s] += 1
            if confident[position][s]:
                played.exits[s] += 1
                exits.append(s)
                break
        else:
            break
        position += 1
    head = costs.final_head if costs.final_head_full is None else costs.final_head_full
    played.cost += price(costs.final_head, head, len(exits) + 1)
    kept = 0
    while kept < len(exits) and right[kept]:
        played.accepted[exits[kept]] += 1
        kept += 1
    played.cycles += 1
    played.tokens += kept + 1
    return kept + 1


def play(
    trace: Trace,
    layers: tuple[int, ...],
    gammas: tuple[float, ...],
    costs: StepCosts,
    max_drafts: int,
) -> Played:
    """What `replay` vectorises, token by token."""
    played = Played()
    columns = [trace.layers.index(layer) for layer in layers]
    over = trace.confidence[:, columns] > np.array(gammas, float)
    for begin, end in itertools.pairwise(trace.starts.tolist()):
        position = begin
        while position < end:
            confident = [over[r].tolist() for r in range(position, end - 1)]
            right = [
                bool(trace.agrees[position + i, columns[sure.index(True)]]) if any(sure) else False
                for i, sure in enumerate(confident)
            ]
            confident.append([False] * len(columns))
            position += cycle(played, costs, max_drafts, confident, right)
    return played
