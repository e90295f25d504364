"""Another version of this code, as what an engine's process runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """A checkout whose engines can stand beside this one's."""

    root: Path
    """Where its packages lie."""
    python: str
    """The interpreter that runs it."""
    path: tuple[str, ...]
    """What it imports from; `root` comes first."""

    def variables(self) -> Mapping[str, str]:
        """The environment of its processes: what an engine starts by itself has to be of this
        version, too."""
        return {**os.environ, "PYTHONPATH": str(self.root)}
