"""Sessions for sweep tests, in a module that child processes can import.

What a session does is in the trial: the backend is `scripted` with the trial's options, and the
option `test` (taken out before) lets single trials, named by their seed, do worse things.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.scripted import ScriptedBackend
from harness.core.errors import UnavailableError, UserError
from harness.core.nouns import (
    BackendInfo,
    Commit,
    Generation,
    Load,
    Model,
    Request,
    Trial,
    TrialRecord,
    Workload,
)

if TYPE_CHECKING:
    import psutil

FAST: Mapping[str, Any] = {"ttft_s": 0.002, "itl_s": 0.001}


def make_trial(seed: int = 0, repeat: int = 0, requests: int = 6, **options: Any) -> Trial:
    return Trial(
        backend="scripted",
        options={**FAST, **options},
        model=Model("none"),
        workload=Workload("made-up"),
        load=Load("closed", concurrency=2),
        requests=requests,
        max_new_tokens=4,
        seed=seed,
        repeat=repeat,
    )


class DoomedBackend(ScriptedBackend):
    """Does something terrible at its fifth poll with something to hand out."""

    doom: str | None = None
    handed: int = 0

    def poll(self) -> list[Commit]:
        commits = super().poll()
        self.handed += len(commits)
        if self.doom is not None and self.handed >= 5:
            doom, self.doom = self.doom, None
            meet(doom)
        return commits


def meet(doom: str) -> None:
    if doom == "kill":
        print("my last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if doom == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if doom == "exit":
        os._exit(3)
    if doom == "raise":
        raise RuntimeError("broken engine")
    if doom == "memory":
        raise MemoryError("no room")
    if doom == "torch-memory":
        raise type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory")
    if doom == "stop":
        subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    if doom == "hang":
        time.sleep(3600)
    if doom == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(3600)


class TestSession:
    __test__ = False

    def __init__(self, trial: Trial) -> None:
        options = dict(trial.options)
        self.plan: dict[str, Any] = options.pop("test", {})
        self.backend = DoomedBackend(options)
        self.setup_s = 0.25
        if "children" in self.plan:
            code = "import time; time.sleep(3600)"
            child = subprocess.Popen([sys.executable, "-c", code])
            with Path(self.plan["children"]).open("a") as pids:
                pids.write(f"{os.getpid()} {child.pid}\n")
        if "opened" in self.plan:
            with Path(self.plan["opened"]).open("a") as opened:
                opened.write(f"{os.getpid()} {trial.engine_key()}\n")

    @property
    def info(self) -> BackendInfo:
        capabilities = frozenset(self.plan.get("capabilities", ()))
        return replace(self.backend.info, capabilities=capabilities)

    def requests(self, trial: Trial) -> tuple[list[Request], list[Request]]:
        if trial.seed in self.plan.get("bad_data", ()):
            raise UserError("rows.jsonl line 3: no field 'question'")
        doom: dict[str, str] = self.plan.get("doom", {})
        self.backend.doom = doom.get(str(trial.seed))
        # the warm-up is two requests of four commits
        self.backend.handed = 0 if trial.seed in self.plan.get("early", ()) else -4 * 2
        warm_up = [Request(f"w{i}", (1,), 4) for i in range(2)]
        return warm_up, [
            Request(f"r{i}", (1, 2), trial.max_new_tokens) for i in range(trial.requests)
        ]

    def remarks(self, trial: Trial) -> list[str]:
        return []

    def finish(
        self, trial: Trial, generations: list[Generation]
    ) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
        return {g.request_id: str(g.token_ids) for g in generations}, {}

    def close(self) -> None:
        if "closed" in self.plan:
            Path(self.plan["closed"]).touch()


def open_session(trial: Trial) -> TestSession:
    test = trial.options.get("test", {})
    start = test.get("start")
    for name, reached in (("away", False), ("busy", True)):
        if trial.seed in test.get(name, ()):
            raise UnavailableError(f"the server is {name}", reached=reached)
    if start == "user-error":
        raise UserError("model 'x': not a Llama")
    if start == "raise":
        raise ValueError("engine core initialisation failed")
    if start == "raise-beside-others" and siblings() > 0:
        raise ValueError("free memory is less than desired")
    if start == "once" and not (marker := Path(trial.options["test"]["marker"])).exists():
        marker.touch()
        raise ValueError("transient")
    if start == "killed-once" and not (marker := Path(trial.options["test"]["marker"])).exists():
        marker.touch()
        meet("kill")
    if start == "hang":
        time.sleep(3600)
    return TestSession(trial)


def engines(parent: int) -> list[psutil.Process]:
    """Engine processes that a process started; a test run may have children of other kinds."""
    import psutil

    def is_engine(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return "harness.measure.child" in " ".join(process.cmdline())
        return False

    return list(filter(is_engine, psutil.Process(parent).children()))


def siblings() -> int:
    """Other engine processes of this sweep."""
    return sum(engine.pid != os.getpid() for engine in engines(os.getppid()))


class MemoryStore:
    """Keeps records in memory; `full_after` makes it raise as a full disk does."""

    def __init__(self, full_after: int | None = None) -> None:
        self.records: list[TrialRecord] = []
        self.full_after = full_after

    def has(self, key: str) -> bool:
        return any(r.key == key and r.status == "ok" for r in self.records)

    def write(self, record: TrialRecord) -> None:
        if self.full_after is not None and len(self.records) >= self.full_after:
            raise OSError(28, "No space left on device", "runs/x/trials/a.json")
        self.records.append(record)
