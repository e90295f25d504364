"""The engines of a sweep: started when needed, side by side where memory allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

import psutil

from harness.core.errors import UserError
from harness.core.names import QUALITY
from harness.core.nouns import Trial, TrialRecord
from harness.measure.engine_process import EngineProcess, Listener
from harness.measure.machine import gpu
from harness.measure.machine.meters import Footprint, available_memory, family
from harness.measure.machine.placement import Placement
from harness.measure.messages import NoResult, Ready, TrialJob
from harness.measure.versions.version import CodeVersion

SETUP_LIMIT_S = 1800.0
"""For an engine to start, where the time limit of its trials is not longer."""
MAX_FAILED_STARTS = 2
FOOTPRINT_MARGIN = 1.2
"""A loaded engine grows while it works."""
WEIGHT_COPIES = 2
"""An engine may hold its weights twice: as they were read, and packed for its kernels."""
Stay = Literal["room", "last"]
"""For how long engines that no trial needs stay loaded (`Fleet`)."""
Edited = Callable[[Trial], str]
"""What pins a trial and is something else by now, in a line; empty where nothing is."""
MEMORY_RESERVE = 0.1
"""Share of the machine's memory that is left to others."""


class Fleet:
    """Runs jobs on engines that it starts, keeps and retires. `stay`: whether engines that no trial
    to come needs stay loaded, too: while there is "room", or "last" those of a model behind which
    no other is to come. `versions`: of the code, by name, each of which runs every trial; "" is the
    one that runs here."""

    def __init__(
        self,
        open_session: Callable[[Trial], Any],
        log_dir: Path | None,
        weight_bytes: Callable[[Trial], int] = lambda trial: 0,
        *,
        stay: Stay | None = None,
        versions: Mapping[str, CodeVersion | None] | None = None,
    ) -> None:
        self._versions = {"": None} if versions is None else dict(versions)
        self._open_session = open_session
        self._stay = stay
        self._log_dir = log_dir
        self._alive: dict[str, EngineProcess] = {}
        self._footprints: dict[str, Footprint] = {}
        self._gpus: dict[str, tuple[int, ...]] = {}
        """Places of each engine's devices among the visible ones."""
        self._weight_bytes = weight_bytes
        self._weights: dict[str, int] = {}
        """Bytes of each engine's weights; 0 where nobody knows."""
        self._failed_starts: Counter[str] = Counter()
        self._problems: dict[str, NoResult] = {}
        self._rivals: set[str] = set()
        """Engines still needed for the model of the trial under way."""
        self.refused = False
        """Whether the last trial failed because its input is bad."""
        self.crowded = False
        """Whether an engine ever had to go for another one of its model, though still needed."""

    def run(
        self,
        job: TrialJob,
        upcoming: Sequence[Trial],
        listener: Listener,
        version: str = "",
        *,
        edited: Edited = lambda trial: "",
    ) -> TrialRecord:
        """Run one trial, whatever happens to its engine, and return what to store.

        `upcoming`: the trials still to come, in order; an engine that none of them needs is closed.
        `version`: by which it is run. `edited`: asked before an engine is started, when it is there
        and when it has run the trial, which fails where its key names other code by then.
        """
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        key = _loading(version, job.trial)
        needed = [_loading(name, trial) for trial in upcoming for name in self._versions]
        same = [trial for trial in upcoming if trial.model == job.trial.model]
        self._rivals = {_loading(name, trial) for trial in same for name in self._versions}
        engine = _edit(edited, job) or self._engine(job, needed, listener, version)
        self.refused = isinstance(engine, NoResult) and engine.by_user
        if isinstance(engine, NoResult):
            return replace(engine.record(job, None), started_at=started_at)
        answer = _edit(edited, job) or engine.run(job, listener)
        # a child imports some modules late: what is edited meanwhile may have run in the load
        answer = _edit(edited, job) or answer
        if isinstance(answer, NoResult):
            record, intact = answer.record(job, engine.ready), answer.by_user
            self.refused = answer.by_user
        else:
            record, intact = answer, answer.status == "ok"
        if not intact:
            self._retire(key, at_once=True)
        elif job.trial.reload:
            for other in self._alive.keys() - needed:  # the other version's, too
                self._retire(other)
        elif key not in needed:
            is_last = len(same) == len(upcoming)
            if not (self._stay == "room" or (self._stay == "last" and is_last)):
                self._retire(key)
        return replace(record, started_at=started_at)

    @property
    def loaded(self) -> frozenset[str]:
        """Names of the engines that wait: `Trial.engine_key`, behind a version's name, and where a
        repeat has its own, before that one's number."""
        return frozenset(key for key, engine in self._alive.items() if engine.is_alive())

    def start_over(self) -> None:
        """Another sweep begins: what does not start, and whether all fit, is found out anew."""
        self._failed_starts.clear()
        self.crowded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(at_once=error is not None)

    def close(self, at_once: bool = False) -> None:
        """End every engine, all at the same time; `at_once` kills them."""
        if not at_once:
            for engine in self._alive.values():
                engine.dismiss()
        for key in list(self._alive):
            self._retire(key, at_once)

    def _engine(
        self, job: TrialJob, needed: Sequence[str], listener: Listener, version: str = ""
    ) -> EngineProcess | NoResult:
        """The living engine for a job, or a new one; the problem when it does not start.

        An engine that does not start beside others, or is killed while it starts, gets a second
        chance, alone on the machine. A server that does not answer has it with the next trial; one
        that never did is bad input.
        """
        key, loading = _key(version, job.trial), _loading(version, job.trial)
        if loading in self._alive:
            if self._alive[loading].is_alive():
                return self._alive[loading]
            self._retire(loading, at_once=True)
        if self._failed_starts[key] >= MAX_FAILED_STARTS:
            return self._problems[key]
        for other in [one for one in self._alive if one.startswith(f"{key} ")]:
            self._retire(other)  # loaded for another repeat
        self._weights[key] = self._weight_bytes(job.trial)
        self._make_room(key, needed)
        had_company = bool(self._alive)
        answer = self._start(job, listener, version)
        if isinstance(answer, NoResult) and answer.passing:
            answer = replace(answer, by_user=answer.by_user and key not in self._footprints)
        elif isinstance(answer, NoResult) and not answer.by_user and (had_company or answer.killed):
            beside_rivals = not self._rivals.isdisjoint(self._alive)
            self.close()
            answer = self._start(job, listener, version)
            # who does not start alone either has other reasons
            self.crowded |= beside_rivals and isinstance(answer, Ready)
        if isinstance(answer, Ready):
            self._failed_starts[key] = 0
            self._footprints[key] = answer.footprint
            return self._alive[loading]
        if answer.by_user or not answer.passing:
            self._failed_starts[key] += MAX_FAILED_STARTS if answer.by_user else 1
        self._problems[key] = answer
        return answer

    def _start(self, job: TrialJob, listener: Listener, version: str) -> Ready | NoResult:
        trial, loading = job.trial, _loading(version, job.trial)
        placement = Placement()
        try:
            log = self._log(trial, version)
            engine = EngineProcess(log, self._versions[version])
        except OSError as error:
            where = error.filename or "starting an engine's process"
            raise UserError(f"{where}: {error.strerror or error}; the sweep cannot go on") from None
        self._alive[loading] = engine
        limit_s = None if job.time_limit_s is None else max(SETUP_LIMIT_S, job.time_limit_s)
        answer = engine.start(self._open_session, trial, limit_s, listener)
        if isinstance(answer, Ready):
            placement.settle()
            self._gpus[_key(version, trial)] = placement.gpus(family(engine.pid))
            return answer
        self._retire(loading, at_once=True)
        if answer.status != "timeout":
            return answer
        longer = f"; a 'time_limit_s' above {SETUP_LIMIT_S:g} holds for an engine's start too"
        return replace(answer, error=answer.error + longer)

    def _log(self, trial: Trial, version: str) -> Path | None:
        if self._log_dir is None:
            return None
        self._log_dir.mkdir(parents=True, exist_ok=True)
        parts = [trial.backend, trial.engine_key()[:8], *version.split()]
        return self._log_dir / f"{'-'.join(parts)}.log"

    def _retire(self, key: str, at_once: bool = False) -> None:
        engine = self._alive.pop(key)
        if at_once:
            engine.kill()
        else:
            engine.close()

    def _make_room(self, key: str, needed: Sequence[str]) -> None:
        """Retire engines, the one needed last first, until the new one fits beside the others."""

        def next_use(other: str) -> int:
            return needed.index(other) if other in needed else len(needed)

        while self._alive and not self._fits(key):
            last = max(self._alive, key=next_use)
            self.crowded |= last in self._rivals
            self._retire(last)

    def _fits(self, key: str) -> bool:
        need = self._footprints.get(key) or self._expected(key)
        reserve = MEMORY_RESERVE * psutil.virtual_memory().total
        if available_memory() - FOOTPRINT_MARGIN * need.resident < reserve:
            return False
        # one never loaded: spread as the one that has the most devices, on the first ones
        spread = max(self._gpus.values(), key=len, default=(0,))
        on = self._gpus.get(key) or spread or (0,)
        free = gpu.memory_free(on)
        return free is None or free >= FOOTPRINT_MARGIN * need.device / len(on)

    def _expected(self, key: str) -> Footprint:
        """Of an engine never loaded before: as large as the largest one so far, and by as much
        larger or smaller as its model's weights are. Weights lie on the device where there is one.
        """
        own = self._weights.get(key, 0)
        found = []
        for other, seen in self._footprints.items():
            more = own - self._weights.get(other, 0) if own else 0
            more *= WEIGHT_COPIES if more > 0 else 1
            on_device = seen.device > 0
            found.append(
                Footprint(
                    seen.resident + (0 if on_device else more),
                    seen.device + (more if on_device else 0),
                )
            )
        return Footprint(max(f.resident for f in found), max(f.device for f in found))


def _edit(edited: Edited, job: TrialJob) -> NoResult | None:
    """Why a trial may not be stored under its key; None where it may."""
    what = edited(job.trial)
    if not what:
        return None
    return NoResult("failed", f"edited while the run went on: {what}; run again")


def _key(version: str, trial: Trial) -> str:
    """Names an engine of one version of the code."""
    return f"{version} {trial.engine_key()}".strip()


def _loading(version: str, trial: Trial) -> str:
    """Names one that is loaded, which serves trials of this name alone."""
    if not trial.reload:
        return _key(version, trial)
    return f"{_key(version, trial)} {QUALITY if trial.load.kind == QUALITY else trial.repeat}"
