"""kill -9 of a sweep or its engines at any moment: nothing finished is lost, the rest is redone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.core.nouns import TrialRecord
from harness.measure.machine.environment import environment, fingerprint
from harness.measure.machine.tuning import variables
from results.store.folder import Store
from tests.support.children.killable_sweep import trials
from tests.support.harness import sessions
from tests.support.harness.sweeping import opened

ROOT = Path(__file__).parents[2]
KILLS = 10
SECONDS = 900
GONE_S = 60
"""For the guards of a group that was killed to end it."""
pytestmark = pytest.mark.slow


def heed_interrupts() -> None:
    """A test run in the background of a shell ignores SIGINT, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(folder: Path) -> subprocess.Popen[str]:
    """The sweep, leader of no group of ours; its engines note their ids in the file `opened`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.children.killable_sweep", str(folder / "run")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


def engines(sweep: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return list(psutil.Process(sweep.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def loaded_engines(folder: Path) -> set[int]:
    noted = folder / "opened"
    return {int(pid) for pid, _ in opened(noted)} if noted.exists() else set()


def read_line(sweep: subprocess.Popen[str]) -> str:
    assert sweep.stdout is not None
    return sweep.stdout.readline()


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def dead_within(processes: list[psutil.Process], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while alive(processes) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(processes)


def records(folder: Path) -> dict[str, TrialRecord]:
    store = Store(folder / "run")
    keys = store.keys() if store.trials_folder.exists() else []
    return {key: store.read(key) for key in keys}


def expected_keys() -> set[str]:
    # other tests of this process may have changed what the sweeps are started with
    machine = fingerprint({**environment(), "variables": variables(os.environ)})
    return {trial.key(machine) for trial in trials()}


def finish(folder: Path) -> str:
    sweep = start(folder)
    text, _ = sweep.communicate(timeout=SECONDS)
    assert sweep.returncode == 0
    return text.splitlines()[-1]


def check_complete(folder: Path) -> None:
    found = records(folder)
    assert set(found) == expected_keys()
    for record in found.values():
        assert record.status == "ok"
        assert [g.finished for g in record.generations] == ["stop"] * 10
        assert len({g.request_id for g in record.generations}) == 10
    leftovers = {p.name for p in (folder / "run/trials").iterdir()}
    assert leftovers == {f"{key}{suffix}" for key in found for suffix in (".json", ".parquet")}


def test_a_sweep_whose_parent_is_killed_ten_times_ends_like_one_never_killed(
    tmp_path: Path,
) -> None:
    draw = random.Random(7)
    kept: dict[str, TrialRecord] = {}
    for turn in range(KILLS):
        sweep = start(tmp_path)
        # Every third time wherever it happens to be, else somewhere among the trials.
        seen = [read_line(sweep) for _ in range(draw.randint(1, 9) if turn % 3 else 0)]
        time.sleep(draw.uniform(0.0, 0.3))
        children = engines(sweep)
        sweep.kill()
        rest, _ = sweep.communicate(timeout=SECONDS)
        text = "".join(seen) + rest
        assert dead_within(children, GONE_S)
        found = records(tmp_path)
        # What was stored before is still there, unchanged; at most the trial under way is missing.
        assert {key: found[key].started_at for key in kept} == {
            key: record.started_at for key, record in kept.items()
        }
        finished = sum(line.startswith("finished") for line in text.splitlines())
        assert len(found) - len(kept) in (finished, finished + 1)
        kept = found
    assert len(kept) > 0
    assert finish(tmp_path).endswith(f" {len(kept)}")
    check_complete(tmp_path)
    assert finish(tmp_path) == f"done {{}} {len(expected_keys())}"


def test_killed_engines_cost_their_trials_only(tmp_path: Path) -> None:
    draw = random.Random(11)
    sweep = start(tmp_path)
    killed, spare = 0, False
    while killed < KILLS and sweep.poll() is None:
        # a trial takes 0.3 s: enough of them are left for the last kill where this process waits
        time.sleep(draw.uniform(0.1, 0.5))
        loaded = loaded_engines(tmp_path)
        # never two while they load: whoever does not start twice is given up
        victims = [p for p in sessions.engines(sweep.pid) if p.pid in loaded or not spare]
        if victims:
            victim = draw.choice(victims)
            victim.kill()
            killed, spare = killed + 1, victim.pid not in loaded
    sweep.communicate(timeout=SECONDS)
    assert sweep.returncode == 0
    assert killed == KILLS
    found = records(tmp_path)
    assert set(found) == expected_keys()
    failed = [record for record in found.values() if record.status != "ok"]
    assert len(failed) <= killed
    assert all("SIGKILL" in (record.error or "") for record in failed)
    assert finish(tmp_path) == f"done { ({'ok': len(failed)} if failed else {}) } " + str(
        len(found) - len(failed)
    )
    check_complete(tmp_path)


def test_engines_die_with_a_parent_that_is_terminated(tmp_path: Path) -> None:
    """SIGTERM and SIGKILL both leave nothing behind, guard processes included."""
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        sweep = start(tmp_path)
        while "finished" not in read_line(sweep):
            assert sweep.poll() is None
        children = engines(sweep)
        assert len(children) >= 2
        sweep.send_signal(number)
        sweep.communicate(timeout=SECONDS)
        assert sweep.returncode != 0
        assert dead_within(children, GONE_S)
