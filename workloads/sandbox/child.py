"""The inside of the sandbox: one half of a program's trial, locked in.

`workloads.sandbox.runner` runs this in two bare interpreters: in one for the program, which is not
trusted, and in one for its tests, which are. The two share a socket and nothing else.
The tests run in the checking process alone, where no line of the program ever runs: what they
compare are plain values that its functions returned. So a program cannot reach the values that are
expected of it, nor the code that compares them, nor the verdict; it can only answer calls.

The checking process reports on standard output: ``R`` and its program's protections, a line; then
``P`` when the tests came to their end, ``F`` and a reason when they or the program raised, ``T``
and a reason when the tests, or what they build on, cannot run whatever the program does, or ``E``
when the program ended. ``X`` and a reason: not locked in.
"""

from __future__ import annotations

import builtins
import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from workloads.sandbox.calls import Peer
    from workloads.sandbox.lock import lock_in
else:
    from sandbox_calls import Peer
    from sandbox_lock import lock_in

globals()["__builtins__"] = {**vars(builtins)}
"""As in `sandbox_values`."""

_LOOK_UP = 0
"""The number of the first function that the program's side exports: `look_up`."""
_REASON_BYTES = 300
_TESTS = "<tests>"


def _program(job: dict[str, Any], leave: Callable[[int], NoReturn] = os._exit) -> NoReturn:
    """Run the program, then answer calls of its functions until the tests are over."""

    def broken(_: str) -> NoReturn:
        leave(0)

    peer = Peer(job["channel"], broken)
    module = types.ModuleType("candidate")

    def look_up(*names: str) -> dict[str, object]:
        missing = [name for name in names if name not in module.__dict__]
        if missing:
            raise NameError(f"name '{missing[0]}' is not defined")
        return {name: module.__dict__[name] for name in names}

    peer.export(look_up)
    try:
        protections = lock_in(job)
    except OSError as error:
        peer.send("return", "X", str(error))
        leave(2)
    peer.send("return", "R", protections.decode())
    try:
        _run(job["source"], "<program>", module)
    except BaseException as error:
        peer.send_raised(error)
    else:
        peer.send("return", "ran")
    peer.serve()


def _check(
    job: dict[str, Any], report: int, leave: Callable[[int], NoReturn] = os._exit
) -> NoReturn:
    """Run the tests on the program's functions, and report how that ended."""

    def tell(kind: str, text: str = "") -> NoReturn:
        os.write(report, (kind + text).encode(errors="replace")[:_REASON_BYTES])
        leave(0)

    peer = Peer(job["channel"], lambda what: tell("E", what))
    try:
        lock_in(job)
    except OSError as error:
        tell("X", str(error))
    kind, text = peer.wait(2)
    if kind != "R":
        tell("X", str(text))
    os.write(report, f"R{text}\n".encode())
    module = types.ModuleType("tests")
    try:
        _run(job["given"], "<given>", module)
    except BaseException as error:
        tell("T", _line(error))
    values: dict[str, object] = {}
    calls = 0
    try:
        peer.wait(1)
        asked = job["names"]
        found = peer.call(_LOOK_UP, asked, {}) if asked else {}
        values = {name: found[name] for name in asked}  # type: ignore[index]
        module.__dict__.update(values)
        calls = peer.calls
        _run(job["tests"], _TESTS, module)
    except BaseException as error:
        uncalled = any(map(callable, values.values())) and peer.calls == calls
        unusable = uncalled or isinstance(error, ImportError) or _is_of_tests(error)
        tell("T" if unusable and error is not peer.last_raised else "F", _line(error))
    if any(map(callable, values.values())) and peer.calls == calls:
        tell("F", "RuntimeError: the tests called nothing of the program")
    tell("P")


def _line(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return type(error).__name__ + (f": {text}" if text else "")


def _is_of_tests(error: BaseException) -> bool:
    """Whether it says that the text of the tests is no Python."""
    return isinstance(error, SyntaxError) and error.filename == _TESTS


def _run(source: str, name: str, module: types.ModuleType) -> None:
    """Run source text in a module that is also ``__main__``, with built-ins of its own."""
    if "random" in source:
        import random

        random.seed(0)
    module.__dict__["__builtins__"] = builtins
    sys.modules[module.__name__] = sys.modules["__main__"] = module
    exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)


def _replace_standard_streams() -> None:
    """Nothing to read, and what is printed goes nowhere: printing much is no wrong answer."""
    handle = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(handle, target)
    os.close(handle)


def main(job: dict[str, Any]) -> NoReturn:
    """Be the program's process or the tests', as the job says."""
    report = os.dup(1)
    _replace_standard_streams()
    if "source" not in job:
        _check(job, report)
    os.close(report)
    _program(job)
