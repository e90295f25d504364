"""The variables by which a process and what it starts see their GPUs."""

from __future__ import annotations

import os

VISIBLE, ORDER, BY_BUS = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"


def number_by_bus() -> None:
    """Have CUDA number GPUs as the driver's library (NVML) does, in this process and what it
    starts, unless the user chose an order. Call before CUDA is used: by default it puts the fastest
    first."""
    os.environ.setdefault(ORDER, BY_BUS)
