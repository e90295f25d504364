"""Work that a GPU's memory may be too small for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from backends.checkpoints.models import one_line
from harness.core.errors import UserError

R = TypeVar("R")


def in_halves(work: Callable[[list[int]], R], texts: list[int]) -> Iterator[tuple[list[int], R]]:
    """Do `work` on these texts, or, where the GPU runs out of memory, on one half and then the
    other. Yields each part with what came of it.

    Raises:
        UserError: where one text alone is too much.
    """
    try:
        found = work(texts)
    except torch.OutOfMemoryError as error:
        if len(texts) == 1:
            raise UserError(
                f"the GPU has too little memory for the work on one text ({one_line(error)})"
            ) from None
    else:
        yield texts, found
        return
    # outside of the handler, since an exception keeps what its frames hold
    torch.cuda.empty_cache()
    half = len(texts) // 2
    yield from in_halves(work, texts[:half])
    yield from in_halves(work, texts[half:])
