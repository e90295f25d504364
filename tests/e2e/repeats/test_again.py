"""A disturbed trial is measured once more at the end of a run, as a user's script sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.harness.command import decodebench, refused, rows_of

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


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which repeat 1 of the fast variant is marked as noisy, and nothing else
    is, whatever this machine did."""
    folder = tmp_path_factory.mktemp("again")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    done = decodebench("run", "tiny.yaml", "--again-share", "0", cwd=folder)
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
    before = {row["key"] for row in rows_of("runs/tiny", disturbed)}
    too_little = decodebench("run", "tiny.yaml", "--again-share", "0.001", cwd=disturbed)
    assert "1 trial was disturbed; none is measured again" in too_little.stderr
    done = decodebench("run", "tiny.yaml", "--again-share", "1", cwd=disturbed)
    assert done.returncode == 0, done.stderr
    assert "measuring 1 again with what they are compared with: 2 trials" in done.stderr
    assert "measured again: 2 of 2 trials" in done.stdout
    found = rows_of("runs/tiny", disturbed)
    assert before < {row["key"] for row in found}
    again = [row for row in found if row["stands_in_for"] is not None]
    assert sorted(row["options"]["itl_s"] for row in again) == [FAST, 0.004]
    assert {row["stands_in_for"] for row in again} == {1}
    fast = next(row for row in again if row["options"]["itl_s"] == FAST)
    assert fast["speedup"] is not None
    assert "pairs-apart" not in " ".join(fast["invalid_reasons"])
    third = decodebench("run", "tiny.yaml", "--again-share", "1", cwd=disturbed)
    assert "measured again" not in third.stdout
    assert len(rows_of("runs/tiny", disturbed)) == len(found)


def test_a_share_beyond_all_is_bad_input(disturbed: Path) -> None:
    asked = ("run", "tiny.yaml", "--again-share", "1.5")
    told = refused(*asked, cwd=disturbed)
    assert "--again-share" in told
    assert told.count("\n") == 1
