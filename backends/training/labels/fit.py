"""The two ways to train a classifier with ramps.

DeeBERT (Xin et al. 2020): the network and its last classifier first; then, with these frozen, the
ramps by the sum of their cross-entropies. BranchyNet (Teerapittayanon et al. 2017): all at once, by
a weighted sum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional

from backends.classifiers.models.base import gathered
from backends.classifiers.models.bert import BertClassifier
from backends.classifiers.models.residual import ResidualClassifier
from backends.training.labels.recipe import HELD_OUT_SEED, LabelRecipe, batches, labelled_rows

Network = BertClassifier | ResidualClassifier
Encode = Callable[[Sequence[str]], list[list[int]]]
Told = Callable[[str], None]
EVERY = 200
WARM_UP = 100
CHUNK = 256
HELD_OUT = 512


def logits_of(network: Network, prompts: Sequence[Sequence[int]], ramps: bool) -> list[Tensor]:
    """(n, classes) logits behind every layer with a ramp, if asked for, and of the final
    classifier, in the order of the prompts."""
    batch, order = gathered(network, prompts)
    back, found = torch.tensor(order).argsort(), []
    for number in range(1, network.depth + 1):
        batch = network.layer(number, batch)
        if ramps and number in network.ramps:
            found.append(network.ramp(number, batch)[back])  # type: ignore[arg-type]
    return [*found, network.final(batch)[back]]


def fit(network: Network, recipe: LabelRecipe, encode: Encode, tell: Told) -> None:
    """Train the network in place: with its ramps, or those afterwards (`LabelRecipe.ramp_rows`)."""
    together = recipe.ramp_rows == 0
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=recipe.rate, weight_decay=0.01)
    started = time.monotonic()
    for step, rows in enumerate(batches(recipe)):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * _schedule(step, recipe.steps)
        wanted = torch.tensor([label for _, label in rows])
        logits = logits_of(network, encode([content for content, _ in rows]), together)
        loss = functional.cross_entropy(logits[-1], wanted)
        for one in logits[:-1]:
            loss = loss + recipe.ramp_weight * functional.cross_entropy(one, wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % EVERY == 0:
            right = held_out(network, recipe, encode)
            seconds = time.monotonic() - started
            tell(f"step {step + 1} of {recipe.steps}  held-out {right:.3f}  {seconds:.0f} s")
    network.eval()
    if not together:
        _fit_ramps(network, recipe, encode, tell)


def held_out(network: Network, recipe: LabelRecipe, encode: Encode) -> float:
    """Accuracy of the final classifier on train rows of a stream that nothing learns from."""
    network.eval()
    drawn = list(islice(labelled_rows(recipe.workload, HELD_OUT_SEED), HELD_OUT))
    with torch.inference_mode():
        logits = logits_of(network, encode([content for content, _ in drawn]), False)[-1]
    network.train()
    return float((logits.argmax(1) == torch.tensor([label for _, label in drawn])).float().mean())


def _schedule(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine to 2%."""
    rising = min(1.0, (step + 1) / WARM_UP)
    return rising * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))


def _fit_ramps(network: Network, recipe: LabelRecipe, encode: Encode, tell: Told) -> None:
    assert isinstance(network, BertClassifier)
    drawn = list(islice(labelled_rows(recipe.workload, recipe.seed + 1), recipe.ramp_rows))
    states = torch.cat(list(_first_tokens(network, encode, [content for content, _ in drawn])))
    wanted = torch.tensor([label for _, label in drawn])
    ramps = [network.bert.encoder.highway[str(number - 1)] for number in network.ramps]
    parameters = [parameter for ramp in ramps for parameter in ramp.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=recipe.ramp_rate, weight_decay=0.01)
    order = torch.Generator().manual_seed(recipe.seed)
    steps = recipe.ramp_epochs * (len(drawn) // recipe.batch)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.ramp_rate * _schedule(step, steps)
        some = torch.randint(len(drawn), (recipe.batch,), generator=order)
        losses = [
            functional.cross_entropy(ramp(states[some, place]), wanted[some])
            for place, ramp in enumerate(ramps)
        ]
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    tell(f"ramps: {steps} steps, losses " + " ".join(f"{loss.item():.3f}" for loss in losses))


@torch.no_grad()
def _first_tokens(
    network: BertClassifier, encode: Encode, contents: Sequence[str]
) -> Iterator[Tensor]:
    """(rows, ramps, width) states that the ramps read."""
    for start in range(0, len(contents), CHUNK):
        batch, order = gathered(network, encode(contents[start : start + CHUNK]))
        found = []
        for number in network.ramps:
            batch = network.layer(number, batch)
            found.append(batch.first_tokens())
        yield torch.stack(found, 1)[torch.tensor(order).argsort()]
