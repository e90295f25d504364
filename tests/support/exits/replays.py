"""A run driven commit by commit, and the trace of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.core.backend import Backend
from harness.core.nouns import (
    Commit,
    Generation,
    Load,
    Request,
    TrialRecord,
)
from harness.measure.load_loop import run_load
from results.traces.file import write_trace
from results.traces.recording import make_trace
from tests.support.results.make_trials import trial

RATES = {"acceptance": [0.8, 0.6, 0.3]}
"""Of drafts, by their place."""
FOUND = {**RATES, "found": 0.5}
"""Likewise, of a search that finds them half the time."""


class Done(NamedTuple):
    """A commit without the tokens."""

    request_id: str
    tokens: int
    finished: str | None
    counts: dict[str, float]


def drive(backend: Backend, requests: Sequence[Request], concurrency: int) -> list[list[Done]]:
    """What each poll handed out, in a closed loop. Times among the counts are left out."""
    backend.reset()
    waiting, under_way = deque(requests), set[str]()
    polls = []
    while waiting or under_way:
        while waiting and len(under_way) < concurrency:
            under_way.add(waiting[0].id)
            backend.submit(waiting.popleft())
        commits = backend.poll()
        under_way -= {commit.request_id for commit in commits if commit.finished is not None}
        assert not any(commit.error for commit in commits), commits
        polls.append([_done(commit) for commit in commits])
    return polls


def _done(commit: Commit) -> Done:
    counts = {k: v for k, v in commit.telemetry.items() if not k.endswith("_us")}
    return Done(commit.request_id, len(commit.token_ids), commit.finished, counts)


def totals(polls: Sequence[Sequence[Done]]) -> Counter[str]:
    """Of all commits: their counts, and their tokens."""
    found: Counter[str] = Counter()
    for done in (done for poll in polls for done in poll):
        found.update(done.counts)
        found["tokens"] += done.tokens
    return found


def record(backend: Backend, requests: Sequence[Request], concurrency: int) -> list[Generation]:
    """The load as the harness sees it, decisions included."""
    backend.reset()
    return run_load(backend, requests, Load("closed", concurrency=concurrency))


def write_recorded(path: Path, backend: Backend, generations: Sequence[Generation]) -> Path:
    """The trace of a load at this backend, as a file."""
    info = backend.info
    stored = TrialRecord("0" * 20, trial(info.name), {}, "ok", info, generations=generations)
    trace, _ = make_trace([stored], {})
    write_trace(path, trace)
    return path
