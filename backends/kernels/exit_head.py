"""The exit head: the most probable token and its softmax probability, without logits in memory.

One pass streams the matrix [V', d] once for all rows. Each program turns `VOCABULARY_BLOCK` of its
rows into logits and keeps their maximum, the lowest place where it stands and the sum of
exponentials below it; a second kernel combines the blocks. A shortlist is a matrix with fewer rows
and the token id of each. A matrix of 8 bits has a scale for each of its rows: half the bytes to
stream, and products in the dtype of the hidden states all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.kernels.triton_runtime import INTERPRETED, check, jit, launch, power_of_2, tl

VOCABULARY_BLOCK = 64
WIDTH_BYTES = 256
"""Of a row of the hidden states, per step of the product."""
MAX_ROWS = 64


@dataclass(frozen=True, slots=True)
class HeadScratch:
    """Per row and vocabulary block: the maximum, where it is, the sum of exponentials below it."""

    maxima: Tensor
    """[rows, blocks] float32"""
    places: Tensor
    """[rows, blocks] int32"""
    sums: Tensor
    """[rows, blocks] float32"""

    @classmethod
    def allocate(cls, rows: int, size: int, device: torch.device | str) -> HeadScratch:
        """For matrices of up to `size` rows (a shortlist, or the vocabulary)."""
        shape = (rows, -(-size // VOCABULARY_BLOCK))
        maxima, sums = torch.empty(2, *shape, dtype=torch.float32, device=device)
        return cls(maxima, torch.empty(shape, dtype=torch.int32, device=device), sums)


def exit_head_reference(
    hidden: Tensor,
    matrix: Tensor,
    token_ids: Tensor | None = None,
    scales: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Arguments as for `exit_head`; (tokens [rows] int32, confidence [rows] float32)."""
    logits = hidden.float() @ matrix.float().T
    if scales is not None:
        logits = logits * scales
    top = logits.amax(-1, keepdim=True)
    ids = torch.arange(len(matrix), device=hidden.device)
    place = torch.where(logits == top, ids, len(matrix)).amin(-1)
    tokens = place if token_ids is None else token_ids.long()[place]
    return tokens.int(), 1.0 / torch.exp(logits - top).sum(-1)


@jit
def logits_tile(
    hidden: tl.tensor,
    matrix: tl.tensor,
    rows: tl.tensor,
    size: tl.tensor,
    width: tl.tensor,
    row_block: tl.constexpr,
    vocabulary_block: tl.constexpr,
    width_block: tl.constexpr,
    widen: tl.constexpr,
) -> tl.tensor:
    """Logits [vocabulary_block, row_block] float32 of this program's rows of the matrix."""
    place = tl.program_id(0) * vocabulary_block + tl.arange(0, vocabulary_block)
    row = tl.arange(0, row_block)
    start = matrix + place.to(tl.int64)[:, None] * width
    logits = tl.zeros([vocabulary_block, row_block], tl.float32)
    for offset in range(0, width, width_block):
        column = offset + tl.arange(0, width_block)
        held = (place < size)[:, None] & (column < width)[None, :]
        weights = tl.load(start + column[None, :], mask=held, other=0.0)
        needed = (column < width)[:, None] & (row < rows)[None, :]
        h = tl.load(hidden + row[None, :] * width + column[:, None], mask=needed, other=0.0)
        if widen:
            h = h.to(tl.float32)
        logits = tl.dot(weights.to(h.dtype), h, logits, input_precision="ieee")
    return logits


@jit
def exit_head_kernel(
    hidden: tl.tensor,
    matrix: tl.tensor,
    maxima: tl.tensor,
    places: tl.tensor,
    sums: tl.tensor,
    scales: tl.tensor,
    rows: tl.tensor,
    size: tl.tensor,
    width: tl.tensor,
    blocks: tl.tensor,
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
    if scales is not None:
        logits *= tl.load(scales + place, mask=place < size, other=0.0)[:, None]
    logits = tl.where((place < size)[:, None], logits, float("-inf"))
    top = tl.max(logits, 0)
    best = tl.min(tl.where(logits == top[None, :], place[:, None], 2147483647), 0)
    row = tl.arange(0, row_block)
    cell = row * blocks + tl.program_id(0)
    tl.store(maxima + cell, top, mask=row < rows)
    tl.store(places + cell, best, mask=row < rows)
    total = tl.sum(tl.exp(logits - top[None, :]), 0)
    tl.store(sums + cell, total, mask=row < rows)


@jit
def combine_kernel(
    maxima: tl.tensor,
    places: tl.tensor,
    sums: tl.tensor,
    token_ids: tl.tensor,
    tokens: tl.tensor,
    confidence: tl.tensor,
    size: tl.tensor,
    blocks: tl.tensor,
    all_blocks: tl.constexpr,
) -> None:
    """One program per row, over the blocks of the vocabulary."""
    row = tl.program_id(0)
    block = tl.arange(0, all_blocks)
    held = block < blocks
    tops = tl.load(maxima + row * blocks + block, mask=held, other=float("-inf"))
    top = tl.max(tops, 0)
    where = tl.load(places + row * blocks + block, mask=held, other=2147483647)
    best = tl.min(tl.where(tops == top, where, 2147483647), 0)
    found = best < size
    if token_ids is not None:
        best = tl.load(token_ids + best, mask=found, other=0).to(tl.int32)
    tl.store(tokens + row, tl.where(found, best, -1))
    part = tl.load(sums + row * blocks + block, mask=held, other=0.0)
    tl.store(confidence + row, 1.0 / tl.sum(part * tl.exp(tops - top), 0))


def head_blocks(hidden: Tensor) -> dict[str, Any]:
    """The tile of `logits_tile`: fixed by number and dtype of the rows, whatever the matrix."""
    rows = len(hidden)
    if not 1 <= rows <= MAX_ROWS:
        raise EngineError(f"kernel exit_head: {rows} rows, expected 1 to {MAX_ROWS}")
    return {
        "row_block": max(16, power_of_2(rows)),
        "vocabulary_block": VOCABULARY_BLOCK,
        "width_block": WIDTH_BYTES // hidden.dtype.itemsize,
        "widen": INTERPRETED,
        "num_warps": 4,
        "num_stages": 4,
    }


def exit_head(
    hidden: Tensor,
    matrix: Tensor,
    scratch: HeadScratch,
    tokens: Tensor,
    confidence: Tensor,
    *,
    token_ids: Tensor | None = None,
    scales: Tensor | None = None,
) -> None:
    """tokens[r] = token_ids[argmax(l)] and confidence[r] = max(softmax(l)), where
    l = matrix hidden[r]; the lowest place in the matrix wins a tie.

    hidden [rows, d] with 1 to 64 rows, already normed; matrix [V', d] of the same dtype (bf16,
    fp16, fp32), or of float8_e4m3fn with scales [V'] float32 of its rows; token_ids [V'] int32 or
    int64, None: the place itself; tokens [rows] int32, -1 where no logit is a number; confidence
    [rows] float32; scratch for exactly V'. Raises EngineError for what does not fit.
    """
    (rows, width), size = hidden.shape, len(matrix)
    blocks = -(-size // VOCABULARY_BLOCK)
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "hidden": (hidden, (rows, width)),
        "matrix": (matrix, (size, width)),
        "maxima": (scratch.maxima, (rows, blocks)),
        "places": (scratch.places, (rows, blocks)),
        "sums": (scratch.sums, (rows, blocks)),
        "tokens": (tokens, (rows,)),
        "confidence": (confidence, (rows,)),
    }
    for name, tensor in (("token_ids", token_ids), ("scales", scales)):
        if tensor is not None:
            shapes[name] = (tensor, (size,))
    check("exit_head", shapes)
    sums = scratch.sums
    launch(
        exit_head_kernel,
        (blocks,),
        *(hidden, matrix, scratch.maxima, scratch.places, sums, scales),
        *(rows, size, width, blocks),
        **head_blocks(hidden),
    )
    launch(
        combine_kernel,
        (rows,),
        *(scratch.maxima, scratch.places, sums, token_ids, tokens, confidence, size, blocks),
        all_blocks=power_of_2(blocks),
        num_warps=8,
    )


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
    """out[r] = matrix hidden[r] in float32: the very numbers that `exit_head` compares.

    hidden [rows, d], 1 to 64 rows; matrix [V, d] of the same dtype; out [rows, V] float32.
    """
    (rows, width), size = hidden.shape, len(matrix)
    given = {"hidden": (hidden, (rows, width)), "matrix": (matrix, (size, width))}
    check("final_logits", {**given, "out": (out, (rows, size))})
    grid = (-(-size // VOCABULARY_BLOCK),)
    launch(logits_kernel, grid, hidden, matrix, out, rows, size, width, **head_blocks(hidden))
