"""What the terminal shows while trials run. rich is imported when needed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.measure.sweep import SweepEvent


class SweepDisplay:
    """A live line for the trial under way. Silent but for failures when nobody watches."""

    def __init__(self) -> None:
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
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=Console(stderr=True),
                transient=True,
            )
            self._overall = self._bar.add_task("trials", total=None, rate="")
            self._task = self._bar.add_task("", total=None, rate="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal clean."""
        if self._bar is not None:
            self._bar.stop()

    def show(self, event: SweepEvent) -> None:
        """Take in one event of the sweep."""
        failed = event.record is not None and event.record.status != "ok"
        if event.record is not None and failed and not event.refused:
            self._tell(f"{event.label}: {event.record.status}: {event.record.error}")
        if self._bar is None:
            return
        done = event.index + (event.kind == "finished")
        self._bar.update(self._overall, total=event.total, completed=done)
        if event.kind == "progress" and event.progress is not None:
            self._bar.update(
                self._task,
                description=event.label,
                total=event.progress.total,
                completed=event.progress.done,
                rate=f"{event.tokens_per_s:,.0f} tok/s",
            )
        else:
            text = f"{event.label}: {event.phase}" if event.phase else event.label
            self._bar.reset(self._task, total=None, description=text, rate="")

    def _tell(self, line: str) -> None:
        if self._bar is None:
            print(line, file=sys.stderr)
        else:
            self._bar.console.print(line, markup=False, highlight=False)
