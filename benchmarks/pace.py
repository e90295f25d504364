"""How often the check of a machine's pace voids a trial by its own noise, and what it finds.

    python -m benchmarks.pace [--seconds 150] [--pairs 1500] [--gap 10]

Times the probe's round over and over for that many seconds on this machine, nothing beside it,
draws pairs of moments that lie `gap` seconds apart, and asks the probe
(`harness.measure.machine.snapshots.Pace`) at both ends of each, pair after pair. The first line is
the share of pairs that it finds too far apart on this machine as it is, the others the share where
the machine is that much slower behind the pair, each with the mean time that a probe looked.
"""

from __future__ import annotations

import argparse
import bisect
import random
import statistics
from collections.abc import Callable, Sequence

from harness.measure.machine.noise import MAX_PROBE_RATIO
from harness.measure.machine.snapshots import Pace, probe_round_s

SLOWER = (1.0, 1.15, 1.3, 1.5)

Probe = Callable[[float, float], tuple[float, float]]
"""(second at which it begins, how many times as long all takes there): seconds of the round that it
goes by, and of all that it looked at."""


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--pairs", type=int, default=1500)
    parser.add_argument("--gap", type=float, default=10.0)
    asked = parser.parse_args()
    at, rounds = _rounds(asked.seconds + asked.gap)
    print(f"{len(rounds)} rounds: median {statistics.median(rounds) * 1e3:.3f} ms, "
          f"fastest {min(rounds) * 1e3:.3f}, slowest {max(rounds) * 1e3:.3f}")  # fmt: skip
    print("slower by   too far apart   looked for, s")
    draw = random.Random(0)
    begins = sorted(draw.uniform(0, asked.seconds - 1) for _ in range(asked.pairs))
    for slower in SLOWER:
        probe, apart, looked_s = _pace(at, rounds), 0, 0.0
        for begin in begins:
            ends = probe(begin, 1.0), probe(begin + asked.gap, slower)
            apart += max(ends)[0] > MAX_PROBE_RATIO * min(ends)[0]
            looked_s += sum(seconds for _, seconds in ends) / 2
        print(f"{slower:9g}   {apart / asked.pairs:13.3f}   {looked_s / asked.pairs:13.3f}")


def _rounds(seconds: float) -> tuple[list[float], list[float]]:
    """When each round began, and its seconds."""
    at, rounds, now = [0.0], [probe_round_s()], 0.0
    while now < seconds:
        now += rounds[-1]
        at.append(now)
        rounds.append(probe_round_s())
    return at, rounds


def _pace(at: Sequence[float], rounds: Sequence[float]) -> Probe:
    """One pace for all pairs, as one engine's trials have one."""
    place, factor = 0, 1.0

    def round_s() -> float:
        nonlocal place
        place += 1
        return factor * rounds[place - 1]

    pace = Pace(round_s)

    def probe(begin: float, slower: float) -> tuple[float, float]:
        nonlocal place, factor
        first = place = bisect.bisect_left(at, begin)
        factor = slower
        return pace.undisturbed_s(), slower * sum(rounds[first:place])

    return probe


if __name__ == "__main__":
    main()
