"""A made-up backend with early predictions: its costs, its counts and the stamps they come to."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.nouns import Generation

LAYERS = 8
LAYER_US, LAYER_FULL_US, EXIT_HEAD_US, FINAL_HEAD_US = 1150.0, 1300.0, 600.0, 800.0
"""A pass of one row through all layers and the final head takes 10 ms."""


@dataclass(frozen=True)
class Exits:
    """Early predictions of a made-up backend: exit rate per layer, share of right drafts, and the
    seconds that pass between two cycles outside the passes."""

    rates: tuple[float, ...] = (0.3, 0.4, 0.5)
    right: float = 0.92
    layers: tuple[int, ...] = (2, 4, 6)
    max_drafts: int = 5
    between_s: float = 0.001
    heads: str = "mixed"
    promised: float | None = 1.3

    def costs(self) -> dict[str, Any]:
        """Microseconds, as the backend measured them."""
        cut = [b - a for a, b in itertools.pairwise((0, *self.layers, LAYERS))]
        return {
            "segment_us": [layers * LAYER_US for layers in cut],
            "segment_us_full": [layers * LAYER_FULL_US for layers in cut],
            "exit_head_us": [EXIT_HEAD_US] * len(self.layers),
            "final_head_us": FINAL_HEAD_US,
        }

    def options(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What the backend says took effect."""
        told = {"predicted_speedup": self.promised} if self.promised else {}
        return {
            **asked,
            "exit_layers": list(self.layers),
            "gamma": [asked.get("gamma", 0.75)] * len(self.layers),
            "max_drafts": self.max_drafts,
            "heads": self.heads,
            "costs": self.costs(),
            **told,
        }


def decode_early(generation: Generation, exits: Exits, now: float, draw: random.Random) -> None:
    """Commits, stamps and counts of draft-and-verify cycles, as the telemetry is documented."""
    costs = exits.costs()
    plain, full = costs["segment_us"], costs["segment_us_full"]
    told: Counter[str] = Counter(steps=0, early_predictions=0, accepted=0)
    generation.commit_ns.append(int(now))
    generation.commit_tokens.append(1)
    left = len(generation.token_ids) - 1
    while left:
        spent, pending, kept = costs["final_head_us"], list[int](), 0
        while True:
            place = _leaves_at(exits, len(pending) < min(exits.max_drafts, left - 1), draw)
            reached = len(exits.layers) if place is None else place
            checked = len(pending) < exits.max_drafts
            for i in range(min(reached + 1, len(exits.layers)) * checked):
                told[f"checks_layer_{exits.layers[i]}"] += 1
                spent += costs["exit_head_us"][i]
            spent += sum(plain[: reached + 1])
            if place is None:
                break
            spent += (sum(full[place + 1 :]) - sum(plain[place + 1 :])) / exits.max_drafts
            pending.append(place)
            told[f"exits_layer_{exits.layers[place]}"] += 1
        while kept < len(pending) and draw.random() < exits.right:
            told[f"accepted_layer_{exits.layers[pending[kept]]}"] += 1
            kept += 1
        told.update(steps=1, early_predictions=len(pending), accepted=kept)
        now += spent * 1e3 + exits.between_s * 1e9 * (1 + 0.2 * draw.random())
        generation.commit_ns.append(int(now))
        generation.commit_tokens.append(kept + 1)
        left -= kept + 1
    told.update(drafted=told["early_predictions"], step_tokens=len(generation.token_ids) - 1)
    generation.telemetry.update({name: float(count) for name, count in told.items()})


def _leaves_at(exits: Exits, may_draft: bool, draw: random.Random) -> int | None:
    for place, rate in enumerate(exits.rates):
        if may_draft and draw.random() < rate:
            return place
    return None
