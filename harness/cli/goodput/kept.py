"""What a search has found so far, on disk before each probe begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.files import write_atomic
from results.goodput.stored import ANSWER, read_searches


class KeptAnswer:
    """Writes goodput.json. A search that is broken off leaves trials behind, which nobody may take
    for those of a sweep: the file names them before they run, those of earlier searches too.

    Args:
        folder: of the run.
        about: the settings of the search, first in the file.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        before = read_searches(folder)
        self._path = folder / ANSWER
        self._about = dict(about)
        self._trials = set(before.trials) if before else set()
        self._systems: list[dict[str, Any]] = []
        self._own: list[str] = []

    def began(self, key: str) -> None:
        """The probe of this key is about to run. Raises `UserError`."""
        self._own.append(key)
        if key not in self._trials:
            self._trials.add(key)
            self._write()

    def ended(self, system: Mapping[str, Any]) -> None:
        """What came of the system that the last probes were of. Raises `UserError`."""
        self._systems.append({**system, "keys": self._own})
        self._own = []
        self._write()

    def plain(self) -> dict[str, Any]:
        """What the file has."""
        return {**self._about, "systems": self._systems, "trials": sorted(self._trials)}

    def _write(self) -> None:
        text = json.dumps(self.plain(), indent=1, allow_nan=False) + "\n"
        try:
            write_atomic(self._path, text.encode())
        except OSError as error:
            raise UserError(f"{self._path}: {error.strerror or error}") from None
