"""A trial whose engine and meter write down what they are asked for, in one list."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from harness.core.nouns import BackendInfo, Commit, Generation, Request, Trial, TrialRecord
from harness.measure.child import run_trial
from harness.measure.machine import gpu
from harness.measure.machine.meters import Meter, Reading
from harness.measure.machine.snapshots import MachineState
from harness.measure.messages import TrialJob
from tests.support.harness.puppet import Puppet
from tests.support.harness.sessions import make_trial

QUIET = MachineState(100.0, 40.0, 1.0, 30.0, 0.002, 5, own=frozenset({os.getpid()}))


class Diary(Puppet):
    """Writes down what it is asked for, and what it was asked for at once."""

    def __init__(self, log: list[str], work: Callable[[], None]) -> None:
        super().__init__(work=work)
        self.log = log

    def submit(self, request: Request) -> None:
        super().submit(request)
        self.log.append(request.id)

    def poll(self) -> list[Commit]:
        self.log.append(f"{len(self.in_flight)} at once")
        return super().poll()

    def reset(self) -> None:
        super().reset()
        self.log.append("reset")


@dataclass
class DiarySession:
    """Two warm-up requests and a few measured ones on a `Diary`."""

    warm_up: int = 2
    capabilities: frozenset[str] = frozenset()
    work: Callable[[], None] = lambda: None
    log: list[str] = field(default_factory=list)
    setup_s: float = 1.5

    def __post_init__(self) -> None:
        self.backend = Diary(self.log, self.work)

    @property
    def info(self) -> BackendInfo:
        return replace(self.backend.info, capabilities=self.capabilities)

    def requests(self, trial: Trial) -> tuple[list[Request], list[Request]]:
        self.log.append("requests")
        warm_up = [Request(f"w{i}", (1,), 4) for i in range(self.warm_up)]
        return warm_up, [Request(f"r{i}", (1,), 4) for i in range(trial.requests)]

    def remarks(self, trial: Trial) -> list[str]:
        return ["lengths-cut: so many"] * (trial.max_new_tokens == 3)

    def finish(
        self, trial: Trial, generations: list[Generation]
    ) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
        self.log.append("finish")
        answered = [g.request_id for g in generations]
        return dict.fromkeys(answered, "text"), {name: {"exact_match": 1.0} for name in answered}

    def close(self) -> None: ...


class FakeMeter(Meter):
    """Made for a machine that counts energy, and an engine on all GPUs."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.awake = log, False

    def start(self) -> None:
        assert self.awake
        self.log.append("meter")

    def wake(self) -> None:
        assert self.log == [], "before anything is prepared"
        self.awake = True

    def gpus(self) -> tuple[int, ...]:
        assert "[load]" not in self.log
        return tuple(range(len(gpu.devices())))

    def read(self) -> Reading:
        self.log.append("reading")
        return Reading(7_000_000, 12.5)


def run(session: DiarySession, requests: int = 6, **changes: Any) -> TrialRecord:
    trial = replace(make_trial(requests=requests), **changes)
    told: list[Any] = []
    job = TrialJob("a-key", trial, {"cpu": "x"}, 60.0)

    def tell(message: Any) -> None:
        if isinstance(message, str):
            session.log.append(f"[{message}]")
        told.append(message)

    return run_trial(session, job, FakeMeter(session.log), tell)
