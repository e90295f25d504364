"""The inside of the sandbox: locks itself in, then runs one program and says whether it passed.

`workloads.sandbox` starts this file as a script in a bare interpreter; it imports nothing of the
project. The job arrives on standard input, the verdict leaves on standard output: ``R`` and a digit
once locked in, then the job's nonce when the tests came to their end, or ``F`` and a reason.

The verdict must not be forged by a program that leaves early, prints, or writes to open files. So
the program runs in a second thread, where a C-level `map` calls it and then wakes the main thread;
there another `map` sends the nonce. What the two hold is in no variable of any frame, and an audit
hook refuses the introspection that finds objects otherwise. A program written against this very
file may yet win, as may one whose objects claim to be equal to everything: the tests run in its
process.
"""

from __future__ import annotations

import _thread
import ctypes
import functools
import marshal
import operator
import os
import resource
import struct
import sys
import types
from collections.abc import Callable, Iterable
from stat import S_ISDIR
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_SIGKILL = 9
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_ALL_V1, _LANDLOCK_READ_FILE, _LANDLOCK_READ_TREE = 0x1FFF, 0b0101, 0b1101
_LANDLOCK_RULE_PATH_BENEATH = 1
_STACK_BYTES = 16 * 1024 * 1024
_REASON_BYTES = 300

_REFUSED_EVENTS = frozenset(
    {
        "gc.get_objects",
        "gc.get_referents",
        "gc.get_referrers",
        "sys._current_exceptions",
        "sys._current_frames",
        "sys.addaudithook",
        "sys.monitoring.register_callback",
        "sys.setprofile",
        "sys.settrace",
    }
)
_REFUSED_MODULES = frozenset({"ctypes", "_ctypes"})

_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: Any) -> int:
    """Make a system call by number; raises `OSError` when it fails."""
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"system call {number}: {os.strerror(code)}")
    return result


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


def _confine_reads(paths: Iterable[str]) -> bool:
    """Let this thread and its heirs read beneath these paths only. False: no Landlock here."""
    attributes = ctypes.create_string_buffer(struct.pack("<Q", _LANDLOCK_ALL_V1), 8)
    try:
        rules = _call(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(8), 0)
    except OSError:
        return False
    for path in paths:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = _LANDLOCK_READ_TREE if S_ISDIR(os.fstat(handle).st_mode) else _LANDLOCK_READ_FILE
        rule = ctypes.create_string_buffer(struct.pack("<Qi", rights, handle), 12)
        _call(_LANDLOCK_ADD_RULE, rules, _LANDLOCK_RULE_PATH_BENEATH, rule, 0)
        os.close(handle)
    _call(_LANDLOCK_RESTRICT_SELF, rules, 0)
    os.close(rules)
    return True


def _confine_calls(number: int, program: bytes) -> None:
    """Install the system call filter on every thread of this process, for good."""
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(
        struct.pack("@HP", len(program) // 8, ctypes.addressof(code)), struct.calcsize("@HP")
    )
    _call(number, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, header)


def _audit(
    event: str,
    arguments: tuple[Any, ...],
    events: frozenset[str] = _REFUSED_EVENTS,
    modules: frozenset[str] = _REFUSED_MODULES,
) -> None:
    """Refuse what could find the nonce. All it needs is bound beforehand, out of reach."""
    if event in events or event.startswith("ctypes."):
        raise PermissionError(f"{event} is not allowed here")
    if event == "import" and arguments[0] in modules:
        raise ImportError(f"{arguments[0]} is not allowed here")


def _run(
    source: str,
    tests: str,
    report: int,
    write: Callable[[int, bytes], int] = os.write,
    leave: Callable[[int], Any] = os._exit,
) -> None:
    """Run the program and its tests in one module; return only if both come to their end."""
    module = types.ModuleType("candidate")
    sys.modules["candidate"] = sys.modules["__main__"] = module
    try:
        if "random" in source or "random" in tests:
            import random

            random.seed(0)
        checks = compile(tests, "<tests>", "exec", dont_inherit=True)
        exec(compile(source, "<program>", "exec", dont_inherit=True), module.__dict__)
        exec(checks, module.__dict__)
    except BaseException as error:
        reason = b"F"
        try:
            reason += type(error).__name__.encode()
            text = str(error).strip().split("\n")[0]
            reason += f": {text}".encode(errors="replace") if text else b""
        finally:
            try:
                write(report, reason[:_REASON_BYTES])
            finally:
                leave(1)


def _lock_in(job: dict[str, Any]) -> bool:
    """Everything but the call filter. Returns whether reads are confined."""
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != job["parent"]:
        os._exit(2)
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    confined = _confine_reads(job["readable"])
    for which, value in job["limits"]:
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))
    return confined


def _replace_standard_streams() -> None:
    """Nothing to read; what is printed goes to memory, which the file size limit bounds."""
    for handle, targets in (
        (os.open(os.devnull, os.O_RDONLY), (0,)),
        (os.memfd_create("output"), (1, 2)),
    ):
        for target in targets:
            os.dup2(handle, target)
        os.close(handle)


def main() -> None:
    """Read the job, lock in, run, report. Never returns."""
    job = marshal.loads(sys.stdin.buffer.read())
    write, leave = os.write, os._exit
    report = os.dup(1)
    _replace_standard_streams()
    start, end = _thread.allocate_lock(), _thread.allocate_lock()
    start.acquire()
    end.acquire()
    try:
        confined = _lock_in(job)
        _thread.stack_size(_STACK_BYTES)
        program = functools.partial(_run, job["source"], job["tests"], report)
        call: Callable[[Any], object] = operator.call
        calls: list[Callable[[], object]] = [start.acquire, program, end.release]
        steps = map(call, calls)
        _thread.start_new_thread(list, (steps,))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        _confine_calls(job["seccomp_call"], job["filter"])
    except (OSError, RuntimeError) as error:
        write(report, b"X" + str(error).encode())
        leave(2)
    del steps, calls, program
    for name in ("ctypes", "_ctypes", "ctypes._endian"):
        sys.modules.pop(name, None)
    sys.addaudithook(_audit)
    write(report, b"R1" if confined else b"R0")
    bind = functools.partial
    list(
        map(
            call,
            [start.release, end.acquire, bind(write, report, job.pop("nonce")), bind(leave, 0)],
        )
    )


if __name__ == "__main__":
    main()
