"""`exit_wrapper` of the TETRIS paper (section 3.4): control over a model's exit checks.

A model in stages lets inputs leave at the stages' ends alone. With the wrapper, independent ramps
inside a stage are switched off, since nobody could leave there. Dependent ones run at every layer,
because later decisions need their counts, and an input that is sure inside a stage leaves at its
end, with the label of which it was sure: so labels do not depend on where the model is cut. Without
the wrapper the model is a black box that asks all its ramps; who is sure keeps that ramp's label.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from backends.tetris.ramps.readings import read
from backends.tetris.ramps.rules import RampMemory, RampRule


class ExitWrapper:
    """Which ramps are asked, and who leaves where.

    Args:
        rule: when an input is sure; None: never, and no ramp is asked.
        ramps: the numbers of layers behind which a ramp stands.
        ends: those behind which inputs may leave; each must have a ramp.
        black_box: ask all ramps, as the paper does with models that it may not look into.

    Raises:
        ValueError: for an end without a ramp.
    """

    def __init__(
        self,
        rule: RampRule | None,
        ramps: Collection[int],
        ends: Collection[int],
        *,
        black_box: bool = False,
    ) -> None:
        if missing := sorted(set(ends) - set(ramps)):
            raise ValueError(f"ends: no ramp stands behind layer {missing[0]}")
        self._rule = rule
        self._ends = frozenset(ends)
        every = rule is not None and (black_box or rule.dependent)
        self._asked = frozenset(ramps if every else ends) if rule is not None else frozenset()

    def asks(self, layer: int) -> bool:
        """Whether the ramp behind so many layers is evaluated, for those who are not sure yet."""
        return layer in self._asked

    def judge(
        self, layer: int, memories: Sequence[RampMemory], logits: NDArray[np.floating]
    ) -> None:
        """Note what the ramp behind `layer` says of inputs that are not sure yet: (n, labels)."""
        assert self._rule is not None
        for memory, reading in zip(memories, read(logits), strict=True):
            if self._rule.sure(reading, memory):
                memory.answer, memory.sure_after = reading, layer

    def leaves(self, layer: int, memory: RampMemory) -> bool:
        """Whether an input leaves behind so many layers."""
        return layer in self._ends and memory.answer is not None
