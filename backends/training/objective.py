"""The layer-weighted loss that makes middle layers predict, and its gradient over row shards."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from backends.training.batches import IGNORED, Batch, Example, collate
from backends.training.llama import Llama


@dataclass(frozen=True)
class Losses:
    """Sums over a shard: each layer's cross-entropy at answer positions (nats) and their count."""

    layers: Tensor
    answers: int


def layer_weights(layers: int) -> Tensor:
    """Return the weights i / sum(i) of layers 1 to `layers`, float32."""
    index = torch.arange(1, layers + 1, dtype=torch.float32)
    return index / index.sum()


def shard_loss(
    model: Llama, batch: Batch, prompt_weight: float, dtype: torch.dtype
) -> tuple[Tensor, Losses]:
    """Return the summed training loss of a shard and the per-layer sums.

    Every layer's hidden state goes through the final norm and the shared head (the early-exit
    paper's loss, sum of i * CE_i over sum of i) at answer positions; prompt positions count
    with `prompt_weight` and at the last layer only.
    """
    states = model.hidden_states(batch.ids, dtype)
    targets = batch.targets[batch.answers]
    logits = model.logits(torch.stack([state[batch.answers] for state in states]))
    entropy = functional.cross_entropy(
        logits.flatten(0, 1), targets.repeat(len(states)), reduction="none"
    ).view(len(states), -1)
    sums = entropy.sum(dim=1)
    loss = sums @ layer_weights(len(states)).to(sums.device)
    if prompt_weight:
        rest = (batch.targets != IGNORED) & ~batch.answers
        prompt_logits = model.logits(states[-1][rest])
        prompts = functional.cross_entropy(prompt_logits, batch.targets[rest], reduction="sum")
        loss = loss + prompt_weight * prompts
    return loss, Losses(sums.detach(), targets.numel())


def gradients(
    model: Llama,
    shards: Sequence[list[Example]],
    pool: Executor,
    prompt_weight: float,
    dtype: torch.dtype,
) -> Losses:
    """Set the parameters' gradients to the mean over the shards' answer tokens.

    Shards run in the pool's threads, each on one core, which on a busy machine is much faster
    than splitting every operator over the cores. They are summed in order, so the
    result does not depend on the number of threads.
    """
    parameters = list(model.parameters())
    device = parameters[0].device

    def work(rows: list[Example]) -> tuple[tuple[Tensor, ...], Losses]:
        made = collate(rows)
        batch = Batch(made.ids.to(device), made.targets.to(device), made.answers.to(device))
        loss, losses = shard_loss(model, batch, prompt_weight, dtype)
        return torch.autograd.grad(loss, parameters), losses

    done = list(pool.map(work, shards))
    answers = sum(losses.answers for _, losses in done)
    for index, parameter in enumerate(parameters):
        total = done[0][0][index].clone()
        for shard, _ in done[1:]:
            total += shard[index]
        parameter.grad = total / answers
    return Losses(torch.stack([losses.layers for _, losses in done]).sum(dim=0), answers)
