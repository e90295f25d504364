"""The child process of a sweep: holds one loaded engine and runs its trials one after the other.

Between trials it is blocked on its pipe and uses no CPU. It dies with its parent, however that
ends: the kernel kills it (PR_SET_PDEATHSIG), and a tiny guard process of the same group, forked
before anything is loaded, sees the end of the lifeline pipe and kills the whole group, so that what
the engine has started goes too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.backend import Backend
from harness.core.errors import UnavailableError, UserError, of_memory
from harness.core.names import OTHER_MACHINES, SERVER
from harness.core.nouns import Generation, Load, Request, Status, TrialRecord
from harness.core.processes.gpus import number_by_bus
from harness.measure import checks
from harness.measure.load_loop import LoadProgress, TrialTimeout, run_load
from harness.measure.machine import snapshots as machine
from harness.measure.machine.meters import Meter, Reading
from harness.measure.messages import NoResult, Phase, Ready, TrialJob
from harness.measure.timed_window import (
    StandstillWatch,
    collected_rarely,
    keep_from_collection,
)

if TYPE_CHECKING:
    from harness.measure.sweep import MeasuredSession

PR_SET_PDEATHSIG = 1

Tell = Callable[[Phase | LoadProgress], None]


def main(channel_fd: int, lifeline_fd: int, parent_pid: int) -> None:
    """Entry point. The arguments are file descriptors inherited from the parent, and its id."""
    die_with(parent_pid)
    guard = _fork_guard(lifeline_fd, channel_fd)
    os.set_inheritable(channel_fd, False)
    channel = Connection(channel_fd)
    number_by_bus()
    with contextlib.suppress(EOFError, ConnectionError):
        serve(channel, Meter(excluded=guard))


def serve(channel: Connection, meter: Meter) -> None:
    """Open the session, then run jobs until None comes or the pipe ends."""
    try:
        open_session, trial = channel.recv()
        with collected_rarely():
            session = open_session(trial)
        keep_from_collection()
        ready = Ready(session.info, session.setup_s, meter.footprint())
    except Exception as error:
        channel.send(_problem(error))
        return
    channel.send(ready)
    tell = partial(_tell, channel)
    try:
        while (job := channel.recv()) is not None:
            try:
                channel.send(run_trial(session, job, meter, tell))
            except Exception as error:
                channel.send(_problem(error))
    finally:
        session.close()


def run_trial(session: MeasuredSession, job: TrialJob, meter: Meter, tell: Tell) -> TrialRecord:
    """Prepare, warm up, reset, measure, score: one trial. What the engine raises passes through. A
    load that outlives its time limit gives status "timeout" and what was generated."""
    trial = job.trial
    # A server's GPUs, memory and energy are not this process's, nor are a cluster's.
    remote = bool({SERVER, OTHER_MACHINES} & session.info.capabilities)
    meter.wake()
    tell("preparing")
    warm_up, measured = session.requests(trial)
    tell("warm-up")
    unwarmed = _warm_up(session.backend, warm_up, trial.load, job.time_limit_s)
    on = None if remote else meter.gpus()
    before = machine.machine_state(on, load_begins=True)
    tell("load")
    meter.start()
    with machine.GpuWatch(on) as watch, StandstillWatch() as standstill:
        generations, status, error = _load(session.backend, measured, job, tell)
    reading = Reading(None, None) if remote else meter.read()
    after = machine.machine_state(on)
    others = watch.others(before.own | after.own)
    disturbance = machine.disturbance(
        before, after, watch.throttled, others, watch.busy, standstill.still_s
    )
    tell("scoring")
    workers = list(session.backend.places())
    texts, scores = session.finish(trial, generations)
    verdict = checks.check_trial(
        trial,
        generations,
        session.info,
        disturbance,
        requests=measured,
        remarks=[*unwarmed, *session.remarks(trial)],
    )
    return TrialRecord(
        key=job.key,
        trial=trial,
        environment={
            **job.environment,
            "disturbance": disturbance.to_json(),
            **({"workers": workers} if workers else {}),
        },
        status=status,
        backend=session.info,
        error=error,
        validity=verdict,
        generations=generations,
        texts=texts,
        scores=scores,
        peak_memory_bytes=reading.peak_memory_bytes,
        energy_j=reading.energy_j,
        setup_s=session.setup_s,
    )


def die_with(parent_pid: int) -> None:
    """Be killed when the parent dies; end now if it already has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit(1)


def _tell(channel: Connection, message: Phase | LoadProgress) -> None:
    """Send a message on; progress only where nobody has to wait for it."""
    if isinstance(message, LoadProgress):
        # A sweep that is stopped (SIGSTOP) reads nothing: waiting for it inside of the load would
        # be measured as the engine's latency. A Unix socket says that it is writable while most of
        # its buffer is free, so that a message this small is written whole.
        writable = select.poll()
        writable.register(channel.fileno(), select.POLLOUT)
        if not writable.poll(0):
            return
    channel.send(message)


def _load(
    backend: Backend, requests: list[Request], job: TrialJob, tell: Tell
) -> tuple[list[Generation], Status, str | None]:
    """What was generated, how the load ended and what went wrong."""
    try:
        generations = run_load(
            backend,
            requests,
            job.trial.load,
            time_limit_s=job.time_limit_s,
            duration_s=job.trial.duration_s,
            on_progress=tell,
        )
    except TrialTimeout as timeout:
        return timeout.generations, "timeout", str(timeout)
    return generations, *_ending(generations)


def _ending(generations: Sequence[Generation]) -> tuple[Status, str | None]:
    """A load in which not one request was answered has measured nothing: it failed."""
    if not generations or any(g.finished != "error" for g in generations):
        return "ok", None
    first = generations[0]
    return "failed", f"all {len(generations)} requests failed; {first.request_id}: {first.error}"


def _warm_up(
    backend: Backend, requests: list[Request], load: Load, limit_s: float | None
) -> list[str]:
    """Run the engine at the trial's concurrency, then leave it with nothing in its caches. Returns
    what is to be remarked: that nothing was run."""
    backend.reset()
    if not requests:
        return []
    together = min(load.concurrency or len(requests), len(requests))
    closed = Load("closed", concurrency=together)
    generations = run_load(backend, requests, closed, time_limit_s=limit_s)
    backend.reset()
    _, error = _ending(generations)
    return [] if error is None else [f"not-warmed-up: {error}"]


def _problem(error: Exception) -> NoResult:
    """The error as one line; its traceback goes to the log."""
    if isinstance(error, UnavailableError):
        return NoResult("failed", str(error), by_user=not error.reached, passing=True)
    if isinstance(error, UserError):
        return NoResult("failed", str(error), by_user=True)
    if isinstance(error, TrialTimeout):
        return NoResult("timeout", f"warm-up: {error}")
    with contextlib.suppress(OSError):  # a full disk must not hide the error itself
        traceback.print_exception(error)
    name, text = type(error).__name__, " ".join(str(error).split()) or _place(error)
    return NoResult("out_of_memory" if of_memory(error) else "failed", f"{name}: {text}")


def _place(error: Exception) -> str:
    """Where an error without words was raised: all that it says."""
    return "".join(
        f"in {Path(place.filename).name}, line {place.lineno}: {place.line}"
        for place in traceback.extract_tb(error.__traceback__)[-1:]
    )


def _fork_guard(lifeline_fd: int, channel_fd: int) -> int:
    """Start the guard and return its process id. Must come before any thread."""
    pid = os.fork()
    if pid:
        os.close(lifeline_fd)
        return pid
    os.close(channel_fd)
    os.read(lifeline_fd, 1)  # nothing is ever written: this returns when the parent's end closes
    os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)
