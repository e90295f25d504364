"""Was the machine a trial's own, and as fast as it is? The verdict on a disturbance."""

from __future__ import annotations

from harness.core.names import OTHER_MACHINES, SERVER
from harness.core.nouns import BackendInfo
from harness.measure.machine.snapshots import Disturbance

MAX_STOLEN_SHARE = 0.01
"""Share of the cores' time given to other guests; one percent of steal moves a mean by as much."""
MAX_HELD_SHARE = 0.01
"""Share of the time for which a quota held threads back: what it takes is as lost as what is
stolen."""
MAX_OTHERS_SHARE = 0.10
"""Share of the cores' time used by processes outside the sweep. Daemons stay below; another job
takes a core of the engine's."""
MAX_PROBE_RATIO = 1.2
"""A fixed piece of work before and after the trial, at a moment when nothing holds it up: it
differs by under 6% in nine of ten pairs on a host whose neighbours come and go, and by more when
clocks change or a neighbour stays. What a GPU computes takes as long at any pace of the host."""
MAX_ASLEEP_S = 1.0
"""The clocks whose difference it is are read one after the other."""


def disturbed(disturbance: Disturbance, info: BackendInfo) -> list[str]:
    """The reasons against a trial of what happened on its machine, each with its slug."""
    reasons = []
    if disturbance.throttle_events:
        reasons.append(f"clocks-throttled: {disturbance.throttle_events} CPU thermal events")
    if disturbance.gpu_throttled:
        reasons.append(f"clocks-throttled: GPU: {', '.join(disturbance.gpu_throttled)}")
    if disturbance.stolen_share > MAX_STOLEN_SHARE:
        reasons.append(
            f"machine-noisy: {disturbance.stolen_share:.1%} of CPU time went to other guests "
            f"of the host (limit {MAX_STOLEN_SHARE:.0%})"
        )
    if disturbance.held_share > MAX_HELD_SHARE:
        reasons.append(
            "machine-noisy: the CPU quota of this process's control group held its threads back "
            f"for {disturbance.held_share:.1%} of the time (limit {MAX_HELD_SHARE:.0%}): fewer "
            "threads or a larger quota"
        )
    if disturbance.others_share > MAX_OTHERS_SHARE and not _is_elsewhere(info):
        reasons.append(
            f"machine-noisy: other processes used {disturbance.others_share:.0%} of CPU time "
            f"(limit {MAX_OTHERS_SHARE:.0%})"
        )
    if disturbance.gpu_others and not _is_elsewhere(info):
        others = disturbance.gpu_others
        reasons.append(
            f"machine-noisy: {others} other process{'es' * (others > 1)} computed on the same GPU"
        )
    if disturbance.asleep_s > MAX_ASLEEP_S:
        reasons.append(
            f"machine-noisy: this machine slept for {disturbance.asleep_s:.0f} s during the trial"
        )
    if disturbance.still_s:
        reasons.append(
            "machine-noisy: the process that drives the engine hardly ran for "
            f"{disturbance.still_s:.1f} s of the load: it was stopped, frozen or kept from "
            "running, or this machine was"
        )
    hosts_share = 1 - disturbance.gpu_busy
    if 1 + hosts_share * (disturbance.probe_ratio - 1) > MAX_PROBE_RATIO:
        idle = f", a GPU computing in {disturbance.gpu_busy:.0%} of it" if hosts_share < 1 else ""
        reasons.append(
            f"machine-noisy: the same work took {disturbance.probe_ratio:.2f} times as long "
            f"at one end of the trial as at the other{idle} (limit {MAX_PROBE_RATIO:g})"
        )
    return reasons


def unseen(disturbance: Disturbance | None, info: BackendInfo) -> list[str]:
    """The remark on what could not be looked at: the machines of a server and of a cluster, and a
    GPU of which the driver does not list this engine's processes."""
    if not _is_elsewhere(info):
        if disturbance is None or disturbance.gpu_others is not None:
            return []
        return [
            "noise-not-checked: whether others computed on the same GPU cannot be seen from here: "
            "the driver does not list this engine's processes, as in a container"
        ]
    what = "server's machine" if SERVER in info.capabilities else "cluster's machines"
    return [f"noise-not-checked: what else the {what} did cannot be seen from here"]


def _is_elsewhere(info: BackendInfo) -> bool:
    return bool(info.capabilities & {SERVER, OTHER_MACHINES})
