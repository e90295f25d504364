"""Runs untrusted programs, such as a model's answers to HumanEval, and says which pass.

Each program gets two processes of its own, bare interpreters that share a socket: one for the
program, one for its tests. No line of the program runs where the tests do: they call its functions
over the socket and get plain values back (`workloads.sandbox.child`). So whatever a program does to
its own interpreter, it passes only by returning the values that its tests expect.

Both have a session of their own, an empty private working directory, an environment of two fixed
variables and no open file of ours. What holds them, from strong to weak:

* a system call filter (seccomp), in force for root too: no process, thread, socket, signal to
  others, or file opened for writing. So there is nothing that could outlive the program. Without
  the filter no program is run at all;
* no capabilities, and memory that other processes cannot read: not even root's program can look
  into the process of its tests;
* resource limits: CPU seconds, 512 MiB of address space, 1 MiB in a file, open files;
* a wall-clock limit after which both are killed, and a death signal for when we die first;
* Landlock, where the kernel has it: only the standard library can be read. Where it has not, a
  program can read what our user can read (the tests, if it knows where a copy of them lies), and
  has no way to pass it on;
* a network namespace of its own, where the kernel gives one to an ordinary user: a second wall
  behind the filter, which refuses every socket.

Verdicts are reproducible: hash seed and `random` are seeded.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

from harness.core.errors import UserError
from harness.core.processes.cores import usable_cores
from workloads.sandbox import policy

DEFAULT_TIMEOUT_S = 5.0
_START_LIMIT_S = 60.0
_REPORT_LIMIT_BYTES = 1024
_BOOT = """
import marshal, sys
job = marshal.load(sys.stdin.buffer)
for name, code in job.pop("modules"):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main(job)
"""
_COMMAND = [sys.executable, "-s", "-P", "-S", "-B", "-c", _BOOT]
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class UntrustedProgram:
    """An untrusted program and what it has to pass."""

    source: str
    """The program."""
    tests: str
    """Trusted code that raises when the program is wrong."""
    names: tuple[str, ...] = ()
    """What the tests use of the program: functions, called where the program lives, or plain
    values, copied once it has run. When there is a function, the tests must call one."""
    given: str = ""
    """Trusted code that the tests build on, run before them in the same module."""


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """Whether the program and its tests came to their end, and if not, why (one line)."""

    passed: bool
    reason: str = ""
    of_tests: bool = False
    """Whether the tests, or what they build on, cannot run whatever the program does, so that
    nothing is known of it."""
    out_of_time: bool = False


def run_program(
    program: UntrustedProgram, *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> SandboxResult:
    """Run a program, then its tests; passed means that neither raised.

    Args:
        program: the program and its tests.
        timeout_s: wall-clock seconds, counted from when the interpreters are up and locked in.

    Raises:
        UserError: where programs cannot be held, that is, on anything but Linux with seccomp on
            x86-64 or arm64.
    """
    return judge(program, timeout_s)[0]


def run_programs(
    programs: Sequence[UntrustedProgram], *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> list[SandboxResult]:
    """Run programs side by side, as many as there are usable CPUs; results in order. Those that run
    out of time among others run once more, one at a time: a verdict says nothing of the neighbours.

    Raises:
        UserError: as `run_program`.
    """

    def run(program: UntrustedProgram) -> SandboxResult:
        return run_program(program, timeout_s=timeout_s)

    width = usable_cores()
    with ThreadPoolExecutor(max_workers=width, thread_name_prefix="sandbox") as pool:
        results = list(pool.map(run, programs))
    return [
        run(program) if result.out_of_time else result
        for program, result in zip(programs, results, strict=True)
    ]


def judge(program: UntrustedProgram, timeout_s: float) -> tuple[SandboxResult, bytes]:
    """Like `run_program`, and the letters of the protections that were on (`lock`)."""
    machine = policy.architecture()
    if machine is None:
        raise UserError(
            "sandbox: model-written programs are only run on 64-bit Linux (x86-64, arm64), where "
            "a system call filter holds them; leave humaneval out on this machine"
        )
    job: dict[str, object] = {
        "parent": os.getpid(),
        "limits": policy.limits(timeout_s),
        "seccomp_call": machine.seccomp_call,
        "filter": policy.filter_program(machine),
        "modules": _child_modules(),
    }
    halves: list[dict[str, object]] = [
        {"source": program.source},
        {"tests": program.tests, "given": program.given, "names": program.names},
    ]
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="decodebench-") as room:
        job["readable"] = [*policy.readable_paths(), room]
        try:
            ends = socket.socketpair()
            with ends[0], ends[1]:
                for end, half in zip(ends, halves, strict=True):
                    started.append(_start(room, end))
                    _send(started[-1], marshal.dumps({**job, **half, "channel": end.fileno()}))
            report, in_time = _receive(started[1], timeout_s)
        finally:
            for process in started:
                _kill(process)
    return _verdict(report, in_time, started[0].returncode, timeout_s)


@cache
def _child_modules() -> list[tuple[str, CodeType]]:
    """The code of the children, compiled once: they start faster than they could compile it."""
    names = ("values", "calls", "lock", "child")
    paths = [Path(__file__).with_name(f"{name}.py") for name in names]
    return [
        (
            f"sandbox_{path.stem}",
            compile(path.read_text(encoding="utf-8"), path.name, "exec", dont_inherit=True),
        )
        for path in paths
    ]


def _start(room: str, channel: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=room,
        env=_ENVIRONMENT,
        start_new_session=True,
        pass_fds=(channel.fileno(),),
    )


def _send(process: subprocess.Popen[bytes], job: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(job)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _receive(process: subprocess.Popen[bytes], timeout_s: float) -> tuple[bytes, bool]:
    """What the checking process reported until it ended or was out of time."""
    assert process.stdout is not None
    handle = process.stdout.fileno()
    poller = select.poll()
    poller.register(handle, select.POLLIN | select.POLLHUP)
    deadline = time.monotonic() + _START_LIMIT_S
    report = b""
    while len(report) < _REPORT_LIMIT_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            return report, False
        chunk = os.read(handle, _REPORT_LIMIT_BYTES)
        if not chunk:
            break
        if not report:
            deadline = time.monotonic() + timeout_s
        report += chunk
    return report, True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process's group. It was not reaped yet, so its number is still its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _verdict(
    report: bytes, in_time: bool, code: int, timeout_s: float
) -> tuple[SandboxResult, bytes]:
    """Read the checking process's report; `code` is the return code of the program's process."""
    if report[:1] != b"R":
        ended = "an interpreter ended" if in_time else f"nothing was up after {_START_LIMIT_S:g} s"
        raise UserError(
            "sandbox: could not lock a program in on this machine: "
            f"{_printable(report[1:]) or ended}"
        )
    head, _, body = report.partition(b"\n")
    if body == b"P" and in_time:
        return SandboxResult(passed=True), head[1:]
    if not in_time:
        late = f"time limit of {timeout_s:g} s"
        return SandboxResult(passed=False, reason=late, out_of_time=True), head[1:]
    if body[:1] == b"T":
        return SandboxResult(passed=False, reason=_printable(body[1:]), of_tests=True), head[1:]
    if body[:1] == b"F":
        reason = _printable(body[1:])
    elif code < 0 and code != -signal.SIGKILL:
        reason = f"killed by {signal.Signals(-code).name}"
    else:
        reason = "ended before its tests did"
    return SandboxResult(passed=False, reason=reason), head[1:]


def _printable(text: bytes) -> str:
    return "".join(c if c.isprintable() else " " for c in text.decode(errors="replace")).strip()
