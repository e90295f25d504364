"""What `run --executor ray` asks of a cluster, without one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from harness.cli import run
from harness.cli.cluster import sweep
from harness.cli.cluster.node import NodeState, code_key
from harness.cli.cluster.nodes import ClusterNode
from harness.cli.cluster.place import Cluster, find_place
from harness.cli.pins import Pins
from harness.core.errors import UserError
from harness.measure.machine import tuning
from harness.measure.sweep import SweepResult
from results.store.folder import Store
from tests.unit.harness.cli.cluster.test_nodes import PretendedNode, Rays, trials

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


def test_logs_that_are_not_in_the_run_s_folder_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_on(tmp_path, monkeypatch, tmp_path / "logs")
    assert "logs" not in capsys.readouterr().err
    sweep_on(tmp_path, monkeypatch, Path("/node/logs"))
    assert "node a: logs of its engines are there, in /node/logs\n" in capsys.readouterr().err


def test_what_the_trials_keys_pin_is_kept_for_a_later_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_on(tmp_path, monkeypatch, tmp_path / "logs")
    ((digest, parts),) = Pins().all_of(trials(cells=1, repeats=1)).items()
    assert Store(tmp_path).read_code(digest) == parts


@pytest.mark.parametrize("above", [0, 15, -1])
def test_a_node_whose_engines_give_way_to_others_is_told_of(
    above: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tuning.niceness()
    sweep_on(tmp_path, monkeypatch, tmp_path / "logs", niceness=here + above)
    told = [line for line in capsys.readouterr().err.splitlines() if "niceness" in line]
    assert len(told) == bool(above)
    for line in told:
        assert line.startswith(
            f"warning: engines run at niceness {here + above} on a, and at {here}"
        )
        cure = "start Ray on nodes with RAY_worker_niceness=0"
        assert line.endswith(cure if above > 0 else f"run this command without 'nice' ({here})")


def test_what_is_no_address_is_refused_before_anything_is_read() -> None:
    with pytest.raises(UserError, match=r"^--address 10\.0\.0\.1: expected HOST:PORT"):
        find_place("ray", "10.0.0.1")
    assert find_place("ray", "10.0.0.1:6379") == Cluster("10.0.0.1:6379")


def sweep_on(folder: Path, monkeypatch: pytest.MonkeyPatch, logs: Path, **environment: Any) -> None:
    """A sweep of one trial on one node, whose logs are there."""
    asked, worker = trials(cells=1, repeats=1), PretendedNode("a", "m")
    code = {code_key(trial): "code" for trial in asked}
    node = ClusterNode("a", worker, NodeState(environment, "m", code, {}, logs=logs))
    ray = SimpleNamespace(
        get=Rays.get, wait=Rays.wait, exceptions=Rays.exceptions, shutdown=lambda: None
    )
    monkeypatch.setattr(sweep, "connect", lambda address: ray)
    monkeypatch.setattr(sweep, "open_nodes", lambda *_, **__: [node])
    sweep.sweep_cluster(Store(folder), asked, 60.0, None, lambda: None, is_auto=False)
