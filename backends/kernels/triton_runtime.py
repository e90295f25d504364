"""Where Triton is imported, so that the torch references load without it.

Through the interpreter (``TRITON_INTERPRET=1``, read when this module is imported) the kernels run
on CPU tensors, slowly: for tests. Otherwise they need CUDA tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from backends.engine.model.architecture import EngineError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["INTERPRETED", "check", "jit", "launch", "power_of_2", "require", "tl"]

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

INTERPRETED: bool = triton is not None and bool(triton.knobs.runtime.interpret)
"""Whether kernels run through Triton's interpreter."""


class _Missing:
    """Stands for a kernel where Triton is not installed; launching it is an error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        raise EngineError(f"kernel {self.name}: Triton is not installed (it comes with CUDA torch)")


def jit(function: Callable[..., Any]) -> Any:
    """`triton.jit`, or a stand-in that raises when launched where there is no Triton."""
    return _Missing(function.__name__) if triton is None else triton.jit(function)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel. Fused multiply-adds are asked for by name, since the default differs between
    Triton's versions and with it the bits of a row; `enable_fp_fusion=False` forbids them."""
    kernel[grid](*arguments, **{"enable_fp_fusion": True, **options})


def power_of_2(n: int) -> int:
    """The smallest power of two that is at least n (n >= 1)."""
    return 1 << (n - 1).bit_length()


def check(name: str, expected: dict[str, tuple[Tensor, tuple[int, ...]]]) -> None:
    """Refuse, in one line, tensors that kernel `name` would misread.

    `expected` maps an argument's name to the tensor and the shape it must have. All must be
    contiguous and on one CUDA device (on the CPU under the interpreter).
    """
    devices = set()
    for argument, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            got = list(tensor.shape)
            raise EngineError(f"kernel {name}: {argument} has shape {got}, expected {list(shape)}")
        if not tensor.is_contiguous():
            raise EngineError(f"kernel {name}: {argument} is not contiguous")
        devices.add(tensor.device)
    if len(devices) != 1:
        raise EngineError(f"kernel {name}: tensors on {sorted(map(str, devices))}, expected one")
    require(f"kernel {name}", devices.pop())


def require(what: str, device: torch.device) -> None:
    """Refuse, in one line, a device that the kernels do not run on."""
    if triton is None:
        raise EngineError(f"{what}: Triton is not installed (it comes with torch for CUDA)")
    if device.type != ("cpu" if INTERPRETED else "cuda"):
        asked = "CPU, being interpreted" if INTERPRETED else "CUDA device"
        raise EngineError(f"{what}: runs on a {asked}; the tensors are on {device}")
