"""A child that talks over a pipe. It is started without `multiprocessing`: that would import the
command line's main module, and leave pipe ends open in processes that must see them end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from {module} import main; main(*map(int, sys.argv[1:]))"
)


def start_child(
    module: str,
    fds: Sequence[int] = (),
    numbers: Sequence[int] = (),
    *,
    python: str = sys.executable,
    path: Sequence[str] | None = None,
    **popen: Any,
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Run ``main`` of a module in a process of its own.

    Args:
        module: its dotted name.
        fds: file descriptors that the child inherits, besides its end of the pipe.
        numbers: more arguments; `main` is given its end's descriptor, `fds` and these.
        python: the interpreter.
        path: its ``sys.path``; None: the one of this process.
        popen: as for `subprocess.Popen`; standard input is empty.

    Returns:
        The process, and this one's end of the pipe.
    """
    ours, theirs = Pipe()
    inherited = (theirs.fileno(), *fds)
    arguments = [*map(str, (*inherited, *numbers)), json.dumps(list(path or sys.path))]
    process = subprocess.Popen(
        [python, "-c", BOOT.format(module=module), *arguments],
        stdin=subprocess.DEVNULL,
        pass_fds=inherited,
        **popen,
    )
    theirs.close()
    return process, ours
