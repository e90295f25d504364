"""Lets vLLM use the matrix tiles (AMX) of Intel processors.

vLLM 0.32's attention for bfloat16 on a CPU takes them wherever the processor has them, but Linux
gives a process tiles only when it asks: without asking it is killed by an illegal instruction.
"""

from __future__ import annotations


def allow_tiles() -> None:
    """Ask for this process and those forked from it; nothing where there are no tiles."""
    import torch

    if torch.cpu._is_amx_tile_supported():
        torch.cpu._init_amx()
