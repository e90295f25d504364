"""What lets a token leave on our own engine: the policy and the measures of `vllm-early-exit`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.early_exit.plan import ExitPlan
from backends.early_exit.plugin.telemetry import step_counts
from backends.early_exit.policy import ExitPolicy

if TYPE_CHECKING:
    from torch import Tensor

    from backends.engine.early_exits import Measure
    from backends.engine.executors.base import Executor, StepRows
    from backends.engine.model.heads import ExitHead
    from backends.engine.streams import Stream


class SequenceRule:
    """A `LeavingRule`: each sequence by its own confidence.

    Args:
        policy: with a confident measure, or one that never leaves.
        depth: layers of the model.
        only: of the policy's layers, those after which confidence is asked; None: all.
    """

    def __init__(self, policy: ExitPolicy, depth: int, only: Collection[int] | None = None) -> None:
        self._policy, self._depth = policy, depth
        checks = policy.checks()
        if only is not None:
            checks = {layer: bound for layer, bound in checks.items() if layer in only}
        self.layers = tuple(checks)
        """Those after which confidence is asked, ascending."""
        self.bounds = tuple(checks.values())
        """What a confidence must exceed there, before any decay."""
        # confidences are float32, and are compared with bounds of the same
        self._fixed = tuple(float(np.float32(bound)) for bound in self.bounds)

    def bound(self, stream: Stream, index: int) -> float:
        """What a confidence must exceed at exit number `index` for the stream's next token."""
        if self._policy.decay == "none":
            return self._fixed[index]
        token = len(stream.tokens) - 1 - len(stream.prompt)
        bound = self._policy.threshold(self.bounds[index], token, stream.max_new_tokens)
        return float(np.float32(bound))

    def passes(self, stream: Stream, index: int, confidence: float) -> bool:
        """See `LeavingRule.passes`."""
        return confidence > self.bound(stream, index)

    def counts(self, layers: int, under_way: int) -> Mapping[str, float]:
        """See `LeavingRule.counts`."""
        asked = tuple(layer for layer in self.layers if layer <= layers)
        return step_counts(self._depth, layers, asked, False, under_way, layers)


def exit_head(plan: ExitPlan, layer: int, final: Any) -> ExitHead:
    """What speaks after a layer: the model's `final` head, or one that was trained for it."""
    from backends.engine.model.heads import ExitHead

    matrix = plan.heads().matrix(layer, final) if plan.has_heads else final
    return ExitHead(layer, matrix, margin=plan.policy.measure == "softmax")


def columns(plan: ExitPlan, layers: Sequence[int]) -> tuple[int, ...]:
    """The exits of the replayed trace that those after `layers` replay."""
    found = dict(zip(plan.policy.layers, plan.columns, strict=False))
    return tuple(found[layer] for layer in layers)


class StateMeasure:
    """Cosine of the residual stream at successive exits; the first against the embedding."""

    def __init__(self, executor: Executor, embedding: Any) -> None:
        self._executor, self._embedding = executor, embedding

    def __call__(self, index: int, rows: StepRows) -> Sequence[float]:
        """A `Measure`."""
        import torch

        from backends.kernels.exit_confidence import cosine_rows

        after = states(self._executor, index + 1, rows)
        if index:
            before = states(self._executor, index, rows)
        else:
            tokens = torch.from_numpy(rows.tokens.astype(np.int64))
            before = self._embedding[tokens.to(getattr(self._embedding, "device", "cpu"))].float()
        found: list[float] = cosine_rows(before, after).tolist()
        return found


class ClassifierConfidence:
    """Probability that the exit already has the last layer's token.

    Args:
        executor: whose states are asked.
        weight: float32 (width,).
        bias: added to the product.
    """

    def __init__(self, executor: Executor, weight: Tensor, bias: float) -> None:
        self._executor, self._weight, self._bias = executor, weight, bias

    def __call__(self, index: int, rows: StepRows) -> Sequence[float]:
        """A `Measure`."""
        from backends.kernels.exit_confidence import linear_probability

        after = states(self._executor, index + 1, rows)
        found: list[float] = linear_probability(after, self._weight, self._bias).tolist()
        return found


def states(executor: Executor, index: int, rows: StepRows) -> Tensor:
    """float32 (n, width): what waits in boundary `index` at these rows."""
    import torch

    from backends.engine.executors.base import RING

    boundary = executor.boundary(index)
    slots, places = (
        torch.from_numpy(column.astype(np.int64)).to(boundary.device)
        for column in (rows.slots, rows.positions % RING)
    )
    return boundary[slots, places].float()


def measure_of(plan: Any, executor: Executor, embedding: Any) -> Measure | None:
    """How a plan asks for confidence; None where the exit heads themselves answer."""
    measure = plan.policy.measure
    if measure == "state":
        return StateMeasure(executor, embedding)
    if measure == "classifier":
        vector, bias = plan.classifier().difference()
        return ClassifierConfidence(executor, vector.to(executor.device), bias)
    return None
