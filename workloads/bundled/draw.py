"""Random draws that stay the same on every Python version, platform and process."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Draws from a text-seeded stream.

    Only `random.Random.random` is used, the one method whose sequence Python guarantees for a
    given seed; `choice`, `sample` and `shuffle` have changed between versions.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def integer(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        return low + int(self._random() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self._random() < probability

    def choose(self, options: Sequence[T]) -> T:
        """Return one of the options, each as likely as the others."""
        return options[self.integer(0, len(options) - 1)]

    def pick(self, options: Sequence[T], count: int) -> list[T]:
        """Return `count` different positions' options in random order."""
        left = list(options)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in range(count)]

    def hexadecimal(self, digits: int) -> str:
        """Return a text of that many hexadecimal digits."""
        return "".join(self.choose("0123456789abcdef") for _ in range(digits))
