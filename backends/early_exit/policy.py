"""When an iteration ends early: which measure, after which layers, above which thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backends.checkpoints.exit_heads import quarters
from harness.core.errors import UserError

CONFIDENT = ("softmax", "state", "classifier")
"""Measures that ask for each sequence's confidence."""
FORCED = ("static", "schedule")
"""Measures that leave at layers given beforehand."""
NEVER = "never"
MEASURES = (*CONFIDENT, *FORCED, NEVER)
DECAYS = ("none", "calm", "t5x")
TAU = 4.0
DEFAULT_THRESHOLD = 0.9
PREFIX = "backend 'vllm-early-exit'"


@dataclass(frozen=True, slots=True)
class ExitPolicy:
    """When an iteration ends early. Layers count from 1."""

    measure: str
    layers: tuple[int, ...] = ()
    """The layers after which confidence is asked, ascending; the one layer of `static`; those of
    `schedule` in turn, one per step, the model's depth for a step that does not exit."""
    thresholds: tuple[float, ...] = ()
    """One for each layer of a confident measure; a confidence must be greater."""
    decay: str = "none"
    tau: float = TAU

    def boundaries(self, depth: int) -> tuple[int, ...]:
        """The layers after which the forward pass has to stop and look, ascending."""
        layers = self.layers if self.measure in FORCED else self.checks()
        return tuple(sorted({layer for layer in layers if layer < depth}))

    def checks(self) -> dict[int, float]:
        """Threshold by layer, without the layers at which none can pass: they cost nothing."""
        if self.measure not in CONFIDENT:
            return {}
        pairs = zip(self.layers, self.thresholds, strict=True)
        return {layer: bound for layer, bound in pairs if not self._never_passes(bound)}

    def forced_layer(self, step: int, depth: int) -> int:
        """Where step number `step` (of those that only decode) ends without asking anything."""
        return self.layers[step % len(self.layers)] if self.measure in FORCED else depth

    def threshold(self, bound: float, token: int, tokens: int) -> float:
        """The threshold `bound` as it decays over an answer of at most `tokens` tokens, at its
        decode step `token` (from 0).

        "calm" is the formula of "Confident Adaptive Language Modeling" (Schuster et al., 2022,
        section 3.4), "t5x" the one of its released code, where the second term is scaled too.
        """
        fading = math.exp(-self.tau * token / tokens)
        if self.decay == "calm":
            return min(1.0, max(0.0, 0.9 * bound + 0.1 * fading))
        if self.decay == "t5x":
            return 0.9 * bound + 0.1 * bound * fading
        return bound

    def warnings(self, prefix: str = PREFIX) -> list[str]:
        """What the user probably did not mean: thresholds that none or every confidence passes.
        Each begins with `prefix`, the backend."""
        if self.measure not in CONFIDENT:
            return []
        pairs = list(zip(self.layers, self.thresholds, strict=True))
        never = [layer for layer, bound in pairs if self._never_passes(bound)]
        always = [
            layer
            for layer, bound in pairs
            if self.threshold(bound, 0, 1) <= 0 and self.measure != "state"
        ]
        found = []
        if never:
            found.append(
                f"{prefix}: the threshold of {_named(never)} can never be passed, so nothing is "
                "checked there"
            )
        if always:
            found.append(
                f"{prefix}: the threshold of {_named(always)} is passed by all but ties; 'measure: "
                f"static' with 'layers: [{always[0]}]' does about the same without checks"
            )
        return found

    def comparisons(self, prefix: str = PREFIX) -> list[str]:
        """What the user may not expect of `state` where one layer alone is checked; begins with
        `prefix`."""
        checked = list(self.checks())
        if self.measure != "state" or len(checked) != 1 or checked == [1]:
            return []
        return [
            f"{prefix}: option 'layers': 'measure: state' after {_named(checked)} alone compares "
            f"it with the embedding, and not with layer {checked[0] - 1}, as CALM does; name that "
            "layer, too"
        ]

    def _never_passes(self, bound: float) -> bool:
        return self.threshold(bound, 1, 1) >= 1  # thresholds fall along the answer


def make_policy(
    measure: str,
    layers: Sequence[Any],
    thresholds: Sequence[Any] | float,
    decay: str,
    tau: float,
    depth: int,
    prefix: str = PREFIX,
) -> ExitPolicy:
    """A policy for a model of `depth` layers. `thresholds` is one for all layers or one for each.

    Raises `UserError`, which begins with `prefix`, for a layer out of range and a list of
    thresholds that does not fit.
    """
    if measure == NEVER:
        return ExitPolicy(NEVER)
    highest = depth if measure == "schedule" else depth - 1
    chosen = _checked_layers(layers, measure, highest, prefix)
    if measure in FORCED:
        return ExitPolicy(measure, chosen)
    bounds = list(thresholds) if isinstance(thresholds, Sequence) else [thresholds] * len(chosen)
    if len(bounds) != len(chosen):
        raise UserError(
            f"{prefix}: option 'thresholds': {len(bounds)} for {len(chosen)} layers "
            f"{list(chosen)}; expected one for each"
        )
    order = sorted(range(len(chosen)), key=chosen.__getitem__)
    return ExitPolicy(
        measure,
        tuple(chosen[i] for i in order),
        tuple(float(bounds[i]) for i in order),
        decay,
        tau,
    )


def _named(layers: Sequence[int]) -> str:
    return f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"


def _checked_layers(
    layers: Sequence[Any], measure: str, highest: int, prefix: str
) -> tuple[int, ...]:
    where, expected = f"{prefix}: option 'layers'", f"expected numbers from 1 to {highest}"
    if not layers:
        raise UserError(f"{where}: an empty list; {expected}")
    for layer in layers:
        if not isinstance(layer, int) or isinstance(layer, bool):
            raise UserError(f"{where}: {expected}, got {layer!r}")
        if not 1 <= layer <= highest:
            raise UserError(f"{where}: no exit after layer {layer!r}; {expected}")
    if measure == "static" and len(layers) != 1:
        raise UserError(f"{where}: {list(layers)}; 'measure: static' leaves at one layer")
    if measure != "schedule" and len(set(layers)) != len(layers):
        raise UserError(f"{where}: {list(layers)} names a layer twice")
    return tuple(layers)


def default_layers(measure: str, depth: int) -> tuple[int, ...]:
    """Half the depth for `static` (the paper's static-half), else the quarters of the depth."""
    return (max(1, depth // 2),) if measure == "static" else quarters(depth)
