"""A disturbed trial is measured once more at the end of a run, as a user's script sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

NOISE = "machine-noisy: other processes used 30% of CPU time (limit 10%)"
EXPERIMENT: dict[str, Any] = {
    "name": "tiny",
    "model": "demo",
    "reference": "scripted",
    "backends": [
        {"name": "scripted", "ttft_s": 0.01, "itl_s": 0.004, "tokens": 8},
        {"name": "scripted", "ttft_s": 0.01, "itl_s": 0.002, "tokens": 8},
        {"name": "scripted", "ttft_s": 0.01, "itl_s": 0.003, "tokens": 8},
    ],
    "workloads": ["gsm8k"],
    "load": [{"kind": "closed", "concurrency": 4}],
    "requests": 6,
    "repeats": 3,
}
FAST = 0.002


def decodebench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)


def rows(folder: Path) -> list[dict[str, Any]]:
    done = decodebench(folder, "show", "runs/tiny", "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which repeat 1 of the fast variant is marked as noisy, and nothing else
    is, whatever this machine did."""
    folder = tmp_path_factory.mktemp("again")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    done = decodebench(folder, "run", "tiny.yaml", "--again-share", "0")
    assert done.returncode == 0, done.stderr
    assert "disturbed" not in done.stderr
    for path in (folder / "runs/tiny/trials").glob("*.json"):
        record = json.loads(path.read_text())
        trial = record["trial"]
        noisy = trial["repeat"] == 1 and trial["options"]["itl_s"] == FAST
        record["validity"] = {"valid": not noisy, "reasons": [NOISE] if noisy else []}
        path.write_text(json.dumps(record))
    return folder


def test_it_is_measured_once_with_its_reference_and_both_records_stay(disturbed: Path) -> None:
    before = {row["key"] for row in rows(disturbed)}
    too_little = decodebench(disturbed, "run", "tiny.yaml", "--again-share", "0.001")
    assert "1 trial was disturbed; none is measured again" in too_little.stderr
    done = decodebench(disturbed, "run", "tiny.yaml", "--again-share", "1")
    assert done.returncode == 0, done.stderr
    assert "measuring 1 again with what they are compared with: 2 trials" in done.stderr
    assert "measured again: 2 of 2 trials" in done.stdout
    found = rows(disturbed)
    assert before < {row["key"] for row in found}
    again = [row for row in found if row["stands_in_for"] is not None]
    assert sorted(row["options"]["itl_s"] for row in again) == [FAST, 0.004]
    assert {row["stands_in_for"] for row in again} == {1}
    fast = next(row for row in again if row["options"]["itl_s"] == FAST)
    assert fast["speedup"] is not None
    assert "pairs-apart" not in " ".join(fast["invalid_reasons"])
    third = decodebench(disturbed, "run", "tiny.yaml", "--again-share", "1")
    assert "measured again" not in third.stdout
    assert len(rows(disturbed)) == len(found)


def test_a_share_beyond_all_is_bad_input(disturbed: Path) -> None:
    done = decodebench(disturbed, "run", "tiny.yaml", "--again-share", "1.5")
    assert done.returncode == 2
    assert "--again-share" in done.stderr
    assert done.stderr.count("\n") == 1
