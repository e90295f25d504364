"""Our kernels on this GPU: share of its measured ceiling, and beside the calls they replace.

    python benchmarks/kernels.py [--shapes llama-3.1-8b 300m demo] [--rows 8] [--context 2048]

Every kernel at the shapes of a whole model, in bfloat16, at the fixed number of rows of a decode
step. A figure appears only when the output agrees with the reference at that shape. "ratio" is the
time of the library's calls over ours, measured next to each other; "ceiling" is the larger of the
device's copy and read rates, measured in the same run. What a layer hands to the next kernel is
small and stays in the L2, here as in a model: such a row shows latency. The last line is JSON.
Needs CUDA.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from backends.engine.model.heads import ExitHead, in_8_bits
from backends.engine.sampling import TokenSampling, draw
from backends.kernels import attention, exit_head, rms_norm, rope_cache, sampling, silu_mul
from benchmarks.support.device_timing import ceilings, describe, microseconds
from benchmarks.support.kernel_case import (
    BF16,
    DEVICE,
    SHAPES,
    KernelCase,
    KernelShape,
    error,
    normal,
)
from benchmarks.support.kernels_early_exit import early_exit_cases

SPREAD_BYTES = 256 << 20
"""Inputs of one graph, several times the L2."""
MOST_SETS = 64


def rms_norm_case(shape: KernelShape) -> KernelCase:
    x, add = normal(shape.rows, shape.width), normal(shape.rows, shape.width)
    gain, out, kept = normal(shape.width, dtype=torch.float32), torch.empty_like(x), x.clone()
    light = gain.to(BF16)

    def ours() -> None:
        rms_norm.rms_norm(
            x, rows=shape.rows, gain=gain, epsilon=1e-5, out=out, add=add, residual=kept
        )

    def library() -> Tensor:
        return functional.rms_norm(torch.add(x, add, out=kept), light.shape, light, 1e-5)

    def check() -> float:
        return error(out, rms_norm.rms_norm_reference(x, gain, 1e-5, add=add)[1])

    return KernelCase("rms_norm + residual", ours, library, 4 * x.nbytes + gain.nbytes, check)


def rope_case(shape: KernelShape) -> KernelCase:
    columns = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    qkv, query = normal(shape.rows, columns), normal(shape.rows, shape.heads, shape.head_dim)
    cache = (shape.rows, shape.kv_heads, shape.context, shape.head_dim)
    keys, values = normal(*cache), normal(*cache)
    cosine, sine = torch.randn(2, shape.context, shape.head_dim // 2, device=DEVICE)
    slots = torch.arange(shape.rows, device=DEVICE, dtype=torch.int32)
    positions = torch.full_like(slots, shape.context - 1)
    arguments = (qkv, cosine, sine, slots, positions, keys, values)

    def library() -> Tensor:
        return rope_cache.rope_cache_reference(*arguments)

    moved = 2 * qkv.nbytes
    return KernelCase(
        "rope + cache write",
        lambda: rope_cache.rope_cache(*arguments, query),
        library,
        moved,
        lambda: error(query, rope_cache.rope_cache_reference(*arguments)),
    )


def attention_case(shape: KernelShape, one_slot: bool) -> KernelCase:
    slots = 1 if one_slot else shape.rows
    cache = (slots, shape.kv_heads, shape.context, shape.head_dim)
    keys, values = normal(*cache), normal(*cache)
    query = normal(shape.rows, shape.heads, shape.head_dim)
    out = torch.empty_like(query)
    where = torch.arange(shape.rows, device=DEVICE, dtype=torch.int32) % slots
    # sdpa has one length for all rows; so have ours here
    last = torch.full_like(where, shape.context - 1)
    scratch = attention.AttentionScratch.allocate(
        *(shape.rows, shape.heads, shape.head_dim, shape.context, DEVICE)
    )

    def library() -> Tensor:
        rows = query.view(slots, -1, shape.heads, shape.head_dim).transpose(1, 2)
        return functional.scaled_dot_product_attention(rows, keys, values, enable_gqa=True)

    return KernelCase(
        "attention, 1 slot" if one_slot else f"attention, {shape.rows} slots",
        lambda: attention.attention(query, keys, values, where, last, scratch, out),
        library,
        2 * keys.nbytes + 2 * query.nbytes,
        lambda: error(out, attention.attention_reference(query, keys, values, where, last)),
    )


def silu_case(shape: KernelShape) -> KernelCase:
    gate_up, out = (
        normal(shape.rows, 2 * shape.feed_forward),
        normal(shape.rows, shape.feed_forward),
    )
    gate, up = gate_up.chunk(2, -1)
    return KernelCase(
        "silu_mul",
        lambda: silu_mul.silu_mul(gate_up, out),
        lambda: functional.silu(gate) * up,
        gate_up.nbytes + out.nbytes,
        lambda: error(out, silu_mul.silu_mul_reference(gate_up)),
    )


def head_case(shape: KernelShape, kind: str) -> KernelCase:
    """The library computes logits in memory, then softmax and maximum."""
    size = min(8192, shape.vocabulary) if kind == "shortlist" else shape.vocabulary
    hidden, matrix = normal(shape.rows, shape.width), normal(size, shape.width) * shape.width**-0.5
    given, scales = matrix, None
    if kind == "fp8":
        eight = in_8_bits(ExitHead(1, matrix))
        assert isinstance(eight.matrix, torch.Tensor)
        given, scales = eight.matrix, eight.scales
    ids = torch.randperm(shape.vocabulary, device=DEVICE)[:size] if kind == "shortlist" else None
    scratch = exit_head.HeadScratch.allocate(shape.rows, size, DEVICE)
    tokens = torch.empty(shape.rows, device=DEVICE, dtype=torch.int32)
    confidence = torch.empty(shape.rows, device=DEVICE)
    options: dict[str, Any] = {"token_ids": ids, "scales": scales}

    def library() -> object:
        return (hidden @ matrix.T).float().softmax(-1).max(-1)

    def check() -> float:
        _, probability = exit_head.exit_head_reference(hidden, given, ids, scales)
        return error(confidence, probability)

    return KernelCase(
        f"exit head, {kind}",
        lambda: exit_head.exit_head(hidden, given, scratch, tokens, confidence, **options),
        library,
        given.nbytes,
        check,
    )


def logits_case(shape: KernelShape) -> KernelCase:
    hidden = normal(shape.rows, shape.width)
    matrix = normal(shape.vocabulary, shape.width) * shape.width**-0.5
    logits = torch.empty(shape.rows, shape.vocabulary, device=DEVICE)
    return KernelCase(
        "final logits",
        lambda: exit_head.final_logits(hidden, matrix, logits),
        lambda: (hidden @ matrix.T).float(),
        matrix.nbytes + logits.nbytes,
        lambda: error(logits, hidden.float() @ matrix.float().T),
    )


def sample_case(shape: KernelShape) -> KernelCase:
    """The library sorts, as nucleus sampling does where its tokens need not be the definition's."""
    logits = normal(shape.rows, shape.vocabulary, dtype=torch.float32) * 3
    temperature = torch.ones(shape.rows, device=DEVICE, dtype=torch.float64)
    top_p, seed = temperature * 0.9, torch.arange(shape.rows, device=DEVICE)
    tokens = torch.empty(shape.rows, device=DEVICE, dtype=torch.int32)
    sure = torch.empty(shape.rows, device=DEVICE)
    scratch = sampling.SamplingScratch.allocate(shape.rows, shape.vocabulary, DEVICE)

    def library() -> Tensor:
        probable, order = (logits / temperature.float()[:, None]).softmax(-1).sort(descending=True)
        before = probable.cumsum(-1) - probable
        kept = probable.masked_fill(before >= top_p.float()[:, None], 0.0)
        # torch.multinomial's own race, without its wait for the host
        return order.gather(1, (kept / torch.empty_like(kept).exponential_()).argmax(-1)[:, None])

    def check() -> float:
        """0 when every token and probability is the definition's."""
        hows = [TokenSampling(1.0, 0.9, row) for row in range(shape.rows)]
        drawn = [draw(row, how, how.seed) for row, how in zip(logits.cpu(), hows, strict=True)]
        return float(drawn != list(zip(tokens.tolist(), sure.tolist(), strict=True)))

    return KernelCase(
        "sample, top-p 0.9",
        lambda: sampling.sample(logits, temperature, top_p, seed, seed, scratch, tokens, sure),
        library,
        logits.nbytes,
        check,
    )


def product_case(shape: KernelShape) -> KernelCase:
    """Not ours: what cuBLAS makes of the widest product of a layer."""
    x, matrix = normal(shape.rows, shape.width), normal(2 * shape.feed_forward, shape.width)
    out = normal(shape.rows, 2 * shape.feed_forward)
    return KernelCase("cuBLAS gate_up", lambda: torch.mm(x, matrix.T, out=out), None, matrix.nbytes)


def cases(shape: KernelShape) -> Iterator[Callable[[], KernelCase]]:
    """Makers of one input set each."""
    yield partial(rms_norm_case, shape)
    yield partial(rope_case, shape)
    yield partial(attention_case, shape, one_slot=False)
    yield partial(attention_case, shape, one_slot=True)
    yield partial(silu_case, shape)
    for kind in ("bf16", "shortlist"):
        yield partial(head_case, shape, kind)
    yield partial(logits_case, shape)
    yield partial(sample_case, shape)
    yield from early_exit_cases(shape)
    yield partial(product_case, shape)


def measure(
    make: Callable[[], KernelCase], ceiling: float, tolerance: float = 0.02
) -> dict[str, Any]:
    """Check one set, then time both sides on as many sets as spread over the L2."""
    first = make()
    first.ours()
    wrong = first.check() if first.check else 0.0
    if not wrong <= tolerance:
        raise SystemExit(f"kernels: {first.name}: off by {wrong:.3g} of its reference; not timed")
    count = max(1, min(MOST_SETS, SPREAD_BYTES // first.moved))
    sets = [first, *(make() for _ in range(count - 1))]
    ours = microseconds([one.ours for one in sets])
    row: dict[str, Any] = {"kernel": first.name, "us": round(ours, 2), "error": wrong}
    row["bytes_per_s"] = first.moved / ours * 1e6
    row["share_of_ceiling"] = round(row["bytes_per_s"] / ceiling, 3)
    if first.library is not None:
        theirs = microseconds([one.library for one in sets if one.library is not None])
        row |= {"library_us": round(theirs, 2), "ratio": round(theirs / ours, 2)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--context", type=int, default=2048)
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        print("kernels: needs a CUDA device; here the kernels are only tested (tests/kernels)")
        return
    torch.manual_seed(1)
    result: dict[str, Any] = {**describe(), **ceilings(), "shapes": {}}
    ceiling = max(result["copy_bytes_per_s"], result["read_bytes_per_s"])
    print(f"ceiling {ceiling / 1e12:.2f} TB/s, {result['bf16_flop_per_s'] / 1e12:.0f} TFLOP/s bf16")
    for name in chosen.shapes:
        shape = replace(SHAPES[name], rows=chosen.rows, context=chosen.context)
        rows = result["shapes"][name] = []
        for make in cases(shape):
            row = measure(make, ceiling)
            rows.append(row)
            against = f"{row['library_us']:9.1f} us {row['ratio']:6.2f}x" if "ratio" in row else ""
            print(
                f"{name:13s} {row['kernel']:21s} {row['us']:9.1f} us "
                f"{row['bytes_per_s'] / 1e9:8.0f} GB/s {row['share_of_ceiling']:6.1%} {against}",
                flush=True,
            )
            torch.cuda.empty_cache()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
