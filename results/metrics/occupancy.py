"""How much of a trial its system had something to do."""

from __future__ import annotations

import numpy as np

from results.metrics.arrays import RequestArrays
from results.metrics.latency import NS, window_s


def busy_share(requests: RequestArrays) -> float | None:
    """The share of the window (first submit to last commit) in which at least one request had been
    submitted and was not answered to its end; one that failed or never ended counts up to the end
    of the window. None when no time passed or nothing came."""
    seconds = window_s(requests)
    if seconds is None:
        return None
    ends = np.full(len(requests), requests.commit_ns.max())
    ends[requests.sampled] = requests.commit_ns[requests.last_commit()]
    order = np.argsort(requests.submitted_ns, kind="stable")
    begins, answered = requests.submitted_ns[order], np.maximum.accumulate(ends[order])
    idle = np.maximum(begins[1:] - answered[:-1], 0).sum()
    return 1 - float(idle) / NS / seconds
