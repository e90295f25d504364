"""Where stages run: in processes of this machine, or elsewhere by the same few words."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any, Protocol

from harness.core.processes.piped import start_child


class StageChannel(Protocol):
    """What `multiprocessing.connection.Connection` is to a stage's process."""

    def fileno(self) -> int:
        """Readable once there is something to hear."""

    def send(self, message: Any, /) -> None:
        """Raises `OSError` when nobody will hear it."""

    def recv(self) -> Any:
        """Raises `EOFError` or `OSError` when nobody will answer."""

    def poll(self, timeout_s: float = 0.0, /) -> bool:
        """Whether `recv` has something to tell within so long."""

    def close(self) -> None:
        """The stage ends with it."""


class StageWorker(Protocol):
    """What runs a stage."""

    @property
    def pid(self) -> int:
        """Of its process, on the machine where it is."""

    def kill(self) -> None:
        """End it at once."""

    def ended(self, timeout_s: float) -> str | None:
        """How it ended, within so long; None: it has not."""


class StagePlace(Protocol):
    """Starts what runs stages."""

    def start(self, name: str) -> tuple[StageWorker, StageChannel]:
        """One for a stage's worker of that name, with this process's end of its channel; both may
        be had before it is there."""

    def has_come(self, channel: StageChannel) -> bool:
        """Whether a channel that is readable has something to hear: an answer, or its end."""

    def close(self) -> None:
        """No stage is left."""


class StageProcess:
    """A process of this machine."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def kill(self) -> None:
        """See `StageWorker`."""
        self._process.kill()

    def ended(self, timeout_s: float) -> str | None:
        """See `StageWorker`."""
        try:
            return f"ended with code {self._process.wait(timeout_s)}"
        except subprocess.TimeoutExpired:
            return None


class ProcessPlace:
    """Processes of this machine, each of which runs `main` of a module: it is given file
    descriptors, its channel's first.

    Args:
        module: its name.
        shared: more file descriptors that all of them are given.
    """

    def __init__(self, module: str, shared: Sequence[int] = ()) -> None:
        self._module, self._shared = module, shared

    def start(self, name: str) -> tuple[StageWorker, StageChannel]:
        """See `StagePlace`."""
        process, ours = start_child(self._module, self._shared)
        return StageProcess(process), ours

    def has_come(self, channel: StageChannel) -> bool:
        """See `StagePlace`."""
        return True

    def close(self) -> None:
        """See `StagePlace`."""
