"""The layer-weighted loss that makes middle layers predict, and its gradient over row shards."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from backends.training.rows.batches import IGNORED, Batch, Example, collate
from backends.training.small_models.llama import Llama
from harness.core.processes.processor import multiplies_bfloat16


def products_dtype(device: str) -> torch.dtype:
    """bfloat16, as models are in use; float32 on a processor that does not multiply in it."""
    has = device != "cpu" or multiplies_bfloat16()
    return torch.bfloat16 if has else torch.float32


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


def distillation_loss(
    model: Llama, teacher: Llama, batch: Batch, dtype: torch.dtype
) -> tuple[Tensor, Losses]:
    """Return the summed cross-entropy with the teacher's distribution at answer positions.

    It differs from forward KL by the teacher's entropy, which no parameter of the model moves.
    """
    with torch.no_grad():
        taught = teacher.logits(teacher.hidden_states(batch.ids, dtype)[-1][batch.answers])
    logits = model.logits(model.hidden_states(batch.ids, dtype)[-1][batch.answers])
    loss = functional.cross_entropy(logits, taught.softmax(dim=-1), reduction="sum")
    return loss, Losses(loss.detach()[None], len(logits))


def shard_gradients(
    model: Llama,
    examples: list[Example],
    prompt_weight: float,
    dtype: torch.dtype,
    teacher: Llama | None = None,
) -> tuple[tuple[Tensor, ...], Losses]:
    """Return the gradients of a shard's summed loss, in the parameters' order, and its losses.

    With a teacher the loss is `distillation_loss`, else `shard_loss`.
    """
    parameters = list(model.parameters())
    device = parameters[0].device
    made = collate(examples)
    batch = Batch(made.ids.to(device), made.targets.to(device), made.answers.to(device))
    if teacher is None:
        loss, losses = shard_loss(model, batch, prompt_weight, dtype)
    else:
        loss, losses = distillation_loss(model, teacher, batch, dtype)
    return torch.autograd.grad(loss, parameters), losses


def set_gradients(model: Llama, shards: Sequence[tuple[Sequence[Tensor], Losses]]) -> Losses:
    """Set the parameters' gradients to the mean over the answer tokens of all shards.

    Shards are summed in their order, so the result does not depend on who computed them.
    """
    answers = sum(losses.answers for _, losses in shards)
    for index, parameter in enumerate(model.parameters()):
        total = shards[0][0][index].clone()
        for tensors, _ in shards[1:]:
            total += tensors[index]
        parameter.grad = total.div_(answers)
    return Losses(torch.stack([losses.layers for _, losses in shards]).sum(dim=0), answers)
