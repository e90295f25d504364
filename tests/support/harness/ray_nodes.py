"""A Ray cluster of several nodes on this machine, for tests that lose some of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.child import CHILDREN, ROOT


@dataclass
class RayCluster:
    """The process that holds a cluster."""

    process: subprocess.Popen[str]
    address: str
    raylets: list[int]
    """The process of each node, of which those of its actors are children."""

    def kill(self, node: int) -> None:
        """End one of its nodes at once."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("kill", node, file=self.process.stdin, flush=True)
        while self.process.stdout.readline().strip() != "killed":
            assert self.process.poll() is None


@contextmanager
def ray_cluster(nodes: int) -> Iterator[RayCluster]:
    """One with so many nodes of one processor each, beside a head that runs nothing."""
    command = [sys.executable, str(CHILDREN / "ray_cluster.py"), str(nodes)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = ""
        while ":" not in told:
            told = process.stdout.readline().strip()
            assert process.poll() is None
        address, *raylets = told.split()
        yield RayCluster(process, address, [int(pid) for pid in raylets])
        process.stdin.close()
        process.wait(60)
