"""Processes of stages that talk through pipes: started, listened to, replaced when one dies."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from backends.tetris.workers.places import StageChannel, StagePlace, StageWorker
from backends.tetris.workers.whereabouts import Whereabouts, here
from harness.core.backend import Option
from harness.core.errors import UserError

PATIENCE_S = 10.0
"""For a process to end."""
ANSWERED_WITHIN_S = Option(
    float,
    120.0,
    "in which a stage's process answers a batch: one that does not hangs, and is replaced as if it "
    "had died; more for a batch or a piece of a prompt that takes long itself",
    minimum=1,
    maximum=1e6,
)

OPENED_WITHIN_S = 600.0
"""For a process in another's place to open its layers."""
LOOKS = 10
"""For processes that hang, in the time that one is given."""

Setup = TypeVar("Setup")
Job = TypeVar("Job")
Done = TypeVar("Done")


class StageDiedError(RuntimeError):
    """The process of number `index`, from 0, is gone."""

    def __init__(self, backend: str, index: int, told: str, name: str | None = None) -> None:
        super().__init__(f"backend '{backend}': the process of {name or _name(index)} {told}")
        self.index = index


def _name(index: int) -> str:
    return f"stage {index + 1}"


@dataclass(frozen=True, slots=True)
class StageProblem:
    """What a stage's process tells in the place of an answer."""

    kind: str
    text: str


def serve(channel: Connection, opened: Callable[[Any], Callable[[Any], Any]]) -> None:
    """In a stage's process: do jobs until the channel is closed, with what `opened` makes of the
    setup. What it refuses by `UserError` is told, and whatever is raised otherwise."""
    with contextlib.suppress(EOFError, OSError), channel:
        try:
            do = opened(channel.recv())
        except UserError as error:
            channel.send(str(error))
            return
        except Exception as error:
            channel.send(StageProblem(type(error).__name__, str(error)))
            return
        channel.send(here())
        while True:
            job = channel.recv()
            try:
                done = do(job)
            except Exception as error:
                done = StageProblem(type(error).__name__, str(error))
            channel.send(done)


class PipedStages(Generic[Setup, Job, Done]):
    """One process for each stage, wherever it is: it is sent its setup, and answers where it is or
    what it refuses; then a job at a time (`serve`). What a stage raises is raised here, as
    `MemoryError` or `RuntimeError`.

    Args:
        backend: whose stages they are, for messages.
        place: starts the processes; it is closed with them.
        setups: of the stages, in order.
        within_s: ends the process that has not answered a job by then, and one that has not opened
            in another's place after `OPENED_WITHIN_S`; 0: none. Time in which nothing of this
            process ran does not count.
        names: of the processes, for messages; default: a stage each.

    Raises:
        UserError: for what a stage refuses.
        StageDiedError: when a process ends while it opens its layers.
    """

    def __init__(
        self,
        backend: str,
        place: StagePlace,
        setups: Sequence[Setup],
        within_s: float = 0.0,
        names: Sequence[str] | None = None,
    ) -> None:
        self._backend, self._place, self._setups = backend, place, setups
        self._names = names or [_name(index) for index in range(len(setups))]
        self._whereabouts: dict[int, Whereabouts] = {}
        self._within_s = within_s
        self._due_s: dict[int, float] = {}
        """Of the jobs that are under way, by `_now_s`."""
        self._stood_s = 0.0
        self._hung, self._anew = set[int](), set[int]()
        self._replacing, self._closed = threading.Lock(), threading.Event()
        self._workers: dict[int, StageWorker] = {}
        self._channels: dict[int, StageChannel] = {}
        try:
            for index in range(len(setups)):
                self._start(index)
            closed = set(range(len(setups)))
            while closed:  # as they come: all open at the same time
                for index in self.ready(closed):
                    self.opened(index)
                    closed.discard(index)
            if within_s:
                # not `ready`, which is not asked while a large job or answer is stuck in a pipe
                threading.Thread(target=self._end_hung, daemon=True).start()
        except BaseException:
            self.close()
            raise

    def send(self, index: int, job: Job, *, hurry: bool = True) -> None:
        """Give a stage its next job; its last one has been answered. A dead one is told by
        `receive`. `within_s` holds for a job that is in a hurry."""
        if hurry:
            self._give(index, self._within_s)
        with contextlib.suppress(OSError):
            self._channels[index].send(job)

    def receive(self, index: int) -> Done:
        """A stage's answer. Raises `StageDiedError`."""
        if self._late(index) and self._channels[index].poll():
            # it may be long, and is no later for being fetched late
            self._give(index, self._within_s)
        found: Done = self._heard(index)
        return found

    def ready(self, busy: Collection[int], timeout_s: float | None = None) -> list[int]:
        """The busy stages that have answered, or died; waits for the first, at most so long."""
        by_channel: dict[Any, int] = {self._channels[index]: index for index in busy}
        until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if timeout_s is None else max(0.0, until_s - time.monotonic())
            found: list[Any] = wait(list(by_channel), left_s)
            told = [by_channel[one] for one in found if self._place.has_come(one)]
            if told or not found:
                return sorted(told)

    def restart(self, index: int) -> None:
        """End a stage's process, whatever it does, and start another one in its place. Raises
        `StageDiedError` when that does not come up."""
        self.start_anew(index)
        self.opened(index)

    def start_anew(self, index: int) -> None:
        """As `restart`, without waiting: `ready` says when it has an answer for `opened`."""
        self._end(index, at_once=True)
        self._anew.add(index)
        self._start(index)
        self._give(index, max(self._within_s, OPENED_WITHIN_S))

    def pids(self) -> list[int]:
        """Of the processes, in order."""
        return [self._workers[index].pid for index in range(len(self._setups))]

    def whereabouts(self) -> list[Whereabouts | None]:
        """Of the processes, in order; None of one that has not told."""
        return [self._whereabouts.get(index) for index in range(len(self._setups))]

    def close(self) -> None:
        """End all processes."""
        self._closed.set()
        with self._replacing:
            self._due_s.clear()
            for channel in self._channels.values():
                channel.close()
        for index in list(self._workers):
            self._end(index)
        self._place.close()

    def _now_s(self) -> float:
        return time.monotonic() - self._stood_s

    def _give(self, index: int, within_s: float) -> None:
        if self._within_s:
            self._due_s[index] = self._now_s() + within_s

    def _late(self, index: int) -> bool:
        return self._due_s.get(index, math.inf) < self._now_s()

    def _heard(self, index: int) -> Any:
        try:
            found = self._channels[index].recv()
        except (EOFError, OSError):
            raise self._death(index) from None
        self._due_s.pop(index, None)
        if isinstance(found, StageProblem):
            kind = MemoryError if found.kind == MemoryError.__name__ else RuntimeError
            raise kind(f"{self._told(index)}: {found.kind}: {found.text}")
        return found

    def _end_hung(self) -> None:
        """From a thread: what has not answered in time, which `receive` then tells of."""
        period_s, last_s = self._within_s / LOOKS, time.monotonic()
        while not self._closed.wait(period_s):
            now_s = time.monotonic()
            # a machine or a container that stood still is nobody's hanging
            self._stood_s += max(0.0, now_s - last_s - 2 * period_s)
            last_s = now_s
            with self._replacing:
                for index, due_s in self._due_s.copy().items():
                    late = self._late(index) and not self._channels[index].poll()
                    # it may have answered and have another job since
                    if late and self._due_s.get(index) == due_s:
                        self._hung.add(index)
                        self._workers[index].kill()

    def _start(self, index: int) -> None:
        self._workers[index], ours = self._place.start(self._names[index])
        self._channels[index] = ours
        with contextlib.suppress(OSError):
            ours.send(self._setups[index])

    def opened(self, index: int) -> None:
        """Wait until a process that was started has opened its layers. Raises `UserError` for what
        it refuses, and `StageDiedError`."""
        try:
            answer = self._heard(index)
        except UserError as error:
            if index not in self._anew:
                raise
            raise RuntimeError(str(error)) from None
        if isinstance(answer, Whereabouts):
            self._whereabouts[index] = answer
        elif answer is not None and index in self._anew:
            # nothing that was asked for is wrong: it was taken before
            raise RuntimeError(f"{self._told(index)} opened again: {answer}")
        elif answer is not None:
            raise UserError(answer)

    def _told(self, index: int) -> str:
        return f"backend '{self._backend}': {self._names[index]}"

    def _death(self, index: int) -> StageDiedError:
        told = self._workers[index].ended(PATIENCE_S) or "closed its channel"
        if index in self._hung:
            told = f"gave no answer in its time (answered_within_s: {self._within_s:g})"
        return StageDiedError(self._backend, index, told, self._names[index])

    def _end(self, index: int, at_once: bool = False) -> None:
        with self._replacing:
            self._due_s.pop(index, None)
            self._hung.discard(index)
            self._channels.pop(index).close()
            worker = self._workers.pop(index)
        if at_once or not worker.pid or worker.ended(PATIENCE_S) is None:
            worker.kill()
            worker.ended(PATIENCE_S)
