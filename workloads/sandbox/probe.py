"""Which of the sandbox's protections hold on this machine: found out by trying to break out."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

from harness.core.errors import UserError
from workloads.sandbox.runner import UntrustedProgram, judge

_LIMIT_S = 60.0
_ATTEMPTS = """
def refused(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False

def attempts(path):
    import _thread, os, socket
    def thread():
        try:
            _thread.start_new_thread(print, ())
        except RuntimeError as error:
            raise OSError from error
    tried = {
        "start a process": os.fork,
        "start a thread": thread,
        "open a socket": socket.socket,
        "write a file": lambda: open("file", "w"),
        "signal a process": lambda: os.kill(os.getppid(), 0),
        "read a file": lambda: open(path),
    }
    return [name for name, attempt in tried.items() if not refused(attempt)]
"""
_READ = "read a file"


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """What this machine's sandbox can do; `problem` is None when programs can be run."""

    problem: str | None
    confines_reads: bool = False
    """Landlock: only the standard library can be read."""
    isolates_network: bool = False
    """A network namespace of its own, behind the filter that refuses sockets."""


def support() -> SandboxSupport:
    """Try to break out with a program of our own, for `decodebench doctor`."""
    with tempfile.NamedTemporaryFile(prefix="decodebench-") as ours:
        tests = f"done = attempts({ours.name!r})\nassert not done, ', '.join(done)"
        try:
            result, protections = judge(UntrustedProgram(_ATTEMPTS, tests, ("attempts",)), _LIMIT_S)
        except UserError as error:
            return SandboxSupport(problem=str(error))
    done = result.reason.removeprefix("AssertionError: ")
    return SandboxSupport(
        problem=None if done in ("", _READ) else f"a program could do this: {done}",
        confines_reads=result.passed,
        isolates_network=b"N" in protections,
    )
