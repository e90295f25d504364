"""How right a classifier is behind each of its layers and with early exits, on test rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from backends.classifiers.flight import InputInFlight
from backends.classifiers.segments import SegmentedClassifier
from backends.tetris.ramps.rules import EntropyRule, PatienceRule, RampRule
from backends.tetris.ramps.wrapper import ExitWrapper
from backends.training.labels.fit import CHUNK, Encode, Network, logits_of
from workloads import LABELLED
from workloads.bundled import rows
from workloads.hardness import difficulty
from workloads.labelled import LABELS

TEST_ROWS = 2000
ENTROPIES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
PATIENCES = (1, 2, 3, 4)


def measured_on_test_rows(network: Network, workload: str, encode: Encode) -> dict[str, Any]:
    """Over `TEST_ROWS` test rows of seed 0: `layers`, the accuracy behind each layer, for all rows,
    the easier and the harder half; and by rule the `accuracy`, the mean `layers_run`, and the share
    of labels `as_without` exits."""
    drawn = rows(workload, "test", TEST_ROWS)
    content = LABELLED[workload].content
    prompts = encode([row[content] for row in drawn])
    wanted = torch.tensor([LABELS[workload].index(row["label"]) for row in drawn])
    hardness = torch.tensor([difficulty(workload, row) for row in drawn])
    easy = hardness <= hardness.median()
    with torch.inference_mode():
        parts = [
            torch.stack(logits_of(network, prompts[start : start + CHUNK], True))
            for start in range(0, len(prompts), CHUNK)
        ]
    said = torch.cat(parts, 1).argmax(2)
    right = said == wanted
    found: dict[str, Any] = {
        "rows": len(drawn),
        "layers": {
            str(layer): {
                "all": _share(one),
                "easier": _share(one[easy]),
                "harder": _share(one[~easy]),
            }
            for layer, one in zip((*network.ramps, network.depth), right, strict=True)
        },
    }
    rules: dict[str, RampRule] = {f"entropy {nats}": EntropyRule(nats) for nats in ENTROPIES}
    rules |= {f"patience {count}": PatienceRule(count) for count in PATIENCES}
    found["exits"] = {
        name: _exits(network, rule, prompts, wanted, said[-1]) for name, rule in rules.items()
    }
    return found


def _exits(
    network: Network,
    rule: RampRule,
    prompts: Sequence[Sequence[int]],
    wanted: torch.Tensor,
    final: torch.Tensor,
) -> dict[str, float]:
    wrapper = ExitWrapper(rule, network.ramps, network.ramps)
    engine = SegmentedClassifier(
        network, wrapper, network.ramps, batching="shrinking", batch=64, patience_ms=0
    )
    for number, prompt in enumerate(prompts):
        engine.add(InputInFlight(str(number), tuple(prompt)))
    said, run = torch.empty_like(wanted), 0
    while len(engine):
        for one in engine.step():
            assert one.memory.answer is not None
            said[int(one.request_id)] = one.memory.answer.label
            run += one.layers_run
    return {
        "accuracy": _share(said == wanted),
        "layers_run": round(run / len(prompts), 3),
        "as_without": _share(said == final),
    }


def _share(right: torch.Tensor) -> float:
    return round(float(right.float().mean()), 4)
