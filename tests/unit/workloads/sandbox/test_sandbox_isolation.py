"""What separates a program's process from its tests' and from ours, and how `doctor` finds out."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.answers.processes import is_locked_in, processes_in, wait_until
from workloads.sandbox import policy as sandbox_policy
from workloads.sandbox.probe import support
from workloads.sandbox.runner import UntrustedProgram, run_program


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The two processes of a program that is running."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run_program, UntrustedProgram("while True: pass", ""), timeout_s=60)
        assert wait_until(lambda: sum(map(is_locked_in, processes_in(tmp_path))) == 2)
        found = processes_in(tmp_path)
        yield found
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        done.result()


def test_both_processes_have_no_capability(held: list[int]) -> None:
    for process in held:
        status = Path(f"/proc/{process}/status").read_text()
        for kind in ("Prm", "Eff", "Inh", "Amb"):
            assert f"Cap{kind}:\t{0:016x}\n" in status


def test_both_processes_have_a_network_of_their_own(held: list[int]) -> None:
    if not support().isolates_network:
        pytest.skip("this kernel gives no network namespace to an ordinary user")
    networks = {Path(f"/proc/{process}/ns/net").readlink() for process in held}
    assert len(networks) == 2
    assert Path("/proc/self/ns/net").readlink() not in networks


def test_memory_of_no_other_process_is_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Landlock does not hide /proc: ours and the checking process's hold the tests."""
    if not support().isolates_network:
        pytest.skip("this kernel gives no user namespace: only Landlock hides our own memory")
    monkeypatch.setattr(sandbox_policy, "readable_paths", lambda: ["/"])
    program = """
import os
seen, opened = 0, []
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        seen += 1
        try:
            open(f"/proc/{name}/mem", "rb").close()
            opened.append(name)
        except OSError:
            pass
"""
    tests = "assert seen and not opened, opened"
    assert run_program(UntrustedProgram(program, tests, ("seen", "opened"))).reason == ""


def test_support_tells_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_policy, "readable_paths", lambda: ["/"])
    found = support()
    assert found.problem is None
    assert not found.confines_reads


def test_support_tries_to_break_out(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = sandbox_policy._ALLOWED | {"socket": (41, 198), "kill": (62, 129)}
    monkeypatch.setattr(sandbox_policy, "_ALLOWED", harmless)
    problem = support().problem
    assert problem is not None
    assert problem.endswith("open a socket, signal a process")
