"""Confidence measures of early exit, one launch each: the margin between the two most probable
tokens from logits (CALM's softmax response, Schuster et al. 2022, section 3.5), and the cosine of
two hidden states, row by row (its hidden-state saturation)."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.kernels.cpu import native_checks
from backends.kernels.triton_runtime import INTERPRETED, check, jit, launch, power_of_2, tl

BLOCK = 4096
"""Logits of one row per step."""
NORM_FLOOR = 1e-8
"""A shorter state counts as this long; the cosine with a state of zeros is 0."""


def top2_reference(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Arguments as for `top2`; (margins [T] float32, tokens [T] int32; the lowest id on a tie)."""
    wide = logits.float()
    best = torch.where(wide.isnan(), float("-inf"), wide).amax(-1, keepdim=True)
    ids = torch.arange(wide.shape[1], device=wide.device)
    tokens = torch.where(wide == best, ids, wide.shape[1] - 1).amin(-1)
    probable = wide.softmax(-1)
    first = probable.gather(1, tokens[:, None])[:, 0]
    others = probable.scatter(1, tokens[:, None], 0.0)
    return first - others.amax(-1), tokens.int()


@jit
def top2_kernel(
    logits: tl.tensor,
    margins: tl.tensor,
    tokens: tl.tensor,
    size: tl.tensor,
    block: tl.constexpr,
) -> None:
    """One program per row, one pass: each lane keeps its two largest logits, the place of the first
    and the sum of exponentials below it; the lanes are combined at the end."""
    row = tl.program_id(0)
    logits += row.to(tl.int64) * size
    lane = tl.arange(0, block)
    # finite, so that logits of -inf (masked tokens) subtract
    best = tl.full([block], -3.0e38, tl.float32)
    second = best
    place = tl.zeros([block], tl.int32)
    total = tl.zeros([block], tl.float32)
    for start in range(0, size, block):
        at = start + lane
        x = tl.load(logits + at, mask=at < size, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(best, x)
        total = total * tl.exp(best - higher) + tl.exp(x - higher)
        second = tl.maximum(second, tl.minimum(best, x))
        place = tl.where(x > best, at, place)
        best = higher
    top = tl.max(best, 0)
    token = tl.min(tl.where(best == top, place, 2147483647), 0)
    winner = (best == top) & (place == token)
    runner_up = tl.max(tl.where(winner, second, best), 0)
    mass = tl.sum(total * tl.exp(best - top), 0)
    tl.store(margins + row, (1.0 - tl.exp(runner_up - top)) / mass)
    if tokens is not None:
        tl.store(tokens + row, tl.minimum(token, size - 1))


def top2(logits: Tensor, margins: Tensor, tokens: Tensor | None = None) -> None:
    """margins[r] = the largest less the second largest of softmax(logits[r]), 0 on a tie;
    tokens[r] = the most probable id, the lowest one on a tie.

    logits [T, V] bf16, fp16 or fp32, V >= 2, computed in float32; margins [T] float32; tokens [T]
    int32. A row with NaN has margin NaN, which passes no threshold. Raises EngineError for misfits.
    """
    rows, size = logits.shape
    given = {"margins": margins} if tokens is None else {"margins": margins, "tokens": tokens}
    shapes = {name: (tensor, (rows,)) for name, tensor in given.items()}
    check("top2", {"logits": (logits, (rows, size)), **shapes})
    block = min(BLOCK, max(128, power_of_2(size)))
    if rows > 0:
        launch(top2_kernel, (rows,), logits, margins, tokens, size, block=block, num_warps=16)


def top2_margin(logits: Tensor) -> Tensor:
    """The margins [T] float32 of `top2`. On a CPU by the C++ kernel, or by the reference where that
    cannot be built."""
    if logits.device.type == "cpu" and not INTERPRETED:
        native = native_checks.available()
        return native_checks.top2_margin(logits) if native else top2_reference(logits)[0]
    margins = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    # vLLM cuts off the rows by which it pads a vocabulary
    top2(logits.contiguous(), margins)
    return margins


def cosine_reference(a: Tensor, b: Tensor) -> Tensor:
    """Arguments as for `cosine`; [T] float32."""
    one, two = a.float(), b.float()
    lengths = one.norm(dim=-1).clamp_min(NORM_FLOOR) * two.norm(dim=-1).clamp_min(NORM_FLOOR)
    cosines: Tensor = (one * two).sum(-1) / lengths
    return cosines


@jit
def cosine_kernel(
    a: tl.tensor,
    b: tl.tensor,
    out: tl.tensor,
    width: tl.tensor,
    floor: tl.tensor,
    block: tl.constexpr,
) -> None:
    """One program per row."""
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    here = row.to(tl.int64) * width + columns
    x = tl.load(a + here, mask=columns < width, other=0.0).to(tl.float32)
    y = tl.load(b + here, mask=columns < width, other=0.0).to(tl.float32)
    first = tl.maximum(tl.sqrt(tl.sum(x * x, 0)), floor)
    second = tl.maximum(tl.sqrt(tl.sum(y * y, 0)), floor)
    tl.store(out + row, tl.sum(x * y, 0) / (first * second))


def cosine(a: Tensor, b: Tensor, out: Tensor) -> None:
    """out[r] = a[r] . b[r] / (|a[r]| |b[r]|), in float32.

    a and b [T, d] of one dtype (bf16, fp16, fp32); out [T] float32. Raises EngineError for misfits.
    """
    rows, width = a.shape
    check("cosine", {"a": (a, (rows, width)), "b": (b, (rows, width)), "out": (out, (rows,))})
    block = power_of_2(width)
    warps = min(16, max(1, block // 256))
    if rows > 0:
        launch(cosine_kernel, (rows,), a, b, out, width, NORM_FLOOR, block=block, num_warps=warps)


def cosine_rows(a: Tensor, b: Tensor) -> Tensor:
    """`cosine` as a new tensor [T] float32; on a CPU as `top2_margin`."""
    if a.device.type == "cpu" and not INTERPRETED:
        native = native_checks.available()
        return native_checks.cosine_rows(a, b) if native else cosine_reference(a, b)
    out = torch.empty(len(a), dtype=torch.float32, device=a.device)
    cosine(a, b, out)
    return out


def kernels() -> str:
    """What computes the measures here: "triton", "native" (C++) or "torch"."""
    if torch.cuda.is_available():
        return "triton"
    return "native" if native_checks.available() else "torch"


def linear_probability(x: Tensor, weight: Tensor, bias: float) -> Tensor:
    """sigmoid(x @ weight + bias) [T] float32, computed in float32.

    x [T, d] bf16, fp16 or fp32; weight [d] float32 (CALM's exit classifier, section 3.5, of whose
    two logits only the difference matters).
    """
    if x.device.type == "cpu" and native_checks.available():
        return native_checks.linear_probability(x, weight, bias)
    return torch.sigmoid(torch.mv(x.float(), weight) + bias)
