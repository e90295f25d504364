"""Sampling on the device: the very tokens and probabilities of `backends.engine.sampling.draw`.

Three launches: the highest logit of each block of the vocabulary; of each token its mass and its
score in the race; then one program per row, which finds the best score that `top_p` keeps. Each
step of the series is one rounded operation in the definition's order, so these kernels run without
fused multiply-adds. Masses are whole numbers, whose sums have no order. Nothing is sorted: what is
kept is a prefix of the tokens in the order of their masses, so whatever stands at or behind a token
that is out is out with it, and the mass before one token tells of all behind.

A literal in arithmetic with a float64 tensor is float64. Compared with one it is float32 in some
versions of Triton, unless it is named so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.kernels.triton_runtime import check, jit, launch, power_of_2, tl

TOKENS_BLOCK = 1024
"""Of the vocabulary, per program of the first two kernels."""
TOGETHER = 4
"""Blocks that the last kernel reads in one step, or passes over."""


@dataclass(frozen=True, slots=True)
class SamplingScratch:
    """Between the launches of `sample`: per row its tokens, and its blocks of the vocabulary."""

    masses: Tensor
    """[rows, V] int64: of each token, out of 2^44 for the most probable."""
    scores: Tensor
    """[rows, V] float64"""
    highest: Tensor
    """[rows, blocks] float32: logits."""
    totals: Tensor
    """[rows, blocks] int64: masses."""
    heaviest: Tensor
    """[rows, blocks] int64: the greatest mass."""
    best: Tensor
    """[rows, blocks] float64: scores."""
    places: Tensor
    """[rows, blocks] int32: the lowest token with the best score."""

    @classmethod
    def allocate(cls, rows: int, size: int, device: torch.device | str) -> SamplingScratch:
        """For up to `rows` rows of logits over a vocabulary of `size`: 16 bytes for each logit."""
        shape = (rows, -(-size // TOKENS_BLOCK))
        return cls(
            torch.empty(rows, size, dtype=torch.int64, device=device),
            torch.empty(rows, size, dtype=torch.float64, device=device),
            torch.empty(shape, dtype=torch.float32, device=device),
            torch.empty(shape, dtype=torch.int64, device=device),
            torch.empty(shape, dtype=torch.int64, device=device),
            torch.empty(shape, dtype=torch.float64, device=device),
            torch.empty(shape, dtype=torch.int32, device=device),
        )


@jit
def mixed(state: tl.tensor) -> tl.tensor:
    """SplitMix64's step of a uint64."""
    state = state + 0x9E3779B97F4A7C15
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB
    return state ^ (state >> 31)


@jit
def logarithm(x: tl.tensor) -> tl.tensor:
    """Of normal positive float64 numbers: `sampling._logarithm`."""
    bits = x.to(tl.int64, bitcast=True)
    m = ((bits & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000).to(tl.float64, bitcast=True)
    exponent = (bits >> 52) - 1022
    small = m <= tl.full([], 0.7071067811865476, tl.float64)
    m = tl.where(small, m * 2.0, m)
    exponent = tl.where(small, exponent - 1, exponent)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = z * (1.0 / 21) + 1.0 / 19
    for odd in tl.static_range(17, 1, -2):
        series = series * z + 1.0 / odd
    return exponent.to(tl.float64) * 0.6931471805599453 + (s * z * series + s) * 2.0


@jit
def exponential(x: tl.tensor) -> tl.tensor:
    """Of float64 numbers up to 0: `sampling._exponential`."""
    inside = x >= -700.0
    x = tl.where(inside, x, 0.0)
    n = (x * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0
    r = (x - n * 0.6931471806019545) - n * -4.2009150726810846e-11
    series = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0
    series = series * r + 1.0 / 39916800.0
    series = series * r + 1.0 / 3628800.0
    series = series * r + 1.0 / 362880.0
    series = series * r + 1.0 / 40320.0
    series = series * r + 1.0 / 5040.0
    series = series * r + 1.0 / 720.0
    series = series * r + 1.0 / 120.0
    series = series * r + 1.0 / 24.0
    series = series * r + 1.0 / 6.0
    series = series * r + 1.0 / 2.0
    series = series * r + 1.0
    series = series * r + 1.0
    # the result is a normal number, so the product is exact
    scale = ((n.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    return tl.where(inside, series * scale, 0.0)


@jit
def highest_kernel(
    logits: tl.tensor, highest: tl.tensor, size: tl.tensor, blocks: tl.tensor, block: tl.constexpr
) -> None:
    """One program per block of the vocabulary and row; NaN counts as -inf."""
    row = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(logits + row * size + place, mask=place < size, other=float("-inf"))
    top = tl.max(tl.where(x == x, x, float("-inf")), 0)
    tl.store(highest + row * blocks + tl.program_id(0), top)


@jit
def race_kernel(
    logits: tl.tensor,
    temperature: tl.tensor,
    seed: tl.tensor,
    position: tl.tensor,
    highest: tl.tensor,
    masses: tl.tensor,
    scores: tl.tensor,
    totals: tl.tensor,
    heaviest: tl.tensor,
    best: tl.tensor,
    places: tl.tensor,
    size: tl.tensor,
    blocks: tl.tensor,
    block: tl.constexpr,
    all_blocks: tl.constexpr,
) -> None:
    """One program per block of the vocabulary and row."""
    row = tl.program_id(1).to(tl.int64)
    every = tl.arange(0, all_blocks)
    tops = tl.load(highest + row * blocks + every, mask=every < blocks, other=float("-inf"))
    top = tl.max(tops, 0).to(tl.float64)
    place = tl.program_id(0) * block + tl.arange(0, block)
    held = place < size
    x = tl.load(logits + row * size + place, mask=held, other=float("-inf")).to(tl.float64)
    weight = exponential((x - top) / tl.load(temperature + row))
    start = mixed(tl.load(seed + row).to(tl.uint64, bitcast=True))
    where = tl.load(position + row).to(tl.int64).to(tl.uint64, bitcast=True)
    start = mixed(start ^ (where * 0x9E3779B97F4A7C15))
    bits = mixed(start + place.to(tl.uint64) * 0x9E3779B97F4A7C15) >> 12
    even = (bits.to(tl.float64) + 0.5) * 2.220446049250313e-16
    score = weight / -logarithm(even)
    # beside 2^52 the lowest bits count wholes; ties go to the even one, as np.rint has it
    shifted = weight * 17592186044416.0 + 4503599627370496.0
    mass = shifted.to(tl.int64, bitcast=True) & 0xFFFFFFFFFFFFF
    tl.store(masses + row * size + place, mass, mask=held)
    tl.store(scores + row * size + place, score, mask=held)
    score = tl.where(held, score, -1.0)
    leading = tl.max(score, 0)
    cell = row * blocks + tl.program_id(0)
    tl.store(totals + cell, tl.sum(mass, 0))
    tl.store(heaviest + cell, tl.max(mass, 0))
    tl.store(best + cell, leading)
    tl.store(places + cell, tl.min(tl.where(score == leading, place, 2147483647), 0))


@jit
def settle_kernel(
    top_p: tl.tensor,
    masses: tl.tensor,
    scores: tl.tensor,
    totals: tl.tensor,
    heaviest: tl.tensor,
    best: tl.tensor,
    places: tl.tensor,
    tokens: tl.tensor,
    sure: tl.tensor,
    size: tl.tensor,
    blocks: tl.tensor,
    chunk: tl.constexpr,
    all_chunks: tl.constexpr,
    together: tl.constexpr,
) -> None:
    """One program per row. A chunk is `together` blocks; one without a mass as great as the
    leader's holds nothing that stands before the leader."""
    row = tl.program_id(0).to(tl.int64)
    masses += row * size
    scores += row * size
    number = tl.arange(0, all_chunks)
    block = number[:, None] * together + tl.arange(0, together)[None, :]
    cell = row * blocks + block
    held = block < blocks
    total = tl.sum(tl.sum(tl.load(totals + cell, mask=held, other=0), 1), 0)
    most = tl.max(tl.load(heaviest + cell, mask=held, other=-1), 1)
    leads = tl.load(best + cell, mask=held, other=-1.0)
    leading = tl.max(tl.max(leads, 1), 0)
    first = tl.load(places + cell, mask=held, other=2147483647)
    token = tl.min(tl.min(tl.where(leads == leading, first, 2147483647), 1), 0)
    mass = tl.load(masses + token)
    share = tl.load(top_p + row)
    limit = share * total.to(tl.float64)
    lane = tl.arange(0, chunk)
    going = share < 1.0
    while going:
        before = tl.zeros([chunk], tl.int64)
        score = tl.full([chunk], -1.0, tl.float64)
        where = tl.full([chunk], 2147483647, tl.int32)
        here = tl.min(tl.where(most >= mass, number, all_chunks), 0)
        while here < all_chunks:
            place = here * chunk + lane
            other = tl.load(masses + place, mask=place < size, other=-1)
            ahead = (other > mass) | ((other == mass) & (place < token))
            rival = tl.load(scores + place, mask=ahead, other=-1.0)
            before += tl.where(ahead, other, 0)
            where = tl.where(rival > score, place, where)
            score = tl.where(rival > score, rival, score)
            here = tl.min(tl.where((most >= mass) & (number > here), number, all_chunks), 0)
        passed = tl.sum(before, 0)
        going = (passed > 0) & (passed.to(tl.float64) >= limit)
        if going:
            leading = tl.max(score, 0)
            token = tl.min(tl.where(score == leading, where, 2147483647), 0)
            mass = tl.load(masses + token)
    certainty = (mass.to(tl.float64) / total.to(tl.float64)).to(tl.float32)
    tl.store(tokens + row, tl.where(total > 0, token, -1))
    tl.store(sure + row, tl.where(total > 0, certainty, 0.0))


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    seed: Tensor,
    position: Tensor,
    scratch: SamplingScratch,
    tokens: Tensor,
    sure: Tensor,
) -> None:
    """(tokens[r], sure[r]) = draw(logits[r], (temperature[r], top_p[r], seed[r]), position[r]) of
    `backends.engine.sampling`, to the last bit.

    logits [rows, V] float32; temperature and top_p [rows] float64; seed [rows] int64: the bits of
    the seed modulo 2^64; position [rows] int32 or int64; tokens [rows] int32; sure [rows] float32;
    scratch for this vocabulary and at least as many rows. NaN and infinite logits are those of the
    definition: without a finite highest logit, token -1 with probability 0. Allocates nothing and
    waits for nothing. Raises EngineError for what does not fit.
    """
    rows, size = logits.shape
    blocks = -(-size // TOKENS_BLOCK)
    row, whole, parts = (rows,), (rows, size), (rows, blocks)
    expected: dict[str, tuple[Tensor, tuple[int, ...], torch.dtype]] = {
        "logits": (logits, whole, torch.float32),
        "temperature": (temperature, row, torch.float64),
        "top_p": (top_p, row, torch.float64),
        "seed": (seed, row, torch.int64),
        "position": (position, row, position.dtype),
        "masses": (scratch.masses[:rows], whole, torch.int64),
        "scores": (scratch.scores[:rows], whole, torch.float64),
        "highest": (scratch.highest[:rows], parts, torch.float32),
        "totals": (scratch.totals[:rows], parts, torch.int64),
        "heaviest": (scratch.heaviest[:rows], parts, torch.int64),
        "best": (scratch.best[:rows], parts, torch.float64),
        "places": (scratch.places[:rows], parts, torch.int32),
        "tokens": (tokens, row, torch.int32),
        "sure": (sure, row, torch.float32),
    }
    check("sample", {name: (tensor, shape) for name, (tensor, shape, _) in expected.items()})
    for name, (tensor, _, dtype) in expected.items():
        if tensor.dtype != dtype:
            raise EngineError(f"kernel sample: {name} is {tensor.dtype}, expected {dtype}")
    race = (scratch.masses, scratch.scores, scratch.totals, scratch.heaviest)
    leads = (scratch.best, scratch.places)
    each: dict[str, Any] = {"block": TOKENS_BLOCK, "num_warps": 4, "enable_fp_fusion": False}
    launch(highest_kernel, (blocks, rows), *(logits, scratch.highest, size, blocks), **each)
    launch(
        race_kernel,
        (blocks, rows),
        *(logits, temperature, seed, position, scratch.highest, *race, *leads, size, blocks),
        all_blocks=power_of_2(blocks),
        **each,
    )
    launch(
        settle_kernel,
        (rows,),
        *(top_p, *race, *leads, tokens, sure, size, blocks),
        chunk=TOKENS_BLOCK * TOGETHER,
        all_chunks=power_of_2(-(-blocks // TOGETHER)),
        together=TOGETHER,
        num_warps=16,
        enable_fp_fusion=False,
    )
