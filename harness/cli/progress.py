"""What is shown while trials run: a live line on a terminal, else a line now and then. rich is
imported when needed."""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from harness.measure.machine.noise import MAX_OTHERS_SHARE
from workloads import LABELLED

if TYPE_CHECKING:
    from harness.measure.load_loop import LoadProgress
    from harness.measure.sweep import SweepEvent


PERIOD_S = 30.0
"""Between the lines in a log."""


def warn_of_others(share: float) -> None:
    """Say that the machine is busy, where it is."""
    if share > MAX_OTHERS_SHARE:
        print(
            f"warning: this machine is busy: other processes use {share:.0%} of its processors; "
            "trials will be marked machine-noisy",
            file=sys.stderr,
        )


class SweepLog:
    """Says every `PERIOD_S` how far a sweep has come, for logs: from a thread of its own, because
    nothing is heard from an engine while it loads."""

    def __init__(self) -> None:
        self._event: SweepEvent | None = None
        self._began_s = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def start(self) -> None:
        """Begin with the lines."""
        self._thread.start()

    def stop(self) -> None:
        """No line comes after this."""
        self._over.set()
        self._thread.join()

    def see(self, event: SweepEvent) -> None:
        """Take in one event of the sweep."""
        self._event = event

    def _run(self) -> None:
        while not self._over.wait(PERIOD_S):
            print(self._line(), file=sys.stderr, flush=True)

    def _line(self) -> str:
        elapsed = time.monotonic() - self._began_s
        event = self._event
        if event is None:
            return f"{_clock(elapsed)} starting"
        of = f" of {event.total}" if event.total else ""
        parts = [f"{_clock(elapsed)} trial {event.index + 1}{of}", event.label]
        if event.kind == "progress" and event.progress is not None:
            done, total, unit = _extent(event.progress)
            parts.append(f"{done} of {total} {unit}, {_rate(event, event.progress)}")
        elif event.phase:
            parts.append(event.phase)
        done_trials = event.index + (event.kind == "finished")
        if 0 < done_trials < event.total:
            left = elapsed / done_trials * (event.total - done_trials)
            parts.append(f"about {_clock(left)} left")
        return "; ".join(parts)


def _extent(progress: LoadProgress) -> tuple[int, int, str]:
    """How much of a load is done, of how much, and in what: seconds where it lasts for a time."""
    if progress.duration_s is None:
        return progress.done, progress.total, "requests"
    whole = math.ceil(progress.duration_s)
    return min(math.floor(progress.elapsed_s), whole), whole, "s"


def _rate(event: SweepEvent, progress: LoadProgress) -> str:
    """What comes a second: tokens, or the answers where these are labels."""
    if event.trial.workload.name not in LABELLED:
        return f"{event.tokens_per_s:,.0f} tok/s"
    rate = progress.done / progress.elapsed_s if progress.elapsed_s else 0.0
    return f"{rate:,.0f} labels/s"


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


class SweepDisplay:
    """A live line for the trial under way; a `SweepLog` when nobody watches. Tells failures."""

    def __init__(self) -> None:
        self._log: SweepLog | None = None
        self._bar: Any = None
        self._task: Any = None
        self._overall: Any = None

    def __enter__(self) -> SweepDisplay:
        """Start the live display when the output is a terminal."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[unit]}"),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=Console(stderr=True),
                transient=True,
            )
            self._overall = self._bar.add_task("trials", total=None, unit="", rate="")
            self._task = self._bar.add_task("", total=None, unit="", rate="")
            self._bar.start()
        else:
            self._log = SweepLog()
            self._log.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal clean."""
        if self._bar is not None:
            self._bar.stop()
        if self._log is not None:
            self._log.stop()

    def show(self, event: SweepEvent) -> None:
        """Take in one event of the sweep."""
        if self._log is not None:
            self._log.see(event)
        failed = event.record is not None and event.record.status != "ok"
        if event.record is not None and failed and not event.refused:
            self._tell(f"{event.label}: {event.record.status}: {event.record.error}")
        if self._bar is None:
            return
        done = event.index + (event.kind == "finished")
        self._bar.update(self._overall, total=event.total or None, completed=done)
        if event.kind == "progress" and event.progress is not None:
            completed, total, unit = _extent(event.progress)
            self._bar.update(
                self._task,
                description=event.label,
                total=total,
                completed=completed,
                unit=unit if event.progress.duration_s is not None else "",
                rate=_rate(event, event.progress),
            )
        else:
            text = f"{event.label}: {event.phase}" if event.phase else event.label
            self._bar.reset(self._task, total=None, description=text, unit="", rate="")

    def result(self, line: str) -> None:
        """Print a line to standard output, which need not be where the live line is."""
        if self._bar is not None:
            # while it runs, rich takes over standard output
            self._bar.stop()
        print(line, flush=True)
        if self._bar is not None:
            self._bar.start()

    def _tell(self, line: str) -> None:
        if self._bar is None:
            print(line, file=sys.stderr)
        else:
            self._bar.console.print(line, markup=False, highlight=False)
