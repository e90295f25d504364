"""Muon for the matrices and AdamW for embeddings and norms, with one schedule for both."""

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any

from torch import nn
from torch.optim import AdamW, Muon, Optimizer


def build(model: nn.Module, muon_lr: float, adam_lr: float, groups: int = 2) -> list[Optimizer]:
    """Return the optimizers; the matrices are spread over Muons that can step side by side."""
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    made: list[Optimizer] = [
        Muon(matrices[i::groups], lr=muon_lr, momentum=0.95, weight_decay=0.02)
        for i in range(groups)
    ]
    made.append(AdamW(others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0, foreach=True))
    for optimizer in made:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return made


def learning_rate(step: int, steps: int, warm_up: int = 40, decay: float = 0.4) -> float:
    """Return the factor of the learning rate: linear warm-up, constant, linear decay to 2%."""
    rising = (step + 1) / warm_up
    falling = 0.02 + 0.98 * (steps - step) / (steps * decay)
    return min(1.0, rising, falling)


def apply(optimizers: Iterable[Optimizer], factor: float, pool: Executor) -> None:
    """Step all optimizers at a factor of their initial rates, in the pool's threads."""

    def work(optimizer: Optimizer) -> Any:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        optimizer.step()

    list(pool.map(work, optimizers))
