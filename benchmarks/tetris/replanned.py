"""A pipeline of labels that plans again while it serves, beside the one that keeps its stages.

    python -m benchmarks.tetris.replanned [--models demo-sentiment demo-shapes] [--inputs 6000]
                                          [--window 2] [--batch 8] [--repeats 3] [--quick]

Two workers of one thread, two stages, 4 batches in flight in a closed loop; inputs leave below an
entropy of 0.2. The mix shifts in one run: of the first half of the inputs 80% leave behind the
first layer, of the second half 20%. Systems take turns:

    kept       stages as they share the work of the first mix best, only their ramp is asked
    black box  the same stages, all ramps are asked: what planning has to ask costs
    replanned  the same stages at first, planned again at the ends of windows

Labels a second of whole runs, over those of `kept`: median and range of the ratios of neighbours.
"other labels" counts those of the last two that differ. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from functools import partial
from typing import Any

import numpy as np

from backends import open_backend
from backends.checkpoints import models
from backends.classifiers import measured
from backends.classifiers.inputs import bundled_inputs
from backends.classifiers.weights import load
from backends.tetris.ramps.rules import EntropyRule
from benchmarks.support.turns import in_turns
from harness.core.nouns import Generation, Load, Model, Request
from harness.measure.load_loop import run_load

RULE = EntropyRule(0.2)
MIXES = (0.8, 0.2)
FIRST_CUT = 1
IN_FLIGHT = 4
"""Over a batch."""
ROWS = 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=["demo-sentiment", "demo-shapes"])
    parser.add_argument("--inputs", type=int, default=6000)
    parser.add_argument("--window", type=float, default=2.0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one model, few inputs")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.models, chosen.inputs, chosen.window, chosen.repeats = (
            ["demo-sentiment"],
            400,
            0.2,
            1,
        )
    print(json.dumps({name: compared(chosen, name) for name in chosen.models}))


def shifting(name: str, count: int) -> list[Request]:
    """Inputs of `MIXES` after one another."""
    directory = models.BUNDLED[name]
    prompts = bundled_inputs(directory, ROWS)
    leaves = measured.decisions(load(directory), RULE, prompts)[:, 0]
    easy, hard = (np.flatnonzero(leaves == value).tolist() for value in (True, False))
    draw = random.Random(0)
    chosen = [
        prompts[draw.choice(easy if draw.random() < share else hard)]
        for share in MIXES
        for _ in range(count // len(MIXES))
    ]
    return [Request(str(n), ids, 1, answer="label") for n, ids in enumerate(chosen)]


def compared(chosen: argparse.Namespace, name: str) -> dict[str, Any]:
    """The three systems on one model."""
    wanted = shifting(name, chosen.inputs)
    load_of = Load("closed", concurrency=IN_FLIGHT * chosen.batch)
    common = {"threads": 1, "batch": chosen.batch, "layers": [FIRST_CUT]}
    systems: dict[str, dict[str, Any]] = {
        "kept": {},
        "black box": {"black_box": True},
        "replanned": {"replan_s": chosen.window},
    }
    model, directory = Model(name, dtype="float32"), models.BUNDLED[name]
    backends = {
        label: open_backend("tetris-classifier", directory, model, {**common, **options})
        for label, options in systems.items()
    }
    told: dict[str, list[Generation]] = {}

    def turn(label: str) -> float:
        backends[label].reset()
        told[label] = answers = run_load(backends[label], wanted, load_of)
        ends = [one.commit_ns[-1] for one in answers]
        return 1e9 * len(answers) / (max(ends) - min(one.submitted_ns for one in answers))

    try:
        rates = in_turns({label: partial(turn, label) for label in backends}, chosen.repeats)
    finally:
        for backend in backends.values():
            backend.close()
    black, planned = ([one.label for one in told[label]] for label in ("black box", "replanned"))
    result: dict[str, Any] = {
        "other labels": sum(
            a is None or b is None or a.name != b.name for a, b in zip(black, planned, strict=True)
        ),
        "plans": plans(told["replanned"]),
    }
    for label, found in rates.items():
        ratios = [a / b for a, b in zip(found, rates["kept"], strict=True)]
        result[label] = {
            "labels_per_s": round(statistics.median(found)),
            "over_kept": round(statistics.median(ratios), 3),
            "from_to": [round(min(ratios), 3), round(max(ratios), 3)],
        }
    print(f"{name}: {json.dumps(result)}", flush=True)
    return result


def plans(answers: list[Generation]) -> dict[str, float]:
    """What the last run told of them."""
    return {
        key: round(value, 1)
        for one in answers
        for key, value in sorted(one.telemetry.items())
        if key.startswith("plan_")
    }


if __name__ == "__main__":
    main()
