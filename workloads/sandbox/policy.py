"""What an untrusted program may do: the system call filter, resource limits and readable paths.

Everything that is not listed is refused. With this list a program can compute, read the standard
library and write to pipes that it was given; it cannot make a process or a thread, open a file for
writing, open a socket, signal or trace another process, or change its own limits.
"""

from __future__ import annotations

import os
import platform
import resource
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

MEMORY_BYTES = 512 * 1024 * 1024
OUTPUT_BYTES = 1024 * 1024
"""Standard output and error together; they are the only files that can grow."""
OPEN_FILES = 32
STACK_BYTES = 16 * 1024 * 1024

_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "access": (21, None),
    "brk": (12, 214),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "close": (3, 57),
    "dup": (32, 23),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "fstat": (5, 80),
    "futex": (202, 98),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "getegid": (108, 177),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "getuid": (102, 174),
    "lseek": (8, 62),
    "lstat": (6, None),
    "madvise": (28, 233),
    "membarrier": (324, 283),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "pread64": (17, 67),
    "read": (0, 63),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "readv": (19, 65),
    "restart_syscall": (219, 128),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "sigaltstack": (131, 132),
    "stat": (4, None),
    "statx": (332, 291),
    "sysinfo": (99, 179),
    "time": (201, None),
    "times": (100, 153),
    "uname": (63, 160),
    "write": (1, 64),
    "writev": (20, 66),
}
"""System call numbers on x86-64 and arm64; None where the architecture has no such call."""

_OPEN = (2, None)
_OPENAT = (257, 56)
_FCNTL = (72, 25)
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | 0o20000000
"""The last bit makes a nameless temporary file (O_TMPFILE without its O_DIRECTORY part)."""
_LAST_HARMLESS_FCNTL = 3
"""F_DUPFD, F_GETFD, F_SETFD and F_GETFL. Beyond them F_SETOWN and F_SETSIG let the kernel kill any
process of the same user when a pipe becomes ready."""

_LOAD, _IF_EQUAL, _IF_GREATER, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_KILL_PROCESS, _REFUSE, _ALLOW = 0x80000000, 0x00050001, 0x7FFF0000
"""Filter verdicts; the low half of a refusal is the errno, here EPERM."""
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_ARGUMENTS = 0, 4, 16


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor whose system calls this module knows."""

    column: int
    audit_code: int
    seccomp_call: int


ARCHITECTURES = {
    "x86_64": Processor(column=0, audit_code=0xC000003E, seccomp_call=317),
    "aarch64": Processor(column=1, audit_code=0xC00000B7, seccomp_call=277),
}


def architecture() -> Processor | None:
    """This machine's entry, or None where the sandbox cannot work."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    return ARCHITECTURES.get(platform.machine())


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, operand)


def _allow_unless(number: int, argument: int, test: int, operand: int) -> bytes:
    """Allow one call, but refuse it when the test holds for its argument's low 32 bits."""
    return b"".join(
        (
            _instruction(_IF_EQUAL, number, 0, 4),
            _instruction(_LOAD, _OFFSET_ARGUMENTS + 8 * argument),
            _instruction(test, operand, 1, 0),
            _instruction(_RETURN, _ALLOW),
            _instruction(_RETURN, _REFUSE),
        )
    )


def filter_program(machine: Processor) -> bytes:
    """The seccomp filter as classic BPF (``struct sock_filter``, 8 bytes an instruction).

    Calls from another instruction set (32-bit calls on a 64-bit machine) kill the process; x32
    calls carry a high bit and so match nothing on the list.
    """
    parts = [
        _instruction(_LOAD, _OFFSET_ARCHITECTURE),
        _instruction(_IF_EQUAL, machine.audit_code, 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _OFFSET_NUMBER),
    ]
    for numbers in _ALLOWED.values():
        number = numbers[machine.column]
        if number is not None:
            parts.append(_instruction(_IF_EQUAL, number, 0, 1) + _instruction(_RETURN, _ALLOW))
    for numbers, argument, test, operand in (
        (_OPEN, 1, _IF_ANY_BIT, _WRITING_FLAGS),
        (_OPENAT, 2, _IF_ANY_BIT, _WRITING_FLAGS),
        (_FCNTL, 1, _IF_GREATER, _LAST_HARMLESS_FCNTL),
    ):
        number = numbers[machine.column]
        if number is not None:
            parts.append(_allow_unless(number, argument, test, operand))
    parts.append(_instruction(_RETURN, _REFUSE))
    return b"".join(parts)


def limits(timeout_s: float) -> list[tuple[int, int]]:
    """Resource limits as (resource, value) pairs, soft and hard alike."""
    return [
        (resource.RLIMIT_CPU, int(timeout_s) + 2),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, OUTPUT_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_STACK, STACK_BYTES),
    ]


def readable_paths() -> list[str]:
    """What may be read where the kernel has Landlock: the standard library and its parts."""
    candidates = [Path(os.__file__).resolve().parent, Path(sys.base_prefix).resolve() / "lib"]
    candidates += map(Path, ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"))
    candidates += map(Path, ("/usr/share/zoneinfo", "/etc/localtime", "/etc/ld.so.cache"))
    candidates += map(Path, ("/dev/null", "/dev/urandom"))
    return [str(path) for path in dict.fromkeys(candidates) if path.exists()]
