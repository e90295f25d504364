"""What a sweep and its engine processes say to each other over their pipe.

To the child: the function that opens its session with a first `Trial`, then one `TrialJob` after
the other, then None. From the child: `Ready` or a `NoResult`; for each job the names of its phases
as text, `LoadProgress` during the load, and at the end a `TrialRecord` or a `NoResult`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.core.nouns import BackendInfo, Status, Trial, TrialRecord, Validity
from harness.measure.machine.meters import Footprint

Phase = Literal["loading", "preparing", "warm-up", "load", "scoring"]
"""Of a job, in this order; an engine that is there already is not loaded again."""


@dataclass(frozen=True, slots=True)
class TrialJob:
    """One trial to run."""

    key: str
    trial: Trial
    environment: Mapping[str, Any]
    time_limit_s: float | None
    """For each phase."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is loaded."""

    info: BackendInfo
    setup_s: float
    footprint: Footprint


@dataclass(frozen=True, slots=True)
class NoResult:
    """Why there is no result."""

    status: Status
    error: str
    """One line."""
    by_user: bool = False
    """The input is bad: trying again is of no use."""
    passing: bool = False
    """What is outside the sweep did not answer, and may answer the next trial."""
    killed: bool = False
    """Somebody, or the kernel, sent SIGKILL: it need not happen again."""

    def record(self, job: TrialJob, ready: Ready | None) -> TrialRecord:
        """The job's record when nothing but the problem is known."""
        return TrialRecord(
            key=job.key,
            trial=job.trial,
            environment=job.environment,
            status=self.status,
            backend=ready.info if ready else None,
            error=self.error,
            validity=Validity(False, (f"failures: {self.error}",)),
            setup_s=ready.setup_s if ready else None,
        )
