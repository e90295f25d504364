"""Wrong programs that return lies, speak out of turn or leave: name -> (program, tests)."""

from __future__ import annotations

from tests.support.answers.forging_interpreters import CHECK, NEAR, WRONG

RAISING = """
try:
    f(3)
except Exception:
    pass
else:
    assert False
"""

LIARS = {
    "equals everything": (
        """
class Liar:
    __eq__ = lambda *_: True
    __ne__ = __lt__ = __gt__ = lambda *_: False
    __hash__ = lambda _: 0
def f(x): return Liar()""",
        CHECK,
    ),
    "number that equals everything": (
        """
class Liar(int):
    __eq__ = __le__ = __ge__ = __lt__ = __gt__ = lambda *_: True
    __sub__ = __rsub__ = __abs__ = lambda self, *_: self
    __hash__ = int.__hash__
def f(x): return Liar(7)""",
        "assert f(3) == 42 and abs(f(3) - 42) < 1e-6",
    ),
    "float": (
        """
class Liar(float):
    def __sub__(self, _): return 0.0
def f(x): return Liar(7)""",
        NEAR,
    ),
    "text": (
        """
class Liar(str):
    __eq__ = lambda *_: True
    __ne__ = lambda *_: False
    __hash__ = lambda _: hash('b')
def f(x): return Liar('a')""",
        "assert f(3) == 'b'",
    ),
    "bytes": (
        "class Liar(bytes):\n    __eq__ = lambda *_: True\ndef f(x): return Liar(b'a')",
        "assert f(3) == b'b'",
    ),
    "list": (
        """
class Liar(list):
    __eq__ = lambda *_: True
    __iter__ = lambda _: iter([1, 3])
    __len__ = lambda _: 2
def f(x): return Liar()""",
        "assert f(3) == [1, 3]",
    ),
    "pair": (
        "class Liar(tuple):\n    __eq__ = lambda *_: True\ndef f(x): return Liar((1,))",
        "assert f(3) == (1, 3)",
    ),
    "dictionary": (
        """
class Liar(dict):
    __eq__ = lambda *_: True
    __missing__ = lambda *_: 42
def f(x): return Liar()""",
        "assert f(3) == {'a': 42}",
    ),
    "set": (
        "class Liar(set):\n    __eq__ = lambda *_: True\ndef f(x): return Liar()",
        "assert f(3) == {1}",
    ),
    "liars in a list": (
        "class Liar:\n    __eq__ = lambda *_: True\ndef f(x): return [Liar(), Liar()]",
        "assert f(3) == [1, 3]",
    ),
    "exception that is equal": (
        """
class Liar(Exception):
    __eq__ = lambda *_: True
def f(x): return Liar""",
        CHECK,
    ),
    "text by its class": (
        """
class Liar:
    __class__ = int
    __eq__ = lambda *_: True
def f(x): return Liar()""",
        "assert isinstance(f(3), int) and f(3) == 42",
    ),
    "true in place of equal": (
        """
class Liar:
    __eq__ = lambda *_: 1
    __bool__ = lambda _: True
def f(x): return Liar()""",
        "assert f(3) and f(3) == True",
    ),
    "generator": ("def f(x):\n    yield 42", "assert f(3) == 42 or f(3) == [42]"),
}

CHANNEL = {
    "answers ahead of the question": (
        """
import os, sys
values = sys.modules.get('sandbox_values')
if values:
    for message in (('return', 'ran'), ('return', {'f': 42}, []), ('return', True, [])) * 9:
        body = values.encode(message, lambda _: 0)
        for handle in range(3, 32):
            try:
                os.write(handle, len(body).to_bytes(4, 'little') + body)
            except OSError:
                pass"""
        + WRONG,
        CHECK,
    ),
    "the checker's own report": (
        """
import os
for handle in range(1, 32):
    for report in (b'P', b'RNL\\nP', b'R1' + bytes(32)):
        try:
            os.write(handle, report)
        except OSError:
            pass
os._exit(0)""",
        CHECK,
    ),
    "half a message": (
        """
import os
def f(x):
    for handle in range(3, 32):
        try:
            os.write(handle, b'\\xff\\0\\0\\0')
        except OSError:
            pass
    os._exit(0)""",
        RAISING,
    ),
    "endless message": (
        """
import os
def f(x):
    while True:
        for handle in range(3, 32):
            try:
                os.write(handle, b'\\xff' * 4096)
            except OSError:
                pass""",
        RAISING,
    ),
    "nested too deeply": (
        """
import os
def f(x):
    body = b'L\\x01\\0\\0\\0' * 10**6
    for handle in range(3, 32):
        try:
            os.write(handle, len(body).to_bytes(4, 'little') + body)
        except OSError:
            pass
    os._exit(0)""",
        RAISING,
    ),
    "calls the tests' side": (
        """
import sys
def f(x):
    frame = sys._getframe()
    while frame:
        peer = frame.f_locals.get('self')
        if type(peer).__name__ == 'Peer':
            return [peer.call(number, (), {}) for number in range(-3, 4)]
        frame = frame.f_back""",
        "import os\nassert f(3) == 42",
    ),
    "ends where an exception is right": ("import os\ndef f(x): os._exit(0)", RAISING),
    "kills itself where an exception is right": ("import os\ndef f(x): os.abort()", RAISING),
    "changes what its arguments are": (
        "def f(x):\n    x[:] = [1, 3]\n    return None",
        "given = [3, 1]\nassert f(given) == [1, 3]",
    ),
}

LEAVING = {
    "leaves at once": ("import os; os._exit(0)", CHECK),
    "leaves when called": ("import os\ndef f(x): os._exit(0)", CHECK),
    "exits": ("import sys; sys.exit(0)", CHECK),
    "exits when called": ("def f(x): raise SystemExit(0)", CHECK),
    "exits at the end": (
        "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): exit()",
        CHECK,
    ),
    "ends its thread": ("import _thread; _thread.exit()", CHECK),
    "prints": ("print('P', flush=True); import os; os._exit(0)", CHECK),
    "raises what looks like a pass": (
        "class P(BaseException):\n    def __str__(self): return 'P'\nraise P",
        CHECK,
    ),
    "closes every descriptor": ("import os; os.closerange(0, 32)" + WRONG, CHECK),
    "patches the writer": ("import os; os.write = print; os._exit(0)", CHECK),
    "starts a thread": (
        """
try:
    import _thread
    _thread.start_new_thread(print, ())
except RuntimeError:
    pass"""
        + WRONG,
        CHECK,
    ),
    "handles signals": (
        """
import signal
for number in range(1, 32):
    try:
        signal.signal(number, lambda *_: None)
    except (OSError, ValueError):
        pass
try:
    signal.setitimer(signal.ITIMER_REAL, 0.001)
except OSError:
    pass"""
        + WRONG,
        CHECK,
    ),
    "never answers": ("def f(x):\n    while True: pass", CHECK),
}

TEXT = {
    "swallows the tests in a string": ("def f(x):\n    return 0\n'''", CHECK),
    "swallows the tests in a bracket": ("def f(x):\n    return 0\n(", CHECK),
    "redefines check": ("def check(f): pass" + WRONG, CHECK),
    "declares another encoding": ("# -*- coding: utf-7 -*-" + WRONG, CHECK),
    "optimizes": ("__debug__" + WRONG, CHECK),
    "defines no function": ("g = 1", CHECK),
    "defines a value": ("f = 42", CHECK),
}
