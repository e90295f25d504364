"""The options of classifiers that leave early, read once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.classifiers.config import ClassifierConfig
from backends.tetris.ramps.rules import EntropyRule, PatienceRule, RampRule, SoftmaxRule
from harness.core.backend import Option
from harness.core.errors import UserError

ENTROPY, SOFTMAX, PATIENCE, NEVER = "entropy", "softmax", "patience", "never"
DEFAULTS = {ENTROPY: 0.2, SOFTMAX: 0.95}

SHRINKING, TOGETHER, REGROUPED = "shrinking", "together", "regrouped"
BATCHINGS = (SHRINKING, TOGETHER, REGROUPED)

BATCH_OPTIONS: dict[str, Option] = {
    "batch": Option(int, 8, "inputs of a batch, at most", minimum=1, maximum=4096),
    "threads": Option(
        int,
        None,
        "CPU threads; default: all cores, or what the CPU quota is worth",
        minimum=1,
        maximum=1024,
    ),
}
RAMP_OPTIONS: dict[str, Option] = {
    "measure": Option(
        str,
        ENTROPY,
        "when an input is sure: entropy in nats below the threshold (DeeBERT, BranchyNet), "
        "probability of the first label from it on, or a label that stayed the same (PABEE)",
        (ENTROPY, SOFTMAX, PATIENCE, NEVER),
    ),
    "threshold": Option(
        float,
        None,
        f"of entropy (default {DEFAULTS[ENTROPY]}) and softmax (default {DEFAULTS[SOFTMAX]})",
        minimum=0,
    ),
    "patience": Option(
        int, None, "of patience: so many ramps in a row repeat the label; default 3", minimum=1
    ),
}


def rule(options: Mapping[str, Any]) -> RampRule | None:
    """When an input is sure, of options that passed `check`; None: never."""
    measure = options["measure"]
    if measure == NEVER:
        return None
    if measure == PATIENCE:
        return PatienceRule(options["patience"] or 3)
    threshold = DEFAULTS[measure] if options["threshold"] is None else options["threshold"]
    return EntropyRule(threshold) if measure == ENTROPY else SoftmaxRule(threshold)


def check(name: str, options: Mapping[str, Any]) -> None:
    """Raise `UserError` for options that contradict each other."""
    measure = options["measure"]
    for key, owners in (("threshold", (ENTROPY, SOFTMAX)), ("patience", (PATIENCE,))):
        if options[key] is not None and measure not in owners:
            raise UserError(
                f"backend '{name}': option '{key}': means nothing with measure '{measure}'; "
                f"expected measure {' or '.join(owners)}"
            )
    if measure == SOFTMAX and options["threshold"] is not None and options["threshold"] > 1:
        raise UserError(
            f"backend '{name}': option 'threshold': a probability is at most 1, got "
            f"{options['threshold']!r}"
        )


def taken(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the defaults that the measure gives."""
    measure, found = options["measure"], dict(options)
    if measure in DEFAULTS and found["threshold"] is None:
        found["threshold"] = DEFAULTS[measure]
    if measure == PATIENCE and found["patience"] is None:
        found["patience"] = 3
    return found


def even_cuts(name: str, config: ClassifierConfig, stages: int) -> tuple[int, ...]:
    """Where a network is cut into so many nearly equal stages, the earlier ones not longer, since
    more come to them. Raises `UserError` for more stages than layers."""
    if stages > config.depth:
        raise UserError(
            f"backend '{name}': option 'stages': is {stages}; the model has {config.depth} layers"
        )
    return tuple(config.depth * place // stages for place in range(1, stages))


def check_cuts(name: str, key: str, cuts: list[Any], config: ClassifierConfig) -> tuple[int, ...]:
    """Layers that an option names, ascending. Raises `UserError` for what is none inside."""
    most = config.depth - 1
    if not all(type(one) is int and 1 <= one <= most for one in cuts) or cuts != sorted({*cuts}):
        raise UserError(
            f"backend '{name}': option '{key}': expected ascending layers from 1 to {most}, got "
            f"{cuts!r}"
        )
    return tuple(cuts)
