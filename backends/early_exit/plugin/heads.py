"""Trained exit heads on the loaded model: each folded once, whatever thresholds it is asked at."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from torch import Tensor

from backends.checkpoints.exit_heads import HeadFolder
from backends.early_exit.plugin.projection import Projection


class FoldedHeads:
    """Projections by layer, of one folder at a time: at 8B each is as large as the final head."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._made: dict[int, Projection] = {}

    def of(
        self,
        folder: Path,
        layers: Collection[int],
        opened: Callable[[], HeadFolder],
        final: Tensor,
    ) -> dict[int, Projection]:
        """Those after `layers` at least; the same objects for the same folder.

        Args:
            folder: of the heads. Those of another go before these come.
            layers: after which confidence is asked.
            opened: opens the folder, where some of its heads are missing here.
            final: (vocabulary, width), the model's own head.
        """
        missing = set(layers) if folder != self._folder else set(layers) - set(self._made)
        found = opened() if missing else None
        if folder != self._folder:
            self._folder = folder
            self._made.clear()
        if found is not None:
            for layer in sorted(missing):
                self._made[layer] = Projection(found.matrix(layer, final))
        return self._made
