"""A sweep over a real Ray cluster on this machine: several raylets, one killed in the middle."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.harness.command import ROOT, in_full, refused, rows_of
from tests.support.harness.ray_nodes import RayCluster, ray_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
NODES = 3
EXPERIMENT: dict[str, Any] = {
    "name": "cluster",
    "model": "demo",
    "reference": "scripted",
    "backends": [{"name": "scripted", "ttft_s": 0.001, "itl_s": [0.0005, 0.001]}],
    "workloads": [{"name": name, "max_new_tokens": 16} for name in ("gsm8k", "xsum")],
    "load": [{"kind": "closed", "concurrency": [1, 2, 4]}],
    "requests": 60,  # more work on each node than a machine stands still before one is killed
    "repeats": 3,
}
TRIALS = 2 * 2 * 3 * 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(NODES) as made:
        yield made


def command(folder: Path, cluster: RayCluster) -> list[str]:
    (folder / "e.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    run = ["run", str(folder / "e.yaml"), "--out", str(folder / "run"), "--executor", "ray"]
    return in_full(*run, "--address", cluster.address)


def records(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in (folder / "run" / "trials").glob("*.json"):
        with contextlib.suppress(OSError, ValueError):  # on its way to the disk
            found.append(json.loads(path.read_text()))
    return found


def node_of(record: dict[str, Any]) -> str:
    return str(record["environment"]["node"])


def test_a_lost_node_costs_its_trials_alone(cluster: RayCluster, tmp_path: Path) -> None:
    run = command(tmp_path, cluster)
    with subprocess.Popen(
        run, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        limit = time.monotonic() + 600
        while len({node_of(record) for record in records(tmp_path)}) < NODES:
            assert process.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.1)
        cluster.kill(0)
        out, err = process.communicate(timeout=1500)
    assert process.returncode == 0, err
    assert f"cluster: {NODES} nodes" in err
    assert " is lost (" in err
    assert "raylet" not in (out + err).lower(), "Ray has screens of logs for it"
    found = records(tmp_path)
    assert Counter(record["status"] for record in found) == {"ok": TRIALS}
    whole = Counter(json.dumps(record["trial"], sort_keys=True) for record in found)
    assert set(whole.values()) == {1}, "each trial once"
    places: dict[str, set[str]] = {}
    for record in found:
        trial = record["trial"]
        one = f"{trial['workload']['name']} {trial['load']['concurrency']} {trial['repeat']}"
        places.setdefault(one, set()).add(node_of(record))
    assert {len(nodes) for nodes in places.values()} == {1}, "a repeat is one node's"
    assert len({node_of(record) for record in found}) >= NODES - 1

    again = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert f"trials: {TRIALS} stored" in again.stdout
    assert len(rows_of(tmp_path / "run")) == TRIALS


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--executor", "ray", "--address", "127.0.0.1:9"], "no Ray cluster answers within 1 s"),
        (["--executor", "rey"], "--executor: no executor 'rey'; did you mean 'ray'?"),
        (["--address", "127.0.0.1:9"], "--address: is that of a Ray cluster; expected --executor"),
    ],
)
def test_what_is_no_cluster_is_refused_in_a_line(
    options: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backends.tetris.live.devices.ANSWERS_S", 1.0)
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    told = refused("run", "e.yaml", "--out", "run", *options, cwd=tmp_path)
    assert len(told.strip().splitlines()) == 1
    assert said in told
