from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.core.errors import UserError
from tests.support.answers.processes import is_locked_in, processes_in, wait_until
from workloads.sandbox import policy as sandbox_policy
from workloads.sandbox import runner as sandbox
from workloads.sandbox.probe import support
from workloads.sandbox.runner import SandboxResult, UntrustedProgram, run_programs

ROOT = Path(__file__).resolve().parents[4]


def run_program(source: str, tests: str = "", *names: str, timeout_s: float = 60) -> SandboxResult:
    return sandbox.run_program(UntrustedProgram(source, tests, names), timeout_s=timeout_s)


REFUSED = {
    "fork": "import os; os.fork()",
    "vfork": "import subprocess; subprocess.run(['/bin/true'])",
    "spawn": "import os; os.posix_spawn('/bin/true', ['true'], {})",
    "exec": "import os; os.execv('/bin/true', ['true'])",
    "thread": "import threading; threading.Thread(target=print).start()",
    "new session": "import os; os.setsid()",
    "new process group": "import os; os.setpgid(0, 0)",
    "socket": "import socket; socket.socket()",
    "socket pair": "import socket; socket.socketpair()",
    "write in its directory": "open('note.txt', 'w')",
    "write by descriptor": "import os; os.open('note.txt', os.O_CREAT | os.O_RDWR)",
    "nameless file": "import os; os.open('.', os.O_TMPFILE | os.O_RDWR)",
    "append elsewhere": f"open({__file__!r}, 'a')",
    "remove": f"import os; os.remove({__file__!r})",
    "rename": f"import os; os.rename({__file__!r}, 'x')",
    "make a directory": "import os; os.mkdir('d')",
    "change a mode": f"import os; os.chmod({__file__!r}, 0o600)",
    "kill the parent": "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
    "kill by pidfd": "import os; os.pidfd_open(os.getppid())",
    "signal by pipe": "import fcntl, os; fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
    "raise its limits": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
    "be another user": "import os; os.setuid(65534)",
    "share memory": "import os; os.memfd_create('x')",
}


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED.keys())
def test_way_out_is_refused_and_nothing_else_is_wrong(program: str) -> None:
    source = f"said = ''\ntry:\n    {program}\nexcept Exception as error:\n    said = str(error)"
    words = ("not permitted", "not allowed", "can't start new thread")
    assert (
        run_program(source, f"assert any(w in said for w in {words!r}), said", "said").reason == ""
    )
    assert not run_program(program).passed


CRASHES = {
    "wrong": ("x = 1", "AssertionError"),
    "loops": ("while True: pass", "time limit"),
    "sleeps": ("import time; time.sleep(60)", "time limit"),
    "fills memory": ("x = []\nwhile True: x.append(' ' * 10**6)", "MemoryError"),
    "one huge object": ("x = bytearray(10**11)", "MemoryError"),
    "prints for ever": (
        "import sys\nwhile True: print('x' * 999, file=sys.stderr)",
        "time limit",
    ),
    "recurses for ever": ("def f(): return f()\nf()", "RecursionError"),
    "aborts": ("import os; os.abort()", "killed by"),
    "nests too deeply": ("(" * 10**5, "SyntaxError"),
    "holds a null byte": ("\0", "null bytes"),
    "holds half a surrogate pair": ("x = '\ud800'", "UnicodeEncodeError"),
    "is not Python": ("I cannot do that.", "SyntaxError"),
    "reads the program's own files": (f"open({__file__!r}).read()", "Permission denied"),
    "reads process memory": ("open('/proc/self/mem', 'rb').read()", "Permission denied"),
    "has an evil message": ("raise ValueError('\\x1b[2J' + 'x' * 10**6)", "ValueError"),
    "has a message that fails": (
        "class E(Exception):\n    def __str__(self): raise E\nraise E",
        "E",
    ),
}


@pytest.mark.parametrize(("program", "reason"), CRASHES.values(), ids=CRASHES.keys())
def test_failure_is_contained_and_named(program: str, reason: str) -> None:
    if "Permission denied" in reason and not support().confines_reads:
        pytest.skip("this kernel has no Landlock")
    result = run_program(program, "assert x == 2", "x", timeout_s=2 if "limit" in reason else 60)
    assert not result.passed
    assert reason in result.reason
    assert result.reason.isprintable()
    assert len(result.reason) <= 300


def test_segfault_by_deep_recursion_in_c_is_contained() -> None:
    program = "import sys; sys.setrecursionlimit(10**9)\nx = []\nwhile True: x = [x]; repr(x)"
    assert not run_program(program, timeout_s=2).passed


def test_right_program_passes_with_the_standard_library() -> None:
    program = """
import bisect, collections, copy, dataclasses, datetime, decimal, enum, fractions, functools
import hashlib, heapq, inspect, itertools, json, math, random, re, statistics, string, typing

@dataclasses.dataclass
class Point:
    x: "int"

if __name__ == "__main__":
    raise ValueError("run as a script")

def f() -> str:
    for _ in range(3):
        print("debugging output is harmless, much of it too" * 50_000)
    return hashlib.md5(b"a").hexdigest()[: Point(3).x]
"""
    assert run_program(program, "assert f() == '0cc'", "f").reason == ""


def test_environment_files_and_streams_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    program = """
import os, sys
assert set(os.environ) <= {"PYTHONHASHSEED", "LC_ALL"}, set(os.environ)
assert os.listdir(".") == []
assert sys.stdin.read() == ""
assert sys.argv[1:] == []
def is_open(handle):
    try:
        os.fstat(handle)
    except OSError:
        return False
    return True
assert sum(map(is_open, range(3, 200))) == 1
"""
    with Path(__file__).open() as kept_open:
        os.set_inheritable(kept_open.fileno(), True)
        assert run_program(program).reason == ""


def test_verdicts_are_reproducible() -> None:
    program = "import random\nx = (hash('a'), random.random(), list({'a', 'b', 'c', 'd', 'e'}))"
    failures = {run_program(program, "raise ValueError(x)", "x").reason for _ in range(3)}
    assert len(failures) == 1
    assert next(iter(failures)).startswith("ValueError")


DAEMON = """
import os
try:
    if os.fork() == 0:
        os.setsid()
        os.fork()
except OSError:
    pass
while True:
    pass
"""


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert "time limit" in run_program(DAEMON, timeout_s=1).reason
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_program_dies_with_us(tmp_path: Path) -> None:
    code = (
        "from workloads.sandbox.runner import UntrustedProgram, run_program\n"
        f"run_program(UntrustedProgram({DAEMON!r}, ''), timeout_s=120)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment) as parent:
        assert wait_until(lambda: any(map(is_locked_in, processes_in(tmp_path))))
        parent.send_signal(signal.SIGKILL)
    assert wait_until(lambda: processes_in(tmp_path) == [])


def test_many_programs_keep_their_order() -> None:
    programs = [UntrustedProgram(f"x = {n}", f"assert x % 3 == 0, {n}", ("x",)) for n in range(20)]
    results = run_programs(programs)
    assert [r.passed for r in results] == [n % 3 == 0 for n in range(20)]
    assert results[7].reason == "AssertionError: 7"


def test_holds_an_ordinary_user_too() -> None:
    """Root escapes process limits and file modes, so the rest of this file is not enough."""
    if os.getuid() != 0:
        pytest.skip("not root: the other tests already ran as an ordinary user")
    python = "/usr/bin/python3"
    code = (
        "from workloads.sandbox.runner import UntrustedProgram, run_program\n"
        "from workloads.sandbox.probe import support\n"
        "assert support().problem is None, support()\n"
        "assert run_program(UntrustedProgram('x = 1', 'assert x', ('x',))).passed\n"
        f"for source in {list(REFUSED.values())!r}:\n"
        "    assert not run_program(UntrustedProgram(source, '')).passed, source\n"
    )
    probe = [python, "-B", "-c", "import sys, harness.core; assert sys.version_info >= (3, 11)"]
    drop = {"user": "nobody", "group": "nogroup", "extra_groups": [], "cwd": ROOT}
    if not Path(python).exists() or subprocess.run(probe, **drop, capture_output=True).returncode:  # type: ignore[call-overload]
        pytest.skip("no Python from 3.11 on that user 'nobody' can start here")
    done = subprocess.run([python, "-B", "-c", code], **drop, capture_output=True, text=True)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr


def test_machine_without_a_filter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_policy, "architecture", lambda: None)
    with pytest.raises(UserError, match="64-bit Linux"):
        run_program("x = 1")
    problem = support().problem
    assert problem is not None
    assert "64-bit Linux" in problem


def test_kernel_that_refuses_the_filter_runs_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = sandbox_policy.Processor(column=0, audit_code=0xC000003E, seccomp_call=9999)
    monkeypatch.setattr(sandbox_policy, "architecture", lambda: broken)
    with pytest.raises(UserError, match=r"could not lock a program in.*system call 9999"):
        run_program("print('ran')")


def test_call_numbers_are_unique_and_the_program_is_well_formed() -> None:
    for machine in sandbox_policy.ARCHITECTURES.values():
        numbers = [pair[machine.column] for pair in sandbox_policy._ALLOWED.values()]
        present = [n for n in numbers if n is not None]
        assert len(present) == len(set(present))
        assert len(sandbox_policy.filter_program(machine)) % 8 == 0
