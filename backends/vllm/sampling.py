"""Repairs what vLLM 0.32 does wrong on a CPU where it samples. Greedy decoding meets neither.

To verify drafts, vLLM gives each of them its request's temperature, top_k and top_p. On a CPU it
writes them into a copy that it throws away (vLLM's issue 55005), so that logits are divided by what
happened to lie in memory: few drafts are accepted, and the text does not follow the model's
distribution.

A prompt that is read in several steps draws a token in each, which vLLM drops, and it turns the
request's random numbers back by as many as a GPU's generator gives. A CPU's has no such count, and
asking for it ends the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

REPAIRED = "sampling of verified tokens on a CPU (vLLM's issue 55005)"
"""For `BackendInfo.options`."""
PROBES = ((0.7, 0.9), (0.35, 0.6))
COUNTS = (2, 3)


def keep_generators(runner: Any) -> None:
    """Have vLLM's model runner draw the tokens that it will drop without the requests' own random
    numbers, which therefore need not be turned back. Call on a CPU."""
    sample = runner.sample_tokens

    def sample_tokens(*args: Any) -> Any:
        generators = runner.input_batch.generators
        dropped = runner.discard_request_mask.np[: runner.input_batch.num_reqs].nonzero()[0]
        kept = {row: generators.pop(row) for row in dropped.tolist() if row in generators}
        try:
            return sample(*args)
        finally:
            generators.update(kept)

    runner.sample_tokens = sample_tokens


def repair_expansion(worker: Any) -> bool:
    """Replace vLLM's function in this process where it does not do what it says; whether it stands
    replaced. Call on a CPU, where the model is: only there vLLM's CPU functions are in place."""
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
