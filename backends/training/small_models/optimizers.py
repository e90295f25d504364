"""Muon for the matrices and AdamW for embeddings and norms, with one schedule for both."""

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

SIDE_BY_SIDE = 2
"""Muons that the matrices are spread over."""
WARM_UP = 40
"""Steps."""


def build(model: nn.Module, muon_lr: float, adam_lr: float) -> list[Optimizer]:
    """Return the optimizers; the Muons can step side by side."""
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    made: list[Optimizer] = [
        Muon(matrices[i::SIDE_BY_SIDE], lr=muon_lr, momentum=0.95, weight_decay=0.02)
        for i in range(SIDE_BY_SIDE)
    ]
    made.append(AdamW(others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0, foreach=True))
    for optimizer in made:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return made


def learning_rate(step: int, steps: int, decay: float) -> float:
    """Return the factor of the learning rate: linear warm-up, constant, linear decay to 2%."""
    rising = (step + 1) / WARM_UP
    falling = 0.02 + 0.98 * (steps - step) / (steps * decay)
    return min(1.0, rising, falling)


def apply(optimizers: Iterable[Optimizer], factor: float, pool: Executor) -> None:
    """Step all optimizers at a factor of their initial rates, in the pool's threads."""

    def work(optimizer: Optimizer) -> Any:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        optimizer.step()

    list(pool.map(work, optimizers))
