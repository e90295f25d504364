"""What a search has found so far, on disk before each probe begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.files import write_atomic
from results.goodput.stored import ANSWER, begun


class KeptAnswer:
    """Writes goodput.json, or the file of this `name`. A search that is broken off leaves trials
    behind, which nobody may take for cells of the experiment: the file names them before they run,
    those of earlier searches too. What an earlier search found stays until this one has found
    something.

    Args:
        folder: of the run.
        about: the settings of the search, first in the file.
        name: of the file.
        only: the backend that is looked at, whose systems alone are new; None: all.

    Raises `UserError` where others were looked at with other settings, since one file has one set
    of them.
    """

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, Any],
        name: str = ANSWER,
        only: str | None = None,
    ) -> None:
        self._path = folder / name
        self._about = dict(about)
        self._trials = set(begun(self._path))
        self._systems: list[dict[str, Any]] = []
        self._before = json.loads(self._path.read_bytes()) if self._trials else None
        if only is not None and self._before is not None:
            systems = self._before.get("systems", ())
            self._systems = [one for one in systems if one.get("backend") != only]
            if self._systems:
                self._check(self._before, only)
        self._own: list[str] = []

    def _check(self, before: Mapping[str, Any], only: str) -> None:
        for name, value in self._about.items():
            if (was := before.get(name, value)) != value:
                raise UserError(
                    f"{self._path}: others than '{only}' were searched with {name} "
                    f"{json.dumps(was)}; expected the same with --only, found {json.dumps(value)}"
                )

    def began(self, key: str) -> None:
        """The probe of this key is about to run. Raises `UserError`."""
        self._own.append(key)
        if key not in self._trials:
            self._trials.add(key)
            self._write()

    def ended(self, system: Mapping[str, Any]) -> None:
        """What came of the system that the last probes were of. Raises `UserError`."""
        self._systems.append({**system, "keys": self._own})
        self._own, self._before = [], None
        self._write()

    def plain(self) -> dict[str, Any]:
        """What the file has once a system has ended."""
        return {**self._about, "systems": self._systems, "trials": sorted(self._trials)}

    def _write(self) -> None:
        content = self.plain()
        if self._before is not None and self._before.get("systems"):
            content = {**self._before, "trials": content["trials"]}
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        try:
            write_atomic(self._path, text.encode())
        except OSError as error:
            raise UserError(f"{self._path}: {error.strerror or error}") from None
