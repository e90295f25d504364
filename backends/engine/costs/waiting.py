"""Waiting for a GPU, without which a call's time is that of its launch."""

from __future__ import annotations

import torch


def wait_for_device() -> None:
    """Until a GPU that this process uses has done what it was told: a call that hands nothing back
    returns before, and the next one would seem to take its time."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
