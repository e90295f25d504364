"""The verdict comes from the tests' end alone, whatever the program says or does."""

from __future__ import annotations

import pytest

from workloads.sandbox import run_program

FORGERIES = {
    "leaves at once": "import os; os._exit(0)",
    "exits": "import sys; sys.exit(0)",
    "raises SystemExit": "raise SystemExit",
    "ends its thread": "import _thread; _thread.exit()",
    "prints": "print('passed', flush=True); import os; os._exit(0)",
    "writes to every descriptor": """
import os
for handle in range(1, 32):
    try:
        os.write(handle, b'R1' + bytes(32))
    except OSError:
        pass
os._exit(0)""",
    "closes the report and leaves": "import os; os.closerange(3, 32); os._exit(0)",
    "floods the report": """
import os
while True:
    for handle in range(3, 32):
        try:
            os.write(handle, b'x' * 4096)
        except OSError:
            pass""",
    "patches the writer and leaves": "import os; os.write = print; os._exit(0)",
    "swallows the tests in a string": "def f():\n    return 0\n'''",
    "swallows the tests in a bracket": "def f():\n    return 0\n(",
    "redefines check": "def check(f): pass\ndef f(): return 0",
    "main thread's frames": """
import sys
frame = sys._getframe()
while frame.f_back:
    frame = frame.f_back
if not any(isinstance(v, bytes) and len(v) == 32 for v in frame.f_locals.values()):
    raise LookupError""",
    "a thief in the garbage collector": """
import gc, os, sys
def steal(phase, info):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, bytes) and len(value) == 32:
                for handle in range(3, 32):
                    try:
                        os.write(handle, value)
                    except OSError:
                        pass
                os._exit(0)
        frame = frame.f_back
gc.set_threshold(1)
gc.callbacks.append(steal)
def f():
    while True: x = [[]]""",
}


@pytest.mark.parametrize("program", FORGERIES.values(), ids=FORGERIES.keys())
def test_verdict_is_not_forged(program: str) -> None:
    tests = "def check(f):\n    assert f() == 1\ncheck(f)"
    assert not run_program(program, tests).passed
