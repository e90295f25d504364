"""How the rows of a call are sampled, and their choices: in C++ where it can be built, by Triton's
kernels where the logits are on a GPU."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backends.engine.sampling import TokenSampling, draw
from backends.kernels.cpu import native, native_checks

Int32 = NDArray[np.int32]
ROWS_AT_ONCE = 64
"""On a device, where a row takes 16 bytes a token beside its logits."""


class Draws:
    """Of n rows, in the form that the kernels read.

    Args:
        samplings: of each row, at temperatures above 0.
    """

    def __init__(self, samplings: Iterable[TokenSampling]) -> None:
        self.samplings = tuple(samplings)
        self._held = _columns(self.samplings)
        self._described = native.CDraws(*(column.ctypes.data for column in self._held))
        self.address = ctypes.addressof(self._described)
        """Where the kernels find it."""

    def __len__(self) -> int:
        return len(self.samplings)

    def of(self, rows: Sequence[int]) -> Draws:
        """Those of some of the rows."""
        return Draws(self.samplings[row] for row in rows)

    def choose(
        self, logits: Tensor, positions: Sequence[int] | Int32, threads: int | None = None
    ) -> tuple[list[int], list[float]]:
        """The token that `sampling.draw` gives each row, and its probability.

        Args:
            logits: (n, vocabulary) float32; drawn where they are.
            positions: in its sequence, of each row's choice.
            threads: torch's number by default.
        """
        if logits.is_cuda:
            return self.on_device(logits, positions)
        if not native_checks.available():
            drawn = zip(logits, self.samplings, positions, strict=True)
            found = [draw(row, how, int(place)) for row, how, place in drawn]
            return [token for token, _ in found], [sure for _, sure in found]
        assert logits.dtype == torch.float32
        assert len(logits) == len(self) == len(positions)
        logits = logits.contiguous()
        places = np.array(positions, np.int32)
        tokens = np.empty(len(self), np.int32)
        sure = np.empty(len(self), np.float32)
        native.library().draw_rows(
            *(logits.data_ptr(), *logits.shape, self.address),
            *(places.ctypes.data, threads or torch.get_num_threads()),
            *(tokens.ctypes.data, sure.ctypes.data),
        )
        return tokens.tolist(), sure.tolist()

    def on_device(
        self, logits: Tensor, positions: Sequence[int] | Int32
    ) -> tuple[list[int], list[float]]:
        """`choose` by the Triton kernels, with one copy there and one back."""
        from backends.kernels.sampling import SamplingScratch, sample

        columns = [column.view(np.int64) for column in (*self._held, np.array(positions, np.int64))]
        given = torch.from_numpy(np.stack(columns)).to(logits.device)
        found = torch.empty(2, len(self), dtype=torch.int32, device=logits.device)
        most = min(len(self), ROWS_AT_ONCE)
        scratch = SamplingScratch.allocate(most, logits.shape[1], logits.device)
        for start in range(0, len(self), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            temperature, top_p, seed, position = given[:, part].unbind(0)
            sample(
                logits[part],
                temperature.view(torch.float64),
                top_p.view(torch.float64),
                seed,
                position,
                scratch,
                found[0, part],
                found[1, part].view(torch.float32),
            )
        found = found.cpu()
        return found[0].tolist(), found[1].view(torch.float32).tolist()


@functools.lru_cache(maxsize=256)
def _columns(
    samplings: tuple[TokenSampling, ...],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint64]]:
    return (
        np.array([how.temperature for how in samplings], np.float64),
        np.array([how.top_p for how in samplings], np.float64),
        np.array([how.seed % 2**64 for how in samplings], np.uint64),
    )
