"""Searches answers for the regular expressions of a user's rows, of which one may never end: in a
bare interpreter, so that the kernel can end it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

LIMIT_S = 1.0
"""CPU seconds for each answer, which a busy machine does not shorten."""
MOST_OVERRUNS = 30
"""Answers beyond the limit after which the others are not searched, so that the rows of a file that
all have such a pattern take a minute at most."""
_SEARCH = """
import json, os, re, signal, sys
limit_s, pairs = json.load(sys.stdin)
signal.signal(signal.SIGPROF, signal.SIG_DFL)
for pattern, text in pairs:
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    found = re.search(pattern, text) is not None
    signal.setitimer(signal.ITIMER_PROF, 0)
    os.write(1, b"1" if found else b"0")
"""
_COMMAND = [sys.executable, "-I", "-S", "-B", "-c", _SEARCH]


def search_all(pairs: Sequence[tuple[str, str]]) -> list[bool | None]:
    """By (pattern, answer) whether `re.search` finds the pattern; None where it did not end within
    `LIMIT_S`, and of all that follow `MOST_OVERRUNS` of these."""
    found: list[bool | None] = []
    overruns = 0
    while len(found) < len(pairs) and overruns < MOST_OVERRUNS:
        job = json.dumps([LIMIT_S, pairs[len(found) :]]).encode()
        # the timer's signal ends the process inside of a search, and when we are gone too
        told = subprocess.run(_COMMAND, input=job, capture_output=True, check=False).stdout
        found += [letter == ord("1") for letter in told]
        if len(found) < len(pairs):
            found.append(None)
            overruns += 1
    return found + [None] * (len(pairs) - len(found))
