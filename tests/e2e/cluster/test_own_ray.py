"""A Ray of its own on this machine: trials as without it, and nothing that stays behind."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster.test_ray_sweep import EXPERIMENT, records
from tests.support.harness.command import ROOT, environment, in_full

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
ASKED = """
import os, ray
from backends.tetris.live.devices import check_ray, start_ray
start_ray(option="--executor ray")
address = ray.get_runtime_context().gcs_address
there = ray.remote(lambda: os.nice(0)).remote()
print(os.nice(0), ray.get(there))
for name in [name for name in os.environ if name.startswith("RAY_AUTH_")]:
    del os.environ[name]
check_ray(address)
"""


@pytest.fixture
def outside(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has set nothing, in a home of its own."""
    unset = {name for name in os.environ if name.startswith(("RAY_", "OMP_NUM_THREADS"))}
    here = environment({"HOME": str(tmp_path / "home")})
    return {name: value for name, value in here.items() if name not in unset}


def test_its_trials_are_those_of_a_run_without_it(outside: dict[str, str], tmp_path: Path) -> None:
    small = {"requests": 2, "repeats": 1, "load": [{"kind": "closed", "concurrency": 1}]}
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(EXPERIMENT | small))
    run = in_full("run", tmp_path / "e.yaml", "--out", tmp_path / "run")

    def ended(*more: str) -> str:
        done = subprocess.run(
            [*run, *more], cwd=ROOT, env=outside, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "niceness" not in done.stderr
        return done.stdout

    assert "trials: 4 ok" in ended("--executor", "ray")
    *plan, last = ended("--dry-run").splitlines()
    assert [line.split()[-1] for line in plan] == ["stored"] * 4
    assert last.endswith("nothing was run")
    for record in records(tmp_path):
        assert "OMP_NUM_THREADS" not in record["environment"]["variables"]
    assert not (tmp_path / "home" / ".ray").exists(), "a token would be asked for by every cluster"


def test_others_need_its_token_which_is_written_nowhere(
    outside: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=ROOT, env=outside, capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    ours, workers = done.stdout.split()
    assert workers == ours
    assert (
        "refuses the connection: it needs a token, and no other one; set RAY_AUTH_MODE=token"
        in done.stderr
    )
    assert not (tmp_path / "home" / ".ray").exists()
