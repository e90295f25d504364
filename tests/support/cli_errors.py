"""What commands say on standard error, without what depends on who else uses the machine."""

from __future__ import annotations

BUSY = ("warning: this machine is busy:", "trial was disturbed;", "trials were disturbed;")


def own_errors(errors: str) -> str:
    """The lines that are about the command, not about other processes' use of the machine."""
    lines = errors.splitlines(keepends=True)
    return "".join(line for line in lines if not any(words in line for words in BUSY))
