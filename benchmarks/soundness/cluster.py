"""How much faster a sweep over the nodes of a Ray cluster is than the same on one node.

    python benchmarks/soundness/cluster.py [--nodes 4] [--trials 200] [--seconds 1]

The nodes are raylets on this machine, and the trials wait most of their time, so that they do not
stand in each other's way. The whole command is timed, with what it imports and loads.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHILD = ROOT / "tests" / "support" / "children" / "ray_cluster.py"
CONCURRENCY = 10
TOKENS = 10


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a trial's load")
    chosen = parser.parse_args()
    took = {n: sweep(n, chosen.trials, chosen.seconds) for n in (1, chosen.nodes)}
    ratio = took[1] / took[chosen.nodes]
    print(f"{chosen.trials} trials of {chosen.seconds:g} s: 1 node {took[1]:.1f} s,", end=" ")
    print(f"{chosen.nodes} nodes {took[chosen.nodes]:.1f} s: {ratio:.2f} times as fast")


def sweep(nodes: int, trials: int, seconds: float) -> float:
    """Seconds that the command took."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, str(CHILD), str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        ) as cluster,
    ):
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        address = ""
        while ":" not in address:
            address = cluster.stdout.readline().strip()
        file, out = Path(folder) / "e.yaml", Path(folder) / "run"
        file.write_text(yaml.safe_dump(experiment(trials, seconds)))
        command = ["run", str(file), "--out", str(out), "--executor", "ray", "--address", address]
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "harness.cli.main", *command],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        found = time.perf_counter() - began
        assert len(list((out / "trials").glob("*.json"))) == trials
        cluster.stdin.close()
        return found


def experiment(trials: int, seconds: float) -> dict[str, Any]:
    """So many trials in comparisons of four repeats, each of which waits so long."""
    itl_s = seconds / TOKENS
    return {
        "name": "cluster",
        "model": "demo",
        "reference": "scripted",
        "backends": [{"name": "scripted", "ttft_s": itl_s, "itl_s": itl_s}],
        "workloads": [{"name": "gsm8k", "max_new_tokens": TOKENS}],
        # a seed each would do the same: what matters is that they are comparisons of their own
        "load": [{"kind": "closed", "concurrency": [CONCURRENCY + n for n in range(trials // 4)]}],
        "requests": CONCURRENCY,
        "repeats": 4,
    }


if __name__ == "__main__":
    main()
