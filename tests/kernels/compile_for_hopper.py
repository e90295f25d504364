"""Compile every kernel to machine code for an H100, with or without one; print a line for each.

    python tests/kernels/compile_for_hopper.py

The launchers run on tensors without memory, behind a driver that only names its target.
"""

from __future__ import annotations

import json
import re
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from backends.kernels import (
    attention,
    exit_confidence,
    exit_head,
    fill_cache,
    rms_norm,
    rope_cache,
    sampling,
    silu_mul,
)

INT, FLOAT = torch.int32, torch.float32
LONG, DOUBLE = torch.int64, torch.float64
MODULES = (
    *(attention, exit_confidence, exit_head, fill_cache),
    *(rms_norm, rope_cache, sampling, silu_mul),
)
ARITHMETIC = re.compile(
    r"^\s+(?:@\S+ )?((?:mma|fma|add|sub|mul|div|max|ex2|shfl)\.(?:\S*\.)?(?:f\d+|b\d+)\S*)", re.M
)
"""What a number goes through, in PTX; addresses are integers and no part of it."""


class Hopper:
    """What Triton asks of a driver before it launches."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def empty(*shape: int, dtype: torch.dtype = INT) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def layers(dtype: torch.dtype, rows: int, width: int, heads: int, kv: int, head_dim: int) -> None:
    x, slots, gain = empty(rows, width, dtype=dtype), empty(rows), empty(width, dtype=FLOAT)
    table = empty(500, width, dtype=dtype)
    rms_norm.rms_norm(table, rows=rows, gain=gain, out=x, source_rows=slots, residual=x)
    rms_norm.rms_norm(x, rows=rows, gain=gain, out=x, add=x, residual=x)
    rms_norm.rms_norm(x, rows=rows, add=x, residual=table, residual_rows=slots)
    silu_mul.silu_mul(empty(rows, 2 * width, dtype=dtype), x)
    length, columns = 2048, (heads + 2 * kv) * head_dim
    cache, qkv = empty(9, kv, length, head_dim, dtype=dtype), empty(rows, columns, dtype=dtype)
    query, angles = (
        empty(rows, heads, head_dim, dtype=dtype),
        empty(length, head_dim // 2, dtype=FLOAT),
    )
    arguments = (qkv, angles, angles, slots, slots, cache, cache, query)
    norm = empty(head_dim, dtype=FLOAT)
    rope_cache.rope_cache(*arguments)
    rope_cache.rope_cache(*arguments, q_norm=norm, k_norm=norm, bias=qkv[0])
    scratch = attention.AttentionScratch.allocate(rows, heads, head_dim, length, "meta")
    attention.attention(query, cache, cache, slots, slots, scratch, query)
    beside = empty(1, kv, 300, head_dim, dtype=dtype)
    branches = attention.Branches(beside, beside, slots, empty(256, rows))
    attention.attention(query, cache, cache, slots, slots, scratch, query, branches=branches)


def heads(dtype: torch.dtype, rows: int, width: int, size: int) -> None:
    hidden, matrix = empty(rows, width, dtype=dtype), empty(size, width, dtype=dtype)
    scratch = exit_head.HeadScratch.allocate(rows, size, "meta")
    ids, tokens, numbers = empty(size, dtype=torch.int64), empty(rows), empty(rows, dtype=FLOAT)
    exit_head.exit_head(hidden, matrix, scratch, tokens, numbers, token_ids=ids)
    exit_head.exit_head(hidden, matrix, scratch, tokens, numbers)
    eight, scales = empty(size, width, dtype=torch.float8_e4m3fn), empty(size, dtype=FLOAT)
    exit_head.exit_head(hidden, eight, scratch, tokens, numbers, scales=scales)
    logits = empty(rows, size, dtype=FLOAT)
    exit_head.final_logits(hidden, matrix, logits)
    drawn, room = empty(rows, dtype=DOUBLE), sampling.SamplingScratch.allocate(rows, size, "meta")
    seed = empty(rows, dtype=LONG)
    for position in (seed, tokens):
        sampling.sample(logits, drawn, drawn, seed, position, room, tokens, numbers)


def early_exit(dtype: torch.dtype, rows: int, width: int, size: int, kv: int, head: int) -> None:
    """As vLLM calls them: positions and slots int64, a cache of blocks of 16."""
    whole = empty(100, kv, 16, 2 * head, dtype=dtype).transpose(1, 2)
    keys, values = torch.split(whole, head, dim=-1)
    caches = fill_cache.prepare([keys] * 8, [values] * 8)
    where, stacked = empty(rows, dtype=LONG), empty(rows, 2 * 5 * kv * head, dtype=dtype)
    fill_cache.fill_cache(stacked, where, empty(2048, head, dtype=dtype), where, caches)
    numbers = empty(rows, dtype=FLOAT)
    exit_confidence.top2(empty(rows, size, dtype=dtype), numbers, empty(rows))
    state = empty(rows, width, dtype=dtype)
    exit_confidence.cosine(state, state, numbers)


def main() -> None:
    original = JITFunction.run

    def compiled_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = original(self, *arguments, grid=grid, warmup=True, **options)
        line = {
            "kernel": self.fn.__name__,
            "dtype": str(dtype).removeprefix("torch."),
            "shared_bytes": kernel.metadata.shared,
            "warps": kernel.metadata.num_warps,
            "wgmma": "wgmma" in kernel.asm["ptx"],
            "fused": "fma." in kernel.asm["ptx"],
            "arithmetic": ARITHMETIC.findall(kernel.asm["ptx"]),
            "doubles": sorted(set(re.findall("0d([0-9A-F]{16})", kernel.asm["ptx"]))),
            "machine_code_bytes": len(kernel.asm["cubin"]),
        }
        print(json.dumps(line), flush=True)
        return kernel

    driver.set_active(Hopper())
    JITFunction.run = compiled_only
    for module in MODULES:
        setattr(module, "check", lambda name, expected: None)  # noqa: B010
    for dtype in (torch.bfloat16, torch.float32):
        layers(dtype, 8, 4096, 32, 8, 128)
        heads(dtype, 8, 4096, 128256)
        early_exit(dtype, 8, 4096, 128256, 8, 128)
    dtype = torch.float16
    layers(dtype, 5, 960, 6, 2, 80)
    heads(dtype, 5, 960, 32003)
    early_exit(dtype, 5, 960, 32003, 2, 80)
    print(json.dumps({"triton": triton.__version__}))


if __name__ == "__main__":
    main()
