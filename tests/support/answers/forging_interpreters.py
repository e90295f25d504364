"""Wrong programs that spoil the interpreter to be scored as right: name -> (program, tests)."""

from __future__ import annotations

CHECK = """
def check(candidate):
    assert candidate(3) == 42
    assert candidate(4) == [1, 'a']
check(f)
"""
NEAR = "def check(candidate):\n    assert abs(candidate(3) - 42.5) < 1e-6\ncheck(f)"
IN_A_LOOP = (
    "def check(candidate):\n    for n in range(3):\n        assert candidate(n) == n + 40\ncheck(f)"
)
AS_TUPLE = "assert tuple(f([3, 1])) == tuple([1, 3])"
IMPORTING = "import math, random\nassert math.fabs(f(random.randint(5, 9)) - 42) < 1e-6"
WRONG = "\ndef f(x):\n    return None\n"

SABOTAGE = {
    "guard that takes exec and its kin away": (
        """
import builtins
def gone(*_, **__): return None
for name in ("exec", "eval", "compile", "open", "print", "input"):
    setattr(builtins, name, gone)"""
        + WRONG,
        CHECK,
    ),
    "exec alone": ("import builtins\nbuiltins.exec = lambda *_: None" + WRONG, CHECK),
    "every built-in": (
        """
import builtins
def f(x):
    for name in dir(builtins):
        if name.islower():
            setattr(builtins, name, lambda *_, **__: 0)""",
        NEAR,
    ),
    "abs": ("import builtins\nbuiltins.abs = lambda _: 0\ndef f(x): return 0", NEAR),
    "range": ("import builtins\nbuiltins.range = lambda *_: ()" + WRONG, IN_A_LOOP),
    "the type tuple": ("import builtins\nbuiltins.tuple = lambda *_: 0" + WRONG, AS_TUPLE),
    "built-ins of its module": (
        "__builtins__ = {**vars(__import__('builtins')), 'range': lambda *_: ()}" + WRONG,
        IN_A_LOOP,
    ),
    "a name that the tests' module finds first": ("def range(*_): return ()" + WRONG, IN_A_LOOP),
    "len, isinstance, AssertionError": (
        """
import builtins
builtins.len = builtins.isinstance = lambda *_: 1
builtins.AssertionError = builtins.Exception = builtins.BaseException = ()
builtins.hash = builtins.all = builtins.any = builtins.sorted = lambda *_, **__: 1"""
        + WRONG,
        "assert sorted(f(3)) == sorted([1, 2])",
    ),
    "math and random": (
        """
import math, random
math.fabs = lambda _: 0
random.randint = lambda *_: 0
def f(x): return 0""",
        IMPORTING,
    ),
    "modules replaced": (
        """
import sys
class Fake:
    def __getattr__(self, name): return lambda *_: 0
sys.modules["math"] = sys.modules["random"] = sys.modules["copy"] = Fake()
def f(x): return 0""",
        IMPORTING,
    ),
    "import itself": (
        """
import builtins
class Fake:
    def __getattr__(self, name): return lambda *_: 0
builtins.__import__ = lambda *_, **__: Fake()
def f(x): return 0""",
        IMPORTING,
    ),
    "import hooks": (
        """
import sys, types
class Finder:
    def find_spec(self, name, *_): raise SystemExit
sys.meta_path.insert(0, Finder())
sys.path_hooks.clear()"""
        + WRONG,
        CHECK,
    ),
    "ways out": (
        """
import atexit, os, sys
sys.exit = os._exit = os.abort = lambda *_: None
atexit.register(lambda: os.write(1, b'P'))
sys.excepthook = sys.unraisablehook = lambda *_: None"""
        + WRONG,
        CHECK,
    ),
    "unittest and typing": (
        """
import typing, unittest
unittest.TestCase.assertEqual = unittest.main = lambda *_: None
typing.List = typing.Any = None"""
        + WRONG,
        CHECK,
    ),
}

FRAMES = {
    "the caller's constants": (
        """
import sys
def f(x, calls=[]):
    calls.append(x)
    constants = sys._getframe(1).f_code.co_consts
    if len(calls) == 1:
        return next(c for c in constants if c == 42)
    return [1, 'a']""",
        "def check(candidate):\n    assert candidate(3) == 42\ncheck(f)",
    ),
    "the caller's globals": (
        "import sys\ndef f(x):\n    sys._getframe(1).f_globals['abs'] = lambda _: 0\n    return 0",
        NEAR,
    ),
    "inspect": (
        """
import inspect
def f(x):
    inspect.currentframe().f_back.f_builtins['abs'] = lambda _: 0
    return 0""",
        NEAR,
    ),
    "a traceback": (
        """
def f(x):
    try:
        raise ValueError
    except ValueError as error:
        error.__traceback__.tb_frame.f_back.f_globals['abs'] = lambda _: 0
    return 0""",
        NEAR,
    ),
    "the code of the runner": (
        """
import sys
frame = sys._getframe()
while frame:
    for name, value in list(frame.f_globals.items()):
        if hasattr(value, '__code__') and name != 'f':
            try:
                value.__code__ = (lambda *_, **__: None).__code__
            except (ValueError, TypeError):
                pass
    frame = frame.f_back"""
        + WRONG,
        CHECK,
    ),
    "every object": (
        """
import gc, os
def f(x):
    for found in gc.get_objects():
        if type(found).__name__ == 'Peer':
            found.send('return', 42, [])
            for handle in range(1, 32):
                try:
                    os.write(handle, b'P')
                except OSError:
                    pass
    return 42 if False else None""",
        CHECK,
    ),
    "tracing": (
        """
import sys, threading
def trace(frame, event, value):
    frame.f_globals['abs'] = lambda _: 0
    return trace
for watch in (sys.settrace, sys.setprofile, threading.settrace):
    try:
        watch(trace)
    except BaseException:
        pass
def f(x): return 0""",
        NEAR,
    ),
    "a garbage collector's callback": (
        """
import gc, sys
def look(phase, info):
    frame = sys._getframe()
    while frame:
        frame.f_globals['abs'] = lambda _: 0
        frame = frame.f_back
gc.set_threshold(1)
gc.callbacks.append(look)
def f(x): return [[] for _ in range(10**4)] and 0""",
        NEAR,
    ),
    "the audit hook": (
        """
import sys
audit = sys._getframe(1).f_globals.get('_audit')
if audit:
    audit.__defaults__ = (frozenset(), frozenset())
import gc, _thread
for lock in gc.get_objects():
    try:
        steps = gc.get_referents(lock)
    except BaseException:
        continue
    for step in steps:
        if type(step).__name__ == 'builtin_function_or_method' and step.__name__ == 'release':
            step()
import time
time.sleep(1)"""
        + WRONG,
        CHECK,
    ),
    "its own bytes by ctypes": (
        """
import ctypes
ctypes.memset(id(1) + 24, 2, 1)
def f(x): return 1""",
        "assert f(3) == 2",
    ),
}
