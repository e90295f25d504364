"""Repairs how vLLM verifies sampled drafts on a CPU.

To verify, vLLM gives each drafted token its request's temperature, top_k and top_p. On a CPU
vLLM 0.32 writes them into a copy that it throws away (vLLM's issue 55005), so that logits are divided by what
happened to lie in memory: few drafts are accepted, and the text does not follow the model's
distribution. Greedy decoding never asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

REPAIRED = "sampling of verified tokens on a CPU (vLLM's issue 55005)"
"""For `BackendInfo.options`."""
PROBES = ((0.7, 0.9), (0.35, 0.6))
COUNTS = (2, 3)


def repair_expansion() -> bool:
    """Replace vLLM's function in this process where it does not do what it says; whether it stands
    replaced. Call on a CPU, once vLLM has an engine: only then its CPU functions are in place."""
    from vllm.v1.sample import rejection_sampler

    if not expands(rejection_sampler.expand_batch_to_tokens):
        rejection_sampler.expand_batch_to_tokens = expand
    return rejection_sampler.expand_batch_to_tokens is expand


def expands(function: Any) -> bool:
    """Whether a function with the arguments of `expand` gives what `expand` gives."""
    import torch

    ends = torch.tensor(COUNTS, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    seen = []
    for values in PROBES:
        x = torch.tensor(values)
        # the first answer is kept, or the second might find it in the memory that became free
        seen.append((function(x, ends, sum(COUNTS)), expand(x, ends, sum(COUNTS))))
    return all(torch.equal(found, right) for found, right in seen)


def expand(
    x: Tensor, cu_num_tokens: Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
) -> Tensor:
    """Give each request's value to all of its tokens.

    Args:
        x: a value for each request, [requests], any dtype, which the answer has too.
        cu_num_tokens: tokens up to and with each request's, [requests], int32.
        num_tokens: the last of them.
        replace_from: the value that `replace_to` stands in for.
        replace_to: see above.

    Returns:
        [num_tokens]
    """
    import torch

    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    spread = x.repeat_interleave(counts, output_size=num_tokens)
    return spread.masked_fill(spread == replace_from, replace_to)
