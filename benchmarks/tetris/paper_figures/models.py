"""BERT-Base on the paper's devices, as `benchmarks/tetris/paper.py` has it, and its variants."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from backends.tetris.pipeline.leaving import LeaveDecisions, drawn
from backends.tetris.profile import StageProfile
from benchmarks.tetris import paper

ENTROPY, MOST_ENTROPY = 0.4, math.log(2)
"""The paper's usual threshold, and the entropy of not knowing which of two labels."""
PATIENCE = 3
BLACK_BOX, PABEE, PABEE_STAGES = "black box", "pabee", "pabee, staged"


def variant(name: str, batch: int) -> StageProfile:
    """BERT-Base at a batch: "bert"; "bert at 0.3" with another entropy threshold; `BLACK_BOX`,
    where every ramp within a stage runs and not that at its end alone; `PABEE` with its survival,
    and `PABEE_STAGES`, where the counters run at each layer wherever the cuts are."""
    made = paper.model(batch)
    if name.startswith("bert at "):
        return replace(made, survival=at_entropy(float(name.removeprefix("bert at "))))
    if name in (PABEE, PABEE_STAGES):
        made = replace(made, survival=tuple(patient(20_000).alive().tolist()))
    return all_ramps(made) if name in (BLACK_BOX, PABEE_STAGES) else made


def inputs(name: str, count: int) -> LeaveDecisions:
    """Who leaves where."""
    if name in (PABEE, PABEE_STAGES):
        return patient(count)
    return drawn(variant(name, 1).survival, count, 0)


def all_ramps(model: StageProfile) -> StageProfile:
    """A ramp is part of its layer: it runs wherever the stages end."""
    layer_ms = {
        kind: (*(ms + model.ramp_ms[kind] for ms in layers[:-1]), layers[-1])
        for kind, layers in model.layer_ms.items()
    }
    return replace(model, layer_ms=layer_ms, ramp_ms=dict.fromkeys(model.ramp_ms, 0.0))


def at_entropy(threshold: float) -> tuple[float, ...]:
    """Survival at another threshold of entropy. At a ramp that a share a passes at 0.4, an input
    that is surer than a share u of all has the entropy log(2) (1 - u)^p, with p such that it is 0.4
    at u = a."""
    usual = paper.model(1).survival
    survival = [1.0]
    for alive in usual[1:]:
        power = math.log(ENTROPY / MOST_ENTROPY) / math.log(1 - alive)
        survival.append(1 - (threshold / MOST_ENTROPY) ** (1 / power))
    return tuple(np.minimum.accumulate(survival).tolist())


def patient(count: int) -> LeaveDecisions:
    """PABEE: an input leaves once `PATIENCE` ramps in a row agree. They do from the ramp on where
    it would leave by entropy."""
    settled = drawn(paper.model(1).survival, count, 0).depths()
    behind = settled + PATIENCE - 1
    return LeaveDecisions(behind[:, None] <= np.arange(1, paper.LAYERS))
