"""A made-up backend whose batches leave early together: its steps, their counts and stamps."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backends.early_exit.plugin.telemetry import DecodedStep, summed
from harness.core.nouns import Generation

LAYERS = 8
LAYER_US, REST_US, CHECK_US, FILL_US, PROMPT_US = 1100.0, 1200.0, 150.0, 60.0, 9000.0
"""One sequence: all layers and the rest of a step take 10 ms, like `report_runs.ENGINES[0]`."""
STATEMENT = "mean ROUGE-L to full of at least 0.75 on new prompts, with 95% confidence"


@dataclass(frozen=True)
class BatchSteps:
    """Exits of a made-up backend: the chance to be confident behind each layer when reached."""

    rates: tuple[float, ...] = (0.3, 0.4, 0.5)
    layers: tuple[int, ...] = (2, 4, 6)
    measure: str = "softmax"
    thresholds: tuple[float, ...] = (0.9, 0.9, 0.9)
    calibrated: bool = False
    times: bool = True

    def options(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What the backend says took effect."""
        return {
            **asked,
            "measure": self.measure,
            "layers": list(self.layers),
            "thresholds": list(self.thresholds),
            "calibration_statement": STATEMENT if self.calibrated else None,
        }

    def own_exit(self, draw: random.Random) -> int:
        """Where a sequence alone would leave."""
        pairs = zip(self.layers, self.rates, strict=True)
        return next((layer for layer, rate in pairs if draw.random() < rate), LAYERS)

    def step(self, names: list[str], draw: random.Random, *, mixed: bool) -> DecodedStep:
        """One iteration over these requests; what reads prompts runs all layers."""
        own = [LAYERS if mixed else self.own_exit(draw) for _ in names]
        exit_layer = max(own)
        checked = () if mixed else tuple(x for x in self.layers if x <= exit_layer)
        confident = checked if self.measure not in ("static", "schedule") else ()
        slower = 1 + 0.03 * len(names)
        check_ns = int(1e3 * CHECK_US * len(confident) * slower)
        fill_ns = int(1e3 * FILL_US * slower) if exit_layer < LAYERS else 0
        forward_ns = int(1e3 * LAYER_US * exit_layer * slower) + check_ns + fill_ns
        step = DecodedStep(names, LAYERS, exit_layer, own, confident, mixed)
        step.check_ns, step.fill_ns, step.forward_ns = check_ns, fill_ns, forward_ns
        return step


def decode_batches(
    generations: Sequence[Generation], steps: BatchSteps, width: int, draw: random.Random
) -> None:
    """Commits, stamps and counts of a closed load with `width` requests in flight: a request that
    ends makes room for the next, whose prompt is read in the next step."""
    waiting = list(generations)
    now = float(waiting[0].scheduled_ns)
    live: list[Generation] = []
    for generation in generations:
        generation.finished = "stop"
    while live or waiting:
        started = waiting[: width - len(live)]
        del waiting[: len(started)]
        spent_us = PROMPT_US * len(started)
        told: list[Mapping[str, float]] = []
        if live:
            names = [generation.request_id for generation in live]
            step = steps.step(names, draw, mixed=bool(started))
            spent_us += REST_US + step.forward_ns / 1e3
            if not steps.times:
                step.forward_ns = 0
            told = [summed([part]) for part in step.parts()]
        for generation in started:
            generation.scheduled_ns, generation.submitted_ns = int(now), int(now) + 1000
        now += spent_us * 1e3 * (1 + 0.1 * draw.random())
        for generation, counts in zip(live, told, strict=True):
            _add(generation, counts, now)
        for generation in started:
            _add(generation, {}, now)
        live = [g for g in (*live, *started) if len(g.commit_ns) < len(g.token_ids)]


def _add(generation: Generation, counts: Mapping[str, float], now: float) -> None:
    generation.commit_ns.append(int(now))
    generation.commit_tokens.append(1)
    for name, count in counts.items():
        generation.telemetry[name] = generation.telemetry.get(name, 0.0) + count
