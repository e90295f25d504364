"""Locks the calling process in, for good: what `runner` lists, in the order that works.

`workloads.sandbox.child` calls it in a bare interpreter; it imports nothing of the project.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from stat import S_ISDIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_SIGKILL = 9
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_ALL_V1, _LANDLOCK_READ_FILE, _LANDLOCK_READ_TREE = 0x1FFF, 0b0101, 0b1101
_LANDLOCK_RULE_PATH_BENEATH = 1

_libc = ctypes.CDLL(None, use_errno=True)


def lock_in(job: dict[str, Any]) -> bytes:
    """Lock this process in; leaves it when its parent has gone.

    Returns:
        A letter for each protection that this machine need not have: ``N`` a network (and user)
        namespace of its own, ``L`` reads confined by Landlock.

    Raises:
        OSError: when a protection that every machine must have fails.
    """
    # a new user namespace and dropped capabilities undo the three settings that follow
    isolated = bool(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0)
    _drop_capabilities()
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != job["parent"]:
        os._exit(2)
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    confined = _confine_reads(job["readable"])
    os.close(os.open(os.__file__, os.O_RDONLY))  # root may have read it by a capability alone
    for which, value in job["limits"]:
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))
    _confine_calls(job["seccomp_call"], job["filter"])
    return b"N" * isolated + b"L" * confined


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


def _drop_capabilities() -> None:
    """Root must not read the memory of the checking process, nor files of other users."""
    header = ctypes.create_string_buffer(struct.pack("@Ii", _CAPABILITY_VERSION_3, 0), 8)
    if _libc.capset(header, ctypes.create_string_buffer(24)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"capset: {os.strerror(code)}")


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
