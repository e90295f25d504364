"""Planning again at the end of each window, with the survival that was seen."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from backends.tetris.pipeline.stragglers import kind_of
from backends.tetris.planner import StagePlan, plan
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted
from backends.tetris.survival import HISTORY, forecast
from harness.core.errors import UserError

LEAST_PASSED = 0.01
"""Of those at a cut, in a plan; it adds no more than a hundredth of the work behind."""


def seen_survival(
    before: Sequence[float], cuts: Sequence[int], alive: Sequence[float]
) -> tuple[float, ...]:
    """Survival at every layer from that at the cuts of a plan, whose ramps alone were asked.

    Args:
        before: L + 1 shares, a curve that was measured at every layer. Between two cuts its shape
            is kept, and behind the last one its proportions.
        cuts: ascending layers of 1..L-1 with a ramp that was on.
        alive: the share seen behind each.
    """
    curve = np.asarray(before, float)
    found = curve.copy()
    first, share = 0, 1.0
    for cut, seen in zip(cuts, alive, strict=True):
        fall = curve[first] - curve[cut]
        inside = curve[first : cut + 1]
        way = (inside[0] - inside) / fall if fall > 0 else np.linspace(0, 1, len(inside))
        found[first : cut + 1] = share + (seen - share) * way
        first, share = cut, seen
    found[first:] = curve[first:] * share / curve[first] if curve[first] > 0 else share
    found = np.minimum.accumulate(np.clip(found, 0.0, 1.0))
    return (1.0, *(float(share) for share in found[1:]))


class WindowPlanner:
    """Keeps the plan of a pipeline up to date. `plan` is the present one, at first `first` or the
    best for the profile; the devices `left_out` ('KIND-number') have no part in it."""

    def __init__(
        self,
        profile: StageProfile,
        cluster: DeviceCluster,
        wanted: Wanted,
        first: StagePlan | None = None,
    ) -> None:
        self.profile, self.cluster, self._wanted = profile, cluster, wanted
        self._measured = profile.survival
        self._history: deque[tuple[list[int], tuple[float, ...]]] = deque(maxlen=HISTORY)
        """The cuts that a window saw, and its curve."""
        self.plan: StagePlan = plan(profile, cluster, wanted) if first is None else first
        self.left_out: frozenset[str] = frozenset()

    def next_plan(self, alive: Mapping[int, float], slow: Collection[str] = ()) -> bool:
        """Plan the next window; whether it differs from this one. `alive` has the share seen behind
        each cut of this plan, up to the last one that somebody came to; `slow` the stragglers.

        Where nobody passed a cut the share counts as `LEAST_PASSED`: no stage begins where nobody
        is expected, and once the last ramp is gone nothing more is seen. The present plan stays
        where no plan meets what is wanted, stragglers included. A plan of one stage asks no ramp:
        it sees no survival, and keeps the last.
        """
        if alive:
            cuts = sorted(alive)
            # the forecast has no shape of its own where a share of 0 was seen
            shares = [max(alive[cut], LEAST_PASSED) for cut in cuts]
            seen = seen_survival(self._measured, cuts, shares)
            self._history.append((cuts, seen))
            # between those that were seen a curve has nothing of its own to forecast
            every = sorted({cut for some, _ in self._history for cut in some})
            ahead = forecast(
                np.array([[curve[cut] for cut in every] for _, curve in self._history])
            )
            survival = seen_survival(self._measured, every, ahead.tolist())
            self.profile = replace(self.profile, survival=survival)
        lost = Counter(kind_of(device) for device in slow)
        left = {kind: n - lost[kind] for kind, n in self.cluster.devices.items() if n > lost[kind]}
        if not left:
            return False
        try:
            found = plan(self.profile, replace(self.cluster, devices=left), self._wanted)
        except UserError:
            return False
        place = [(one.first, one.end, one.device, one.count) for one in found.stages]
        old = [(one.first, one.end, one.device, one.count) for one in self.plan.stages]
        changed = place != old or self.left_out != frozenset(slow)
        self.plan, self.left_out = found, frozenset(slow)
        return changed
