"""What is simulated: queues, the devices that serve them, and what a batch costs there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from backends.tetris.pipeline.fusion import FusionQueue

Work = Callable[[str, list[int], list[int]], tuple[float, list[float] | None]]
"""(kind of device, requests, layers that each runs) -> milliseconds of the batch, and when each
request is answered after its start, or None: all of them at its end."""


@dataclass(slots=True, eq=False)
class Lane:
    """A queue and the stage, up to layer `end` - 1, that its requests run. Who runs no more than
    `end` layers is answered; the others go on to `after`, over a link where `linked`. `idle` has
    the crews with a free device, by rank, and is one for lanes of the same crews; `left` and
    `passed` count who was answered behind it and who went on."""

    end: int
    queue: FusionQueue
    work: Work
    after: Lane | None = None
    linked: bool = False
    idle: dict[int, dict[Crew, None]] = field(default_factory=dict)
    link_free_ms: float = 0.0
    timer_ms: float = float("inf")
    left: int = 0
    passed: int = 0

    def next_crew(self) -> Crew:
        """Of those with a free device one of the lowest rank."""
        return next(iter(self.idle[min(self.idle)]))


@dataclass(slots=True, eq=False)
class Crew:
    """Devices of one kind that serve the same lanes, the first one that is ready first. Who is of a
    lower `rank` goes before others that are free."""

    kind: str
    devices: list[str]
    lanes: list[Lane]
    rank: int = 0
    free: list[str] = field(init=False)
    _idle: list[dict[int, dict[Crew, None]]] = field(init=False)

    def __post_init__(self) -> None:
        self.free = []
        self._idle = [*{id(lane.idle): lane.idle for lane in self.lanes}.values()]
        for device in reversed(self.devices):
            self.give_back(device)

    def give_back(self, device: str) -> None:
        """A device has nothing to do any more."""
        self.free.append(device)
        if len(self.free) == 1:
            for idle in self._idle:
                idle.setdefault(self.rank, {})[self] = None

    def lane_of(self, queue: FusionQueue) -> Lane:
        """The one that a queue is before: an entrance is of its own for each kind of device."""
        return next(one for one in self.lanes if one.queue is queue)

    def lend(self, device: str | None = None) -> str:
        """One of the free devices, or this one of them, which is no longer free."""
        device = self.free.pop(-1 if device is None else self.free.index(device))
        if not self.free:
            for idle in self._idle:
                del idle[self.rank][self]
                if not idle[self.rank]:
                    del idle[self.rank]
        return device


@dataclass(frozen=True, slots=True)
class Layout:
    """Lanes from the entrance on, and the ramps that are on: their layers, or None for all. The
    entrance may serve several rows of lanes. `own_cuts` are the ramps by the kind of device that
    takes a request at the entrance, where devices have ramps of their own."""

    lanes: tuple[Lane, ...]
    crews: tuple[Crew, ...]
    cuts: tuple[int, ...] | None
    own_cuts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def entrance(self) -> Lane:
        """Where requests arrive."""
        return self.lanes[0]

    def stage_of(self) -> dict[str, int]:
        """Each device's place, where stragglers are compared."""
        return {device: place for place, crew in enumerate(self.crews) for device in crew.devices}


def names(kind: str, count: int, numbers: dict[str, itertools.count[int]]) -> list[str]:
    """`count` devices of a kind that have no other task yet."""
    number = numbers.setdefault(kind, itertools.count())
    return [f"{kind}-{next(number)}" for _ in range(count)]
