"""What `run --executor ray` asks of a cluster, without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli import run
from harness.cli.cluster.place import Cluster
from harness.measure.sweep import SweepResult

WRITTEN: dict[str, Any] = {
    "name": "cluster",
    "model": "demo",
    "reference": "scripted",
    "backends": ["scripted"],
    "workloads": [{"name": "gsm8k", "max_new_tokens": 4}],
    "load": [{"kind": "closed", "concurrency": [1]}],
    "requests": 2,
    "repeats": 1,
}


def asked_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> dict[str, Any]:
    """The words of the one call, of which nothing is run."""
    file, calls = folder / "e.yaml", list[dict[str, Any]]()
    file.write_text(yaml.safe_dump(WRITTEN | changes))

    def pretend(*given: Any, **asked: Any) -> SweepResult:
        _, trials, _, _, write_inputs = given
        write_inputs()
        calls.append({"trials": trials, **asked})
        return SweepResult()

    monkeypatch.setattr(run, "sweep_cluster", pretend)
    run.run_experiment(
        file, out=folder / "run", only=None, fresh=False, dry_run=False, cluster=Cluster(None)
    )
    (call,) = calls
    return call


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_a_dtype_that_is_not_written_down_is_the_nodes_to_confirm(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_of(tmp_path, monkeypatch, dtype=dtype)
    assert asked["is_auto"] == (dtype == "auto")
