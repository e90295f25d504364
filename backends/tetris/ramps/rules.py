"""When an input is sure of its label.

*Independent* rules look at one ramp alone: DeeBERT (Xin et al. 2020) and BranchyNet
(Teerapittayanon et al. 2017) compare its entropy, others the softmax. *Dependent* ones remember
what earlier ramps said: PABEE (Zhou et al. 2020) counts how often in a row the label stayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from backends.tetris.ramps.readings import RampReading


@dataclass(slots=True)
class RampMemory:
    """What travels with an input's hidden states from stage to stage."""

    agreed: int = 0
    """How often in a row the label has stayed the same: PABEE's patience counter."""
    last: int | None = None
    """The last ramp's label; None before the first."""
    answer: RampReading | None = None
    """Of the ramp at which it was sure; it may have to wait for the end of its stage."""
    sure_after: int = 0
    """Layers after which it was sure; 0 while it is not."""


class RampRule(Protocol):
    """Decides at a ramp."""

    dependent: ClassVar[bool]
    """Whether it needs every ramp's reading, also where nobody may leave."""

    def sure(self, reading: RampReading, memory: RampMemory) -> bool:
        """Whether the input may leave with this reading; `memory` gets what later ramps need."""


@dataclass(frozen=True, slots=True)
class EntropyRule:
    """Sure below so many nats."""

    threshold: float
    dependent: ClassVar[bool] = False

    def sure(self, reading: RampReading, memory: RampMemory) -> bool:
        """Whether the entropy is below the threshold, as in DeeBERT's code: equal is not."""
        return reading.entropy < self.threshold


@dataclass(frozen=True, slots=True)
class SoftmaxRule:
    """Sure from this probability of the first label on."""

    threshold: float
    dependent: ClassVar[bool] = False

    def sure(self, reading: RampReading, memory: RampMemory) -> bool:
        """Whether the largest probability reaches the threshold."""
        return reading.probability >= self.threshold


@dataclass(frozen=True, slots=True)
class PatienceRule:
    """Sure once so many ramps in a row have repeated the label of the one before (PABEE)."""

    patience: int
    dependent: ClassVar[bool] = True

    def sure(self, reading: RampReading, memory: RampMemory) -> bool:
        """Whether the label has now stayed the same `patience` times."""
        memory.agreed = memory.agreed + 1 if reading.label == memory.last else 0
        memory.last = reading.label
        return memory.agreed >= self.patience
