"""Tables on terminals of every kind."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

PROGRAM = """
from harness import display
table = display._table()
for _ in range(4):
    table.add_column("column", no_wrap=True, min_width=30)
table.add_row("first", "second", "third", "123456")
display._print(table)
"""


def on_terminal(**environment: str) -> str:
    """What the program writes to a terminal that has told no size."""
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
    )
    os.close(terminal)
    text = b""
    while True:
        try:
            read = os.read(main, 65536)
        except OSError:  # the other end is closed
            read = b""
        if not read:
            break
        text += read
    os.close(main)
    assert process.wait() == 0, text.decode()
    return text.decode()


@pytest.mark.parametrize(
    "environment",
    [{}, {"TERM": "dumb"}, {"TERM": "dumb", "COLUMNS": "20"}, {"TERM": "xterm", "COLUMNS": "20"}],
    ids=str,
)
def test_no_terminal_cuts_a_number_off(environment: dict[str, str]) -> None:
    assert "123456" in on_terminal(**environment)
