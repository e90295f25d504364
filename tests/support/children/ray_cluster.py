"""A Ray cluster of several nodes on this machine, each with a raylet of its own.

Usage: ``python ray_cluster.py NODES``. Prints the address and the nodes' raylets; a line
``kill N`` on its input kills the raylet of node N with SIGKILL, and the end of the input ends the
cluster.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"


def main() -> None:
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster()
    # runs no trials, and so outlives those that are killed
    cluster.add_node(num_cpus=0, include_dashboard=False)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(int(sys.argv[1]))]
    raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
    print(cluster.address, *raylets, flush=True)
    for line in sys.stdin:
        cluster.remove_node(nodes[int(line.split()[1])], allow_graceful=False)
        print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
