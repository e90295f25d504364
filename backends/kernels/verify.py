"""Verification at all pending rows: the final head's greedy tokens without logits in memory, the
accepted prefix of the drafts, and sampling with a given uniform number per row.

A draft is accepted when it equals the token that the final head selects at the row before it; with
uniforms keyed by position this reproduces plain sampling token for token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.kernels.exit_head import (
    VOCABULARY_BLOCK,
    HeadScratch,
    exit_head,
    exit_head_reference,
    head_blocks,
    logits_tile,
)
from backends.kernels.triton_runtime import check, jit, launch, power_of_2, tl

SAMPLE_BLOCK = 4096


def greedy_reference(hidden: Tensor, matrix: Tensor) -> Tensor:
    """argmax of matrix hidden[r] in float32, [rows] int32; the lowest id wins a tie."""
    return exit_head_reference(hidden, matrix)[0]


def greedy(hidden: Tensor, matrix: Tensor, scratch: HeadScratch, tokens: Tensor) -> None:
    """tokens[r] = argmax(matrix hidden[r]), the lowest id on a tie, -1 where no logit is a number.

    Shapes, dtypes and errors as for `exit_head`.
    """
    exit_head(hidden, matrix, scratch, tokens, None)


@jit
def logits_kernel(
    hidden: tl.tensor,
    matrix: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    size: tl.tensor,
    width: tl.tensor,
    row_block: tl.constexpr,
    vocabulary_block: tl.constexpr,
    width_block: tl.constexpr,
    widen: tl.constexpr,
) -> None:
    """One program per block of the vocabulary, for all rows."""
    logits = logits_tile(
        hidden,
        matrix,
        rows,
        size,
        width,
        row_block,
        vocabulary_block,
        width_block,
        widen,
    )
    place = tl.program_id(0) * vocabulary_block + tl.arange(0, vocabulary_block)
    row = tl.arange(0, row_block)
    cell = row.to(tl.int64)[None, :] * size + place[:, None]
    tl.store(out + cell, logits, mask=(place < size)[:, None] & (row < rows)[None, :])


def final_logits(hidden: Tensor, matrix: Tensor, out: Tensor) -> None:
    """out[r] = matrix hidden[r] in float32: the very numbers that `greedy` compares.

    hidden [rows, d], 1 to 64 rows; matrix [V, d] of the same dtype; out [rows, V] float32.
    """
    (rows, width), size = hidden.shape, len(matrix)
    given = {"hidden": (hidden, (rows, width)), "matrix": (matrix, (size, width))}
    check("final_logits", {**given, "out": (out, (rows, size))})
    grid = (-(-size // VOCABULARY_BLOCK),)
    launch(logits_kernel, grid, hidden, matrix, out, rows, size, width, **head_blocks(hidden))


def accepted_prefix_reference(tokens: Tensor, drafts: Tensor, slots: Tensor) -> Tensor:
    """Arguments as for `accepted_prefix`; [rows] int32."""
    counts: dict[int, int] = {}
    broken: set[int] = set()
    for token, draft, slot in zip(tokens.tolist(), drafts.tolist(), slots.tolist(), strict=True):
        if token != draft:
            broken.add(slot)
        counts[slot] = counts.get(slot, 0) + (slot not in broken)
    return torch.tensor([counts[slot] for slot in slots.tolist()], dtype=torch.int32)


@jit
def accepted_prefix_kernel(
    tokens: tl.tensor,
    drafts: tl.tensor,
    slots: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    row_block: tl.constexpr,
) -> None:
    """One program: rows against rows."""
    row = tl.arange(0, row_block)
    held = row < rows
    slot = tl.load(slots + row, mask=held, other=-1)
    missed = tl.load(tokens + row, mask=held) != tl.load(drafts + row, mask=held)
    together = (slot[:, None] == slot[None, :]) & held[:, None] & held[None, :]
    before = together & (row[:, None] <= row[None, :]) & missed[:, None]
    intact = tl.sum(before.to(tl.int32), 0) == 0
    count = tl.sum((together & intact[:, None]).to(tl.int32), 0)
    tl.store(out + row, count, mask=held)


def accepted_prefix(tokens: Tensor, drafts: Tensor, slots: Tensor, out: Tensor) -> None:
    """out[r] = how many drafts of slot slots[r] are accepted: of its rows, in order, those before
    the first with tokens[row] != drafts[row].

    All [rows] int32, at most 1,024 rows; drafts[row] is the token guessed to follow that row's, -1
    at the last row. Raises EngineError for what does not fit.
    """
    rows = len(tokens)
    if not 1 <= rows <= 1024:
        raise EngineError(f"kernel accepted_prefix: {rows} rows, expected 1 to 1024")
    given = {"tokens": tokens, "drafts": drafts, "slots": slots, "out": out}
    check("accepted_prefix", {name: (tensor, (rows,)) for name, tensor in given.items()})
    block = power_of_2(rows)
    launch(
        accepted_prefix_kernel, (1,), tokens, drafts, slots, out, rows, row_block=block, num_warps=4
    )


def sample_reference(
    logits: Tensor, uniform: Tensor, temperature: Tensor, top_p: Tensor
) -> tuple[Tensor, Tensor]:
    """Arguments as for `sample`, in float64: (tokens [rows] int32, the inverse CDF's value just
    below each token's end [rows, V], by which a test knows how near a boundary a uniform lies)."""
    scaled = logits.double() / temperature.double()[:, None]
    weights = torch.exp(scaled - scaled.amax(-1, keepdim=True))
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = weights.gather(1, order).cumsum(-1)
    enough = mass >= top_p.double()[:, None] * mass[:, -1:]
    threshold = ordered.gather(1, enough.int().argmax(-1, keepdim=True))
    kept = torch.where(logits >= threshold, weights, 0.0)
    cumulative = kept.cumsum(-1)
    cumulative = cumulative / cumulative[:, -1:]
    above = (cumulative > uniform.double()[:, None]) & (kept > 0)
    return above.int().argmax(-1).int(), cumulative


@jit
def ordered_key(x: tl.tensor) -> tl.tensor:
    """An integer that orders as the float32 x does (negative zero just below zero)."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@jit
def kept_weights(
    logits: tl.tensor,
    start: tl.tensor,
    size: tl.tensor,
    top: tl.tensor,
    temperature: tl.tensor,
    threshold: tl.tensor,
    block: tl.constexpr,
) -> tl.tensor:
    """exp((l - top) / temperature) of one block where its key is at least the threshold, else 0."""
    place = start + tl.arange(0, block)
    x = tl.load(logits + place, mask=place < size, other=float("-inf"))
    weights = tl.exp((x - top) / temperature)
    return tl.where((place < size) & (ordered_key(x).to(tl.int64) >= threshold), weights, 0.0)


@jit
def sample_kernel(
    logits: tl.tensor,
    uniform: tl.tensor,
    temperature: tl.tensor,
    top_p: tl.tensor,
    tokens: tl.tensor,
    size: tl.tensor,
    block: tl.constexpr,
) -> None:
    """One program per row. The least logit kept is found by bisection over the integers that order
    as float32 does, so nothing is sorted and ties are treated alike."""
    row = tl.program_id(0)
    logits += row.to(tl.int64) * size
    warmth = tl.load(temperature + row)
    share = tl.load(top_p + row)
    lane = tl.arange(0, block)
    tops = tl.full([block], float("-inf"), tl.float32)
    for start in range(0, size, block):
        here = logits + start + lane
        tops = tl.maximum(tops, tl.load(here, mask=start + lane < size, other=float("-inf")))
    top = tl.max(tops, 0)
    low = tl.full([], -2147483648, tl.int64)
    high = ordered_key(top).to(tl.int64) + 1
    total = 0.0
    for start in range(0, size, block):
        total += tl.sum(kept_weights(logits, start, size, top, warmth, low, block), 0)
    if share < 1.0:
        while high - low > 1:
            middle = (low + high) // 2
            mass = 0.0
            for start in range(0, size, block):
                mass += tl.sum(kept_weights(logits, start, size, top, warmth, middle, block), 0)
            if mass >= share * total:
                low = middle
            else:
                high = middle
        total = 0.0
        for start in range(0, size, block):
            total += tl.sum(kept_weights(logits, start, size, top, warmth, low, block), 0)
    target = tl.load(uniform + row) * total
    passed = 0.0
    chosen = 2147483647
    last = -1
    for start in range(0, size, block):
        weights = kept_weights(logits, start, size, top, warmth, low, block)
        place = start + lane
        above = (passed + tl.cumsum(weights, 0) > target) & (weights > 0.0)
        chosen = tl.minimum(chosen, tl.min(tl.where(above, place, 2147483647), 0))
        last = tl.maximum(last, tl.max(tl.where(weights > 0.0, place, -1), 0))
        passed += tl.sum(weights, 0)
    tl.store(tokens + row, tl.where(chosen < size, chosen, last))


def sample(
    logits: Tensor, uniform: Tensor, temperature: Tensor, top_p: Tensor, tokens: Tensor
) -> None:
    """tokens[r] = the first id whose cumulative probability, in id order, exceeds uniform[r].

    Probabilities: softmax(logits[r] / temperature[r]) restricted to the smallest set of the most
    probable tokens that holds at least top_p[r], renormalised; tokens as probable as the least
    probable one kept are kept too. logits [rows, V] float32; uniform in [0, 1), temperature > 0 and
    top_p in (0, 1], each [rows] float32; tokens [rows] int32. Sums run in a fixed order, so a row's
    token depends on the row alone. Raises EngineError for what does not fit.
    """
    rows, size = logits.shape
    given = {"uniform": uniform, "temperature": temperature, "top_p": top_p, "tokens": tokens}
    shapes = {name: (tensor, (rows,)) for name, tensor in given.items()}
    check("sample", {"logits": (logits, (rows, size)), **shapes})
    block = min(SAMPLE_BLOCK, max(128, power_of_2(size)))
    launch(
        sample_kernel,
        (rows,),
        logits,
        uniform,
        temperature,
        top_p,
        tokens,
        size,
        block=block,
        num_warps=8,
    )
