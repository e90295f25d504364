"""kill -9 in the middle of a draft: what was finished stays as it is, the rest is plain decoding's.

Through the command, with the demo model: while an engine has drafts that the model has not seen it
is killed, and later on the sweep while another has; the same command then finishes.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from results.store.folder import Store
from tests.support.harness.command import decodebench, rows_of

SWEEP_DIES_IN, ENGINE_DIES_IN = "draft_model", "swift"
REPEAT = 1
"""Whose trials come in the other order: first the engine's, then the sweep's last one."""
REQUESTS = 4
EXPERIMENT = {
    "name": "killed",
    "model": "demo",
    "reference": "autoregressive",
    "backends": [
        "autoregressive",
        {"name": "speculative", "method": SWEEP_DIES_IN, "drafts": 12},
        {"name": "speculative", "method": ENGINE_DIES_IN, "drafts": 8},
    ],
    "workloads": [{"name": "gsm8k", "max_new_tokens": 60}],
    "load": [{"kind": "closed", "concurrency": 2}],
    "requests": REQUESTS,
    "repeats": REPEAT + 1,
}
RUN = ["run", "e.yaml", "--out", "run", "--again-share", "0"]
KILLED = (
    *("-m", "tests.support.children.killed_draft"),
    *(ENGINE_DIES_IN, SWEEP_DIES_IN, str(REPEAT), "told"),
)
Files = dict[str, bytes]
pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Killed:
    """What two kills left."""

    files: Files
    """Of the trials that are finished, by name."""
    failed: list[dict[str, Any]]
    """Records of the others."""
    drafts: list[int]
    """That waited at each kill."""


def finished(folder: Path) -> Files:
    """The files of all trials that are stored as ok."""
    trials, store = folder / "run/trials", Store(folder / "run")
    keys = [file.stem for file in trials.glob("*.json") if store.has(file.stem)]
    names = [f"{key}{suffix}" for key in keys for suffix in (".json", ".parquet")]
    return {name: (trials / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("killed")
    (made / "e.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    return made


@pytest.fixture(scope="module")
def killed(folder: Path) -> Killed:
    """The command whose processes were killed."""
    assert decodebench(*RUN, cwd=folder, start=KILLED).returncode == -signal.SIGKILL
    told = [json.loads(file.read_text()) for file in (folder / "run/trials").glob("*.json")]
    drafts = [int(number) for number in (folder / "told").read_text().split()]
    return Killed(finished(folder), [record for record in told if record["status"] != "ok"], drafts)


@pytest.fixture(scope="module")
def after(folder: Path, killed: Killed) -> Files:
    """What the same command without kills ends with."""
    done = decodebench(*RUN, cwd=folder)
    assert done.returncode == 0, done.stderr
    return finished(folder)


def test_kills_come_while_drafts_wait(killed: Killed) -> None:
    engines, sweeps = killed.drafts
    assert engines > 0
    assert sweeps > 0
    (failed,) = killed.failed
    assert failed["trial"]["options"]["method"] == ENGINE_DIES_IN
    assert "SIGKILL" in failed["error"]


def test_what_was_finished_stays_byte_for_byte(killed: Killed, after: Files) -> None:
    assert len(killed.files) == 3 * 2, "the first repeat, and nothing of the second"
    assert len(after) == 6 * 2
    assert killed.files.items() <= after.items()


def test_the_rest_is_plain_decodings_text(folder: Path, after: Files) -> None:
    rows = rows_of("run", folder)
    assert [row["status"] for row in rows] == ["ok"] * 6
    drafting = [row for row in rows if row["backend"] == "speculative"]
    assert [row["consistency_native"] for row in drafting] == [1.0] * 4
    assert all(row["drafts_per_step"] > 0 for row in drafting)
    answers: dict[str, set[tuple[int, ...]]] = {}
    for name in after:
        if name.endswith(".json"):
            for said in Store(folder / "run").read(Path(name).stem).generations:
                answers.setdefault(said.request_id, set()).add(tuple(said.token_ids))
    assert [len(texts) for texts in answers.values()] == [1] * REQUESTS, "whoever decoded, and when"
