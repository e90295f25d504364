"""What a machine's memory and arithmetic reach at most: the floor under the time of any step."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The best rates that were measured, by the number of CPU threads (1 for a GPU).

    Raises:
        ValueError: for rates that are not positive and finite, and for none at all.
    """

    device: str
    """"cpu" or "cuda"."""
    kernels: str
    """What read and computed: "native-amx", "torch", ..."""
    read_bytes_per_s: Mapping[int, Mapping[int, float]]
    """Threads -> size in bytes of what was read again and again -> bytes per second."""
    bf16_flop_per_s: Mapping[int, float]
    """Threads -> of a large bfloat16 matrix product."""
    cache_bytes: Mapping[str, int]
    """"L2" -> bytes that one core sees. A virtual machine may be told more than it gets."""

    def __post_init__(self) -> None:
        rates = [rate for sizes in self.read_bytes_per_s.values() for rate in sizes.values()]
        numbers = [*rates, *self.bf16_flop_per_s.values()]
        if not rates or not self.bf16_flop_per_s or not all(0 < n < math.inf for n in numbers):
            raise ValueError(f"ceilings must be positive numbers, found {numbers}")

    def read_at(self, size_bytes: float, threads: int | None = None) -> float:
        """Bytes per second at which a working set of this size is read by so many threads: the
        better rate of the next counts that were measured, below and above, so that no floor is too
        high; by default of the most. Between measured sizes on a straight line over the logarithm
        of the size."""
        near = _of_threads(self.read_bytes_per_s, threads)
        return max(_at_size(sizes, size_bytes) for sizes in near)

    def flops(self, threads: int | None = None) -> float:
        """Operations per second of products of bfloat16 numbers with so many threads, chosen
        likewise; as float32 where the processor multiplies those faster."""
        return max(_of_threads(self.bf16_flop_per_s, threads))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; numbers that are keys become text."""
        return {
            "device": self.device,
            "kernels": self.kernels,
            "read_bytes_per_s": {
                str(threads): {str(size): rate for size, rate in sizes.items()}
                for threads, sizes in self.read_bytes_per_s.items()
            },
            "bf16_flop_per_s": {str(n): rate for n, rate in self.bf16_flop_per_s.items()},
            "cache_bytes": dict(self.cache_bytes),
        }


def best(one: Ceilings, other: Ceilings | None) -> Ceilings:
    """The better of two measurements, number by number: what else a machine does only ever lowers
    them. `one` alone where they differ in what was measured."""
    if other is None or _kind(one) != _kind(other):
        return one
    rates = {
        threads: {
            size: max(rate, other.read_bytes_per_s[threads][size]) for size, rate in sizes.items()
        }
        for threads, sizes in one.read_bytes_per_s.items()
    }
    flops = {n: max(rate, other.bf16_flop_per_s[n]) for n, rate in one.bf16_flop_per_s.items()}
    return replace(one, read_bytes_per_s=rates, bf16_flop_per_s=flops)


def _kind(found: Ceilings) -> tuple[object, ...]:
    sizes = {threads: set(rates) for threads, rates in found.read_bytes_per_s.items()}
    return found.device, sizes, set(found.bf16_flop_per_s)


def _of_threads(measured: Mapping[int, T], threads: int | None) -> list[T]:
    """What was measured with so many threads, else with the next below and above."""
    wanted = max(measured) if threads is None else threads
    below = max((n for n in measured if n <= wanted), default=None)
    above = min((n for n in measured if n >= wanted), default=None)
    return [measured[n] for n in {below, above} if n is not None]


def _at_size(rates: Mapping[int, float], size_bytes: float) -> float:
    sizes = sorted(rates)
    place = bisect_left(sizes, size_bytes)
    if place == 0 or place == len(sizes):
        return rates[sizes[min(place, len(sizes) - 1)]]
    low, high = sizes[place - 1], sizes[place]
    share = math.log(size_bytes / low) / math.log(high / low)
    return rates[low] + share * (rates[high] - rates[low])


def ceilings_from_json(data: Any) -> Ceilings | None:
    """The inverse of `Ceilings.to_json`; None for anything else."""
    try:
        return Ceilings(
            device=str(data["device"]),
            kernels=str(data["kernels"]),
            read_bytes_per_s={
                int(threads): {int(size): float(rate) for size, rate in sizes.items()}
                for threads, sizes in data["read_bytes_per_s"].items()
            },
            bf16_flop_per_s={int(n): float(r) for n, r in data["bf16_flop_per_s"].items()},
            cache_bytes={str(n): int(size) for n, size in data["cache_bytes"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
