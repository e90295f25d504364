"""Runs untrusted programs, such as a model's answers to HumanEval, and says which pass.

Each program gets a process of its own: a bare interpreter in a new session, with an empty private
working directory, an environment of two fixed variables and no open file of ours. What holds it,
from strong to weak:

* a system call filter (seccomp), in force for root too: no process, thread, socket, signal to
  others, or file opened for writing. So there is nothing that could outlive the program. Without
  the filter no program is run at all;
* resource limits: CPU seconds, 512 MiB of address space, 1 MiB of printed text, open files;
* a wall-clock limit after which the process is killed, and a death signal for when we die first;
* Landlock, where the kernel has it: only the standard library can be read. Where it has not, a
  program can read what our user can read, and has no way to pass it on;
* a nonce that is sent when the tests came to their end (limits: see `workloads.sandbox_child`).

Verdicts are reproducible: hash seed and `random` are seeded.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.core import UserError
from workloads import sandbox_policy

DEFAULT_TIMEOUT_S = 5.0
_START_LIMIT_S = 60.0
_REPORT_LIMIT_BYTES = 1024
_COMMAND = [
    sys.executable,
    "-s",
    "-P",
    "-S",
    "-B",
    str(Path(__file__).with_name("sandbox_child.py")),
]
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """Whether the program and its tests came to their end, and if not, why (one line)."""

    passed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """What this machine's sandbox can do; `problem` is None when programs can be run."""

    problem: str | None
    confines_reads: bool


def run_program(
    source: str, tests: str = "", *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> SandboxResult:
    """Run `source`, then `tests` in the same module; passed means that neither raised.

    Args:
        source: the untrusted program.
        tests: trusted code that raises when the program is wrong. It is compiled on its own, so
            that an open string or bracket in the program cannot swallow it.
        timeout_s: wall-clock seconds, counted from when the interpreter is up and locked in.

    Raises:
        UserError: where programs cannot be held, that is, on anything but Linux with seccomp on
            x86-64 or arm64.
    """
    return _run(source, tests, timeout_s)[0]


def run_programs(
    programs: Sequence[tuple[str, str]],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    workers: int | None = None,
) -> list[SandboxResult]:
    """Run (source, tests) pairs side by side, as many as there are usable CPUs; results in order.

    Raises:
        UserError: as `run_program`.
    """
    width = workers or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(max_workers=width, thread_name_prefix="sandbox") as pool:
        return list(pool.map(lambda pair: run_program(*pair, timeout_s=timeout_s), programs))


def support() -> SandboxSupport:
    """Try the sandbox on a trivial program, for `decodebench doctor`."""
    try:
        result, confines_reads = _run("value = 1", "assert value == 1", _START_LIMIT_S)
    except UserError as error:
        return SandboxSupport(problem=str(error), confines_reads=False)
    return SandboxSupport(None if result.passed else result.reason, confines_reads)


def _run(source: str, tests: str, timeout_s: float) -> tuple[SandboxResult, bool]:
    machine = sandbox_policy.architecture()
    if machine is None:
        raise UserError(
            "sandbox: model-written programs are only run on 64-bit Linux (x86-64, arm64), where "
            "a system call filter holds them; leave humaneval out on this machine"
        )
    nonce = secrets.token_bytes(32)
    job: dict[str, object] = {
        "source": source,
        "tests": tests,
        "nonce": nonce,
        "parent": os.getpid(),
        "limits": sandbox_policy.limits(timeout_s),
        "seccomp_call": machine.seccomp_call,
        "filter": sandbox_policy.filter_program(machine),
    }
    with tempfile.TemporaryDirectory(prefix="decodebench-") as room:
        job["readable"] = [*sandbox_policy.readable_paths(), room]
        process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=room,
            env=_ENVIRONMENT,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(BrokenPipeError):
                _send(process, marshal.dumps(job))
            report, in_time = _receive(process, timeout_s)
        finally:
            _kill(process)
    return _verdict(report, nonce, in_time, process.returncode, timeout_s)


def _send(process: subprocess.Popen[bytes], job: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(job)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _receive(process: subprocess.Popen[bytes], timeout_s: float) -> tuple[bytes, bool]:
    """What the child reported until it ended, was out of time, or said too much."""
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
    """End the program's process group. It was not reaped yet, so its number is still its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _verdict(
    report: bytes, nonce: bytes, in_time: bool, code: int, timeout_s: float
) -> tuple[SandboxResult, bool]:
    if report[:1] != b"R":
        ended = f"ended with code {code}" if in_time else f"was not up after {_START_LIMIT_S:g} s"
        said = _printable(report[1:]) or f"the interpreter {ended}"
        raise UserError(f"sandbox: could not lock a program in on this machine: {said}")
    confines_reads, body = report[1:2] == b"1", report[2:]
    if secrets.compare_digest(body, nonce):
        return SandboxResult(passed=True), confines_reads
    if not in_time:
        reason = f"time limit of {timeout_s:g} s"
    elif body[:1] == b"F":
        reason = _printable(body[1:])
    elif code < 0 and code != -signal.SIGKILL:
        reason = f"killed by {signal.Signals(-code).name}"
    else:
        reason = "ended before its tests did"
    return SandboxResult(passed=False, reason=reason), confines_reads


def _printable(text: bytes) -> str:
    return "".join(c if c.isprintable() else " " for c in text.decode(errors="replace")).strip()
