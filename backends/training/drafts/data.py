"""What draft heads learn from: whole texts with the target's states, and what it says next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from backends.engine.model.forward import rms_norm
from backends.training.drafts.eagle_head import Texts
from backends.training.exits.backbone import Backbone
from backends.training.exits.cache import Cache
from backends.training.exits.data import TrainPrompt
from backends.training.exits.memory import in_halves

R = TypeVar("R")
TOKENS = {"cpu": 4096, "cuda": 32768}
LOGITS = {"cpu": 1 << 23, "cuda": 1 << 28}
"""Positions, padding included, and logits of one draft that are computed at once."""


@dataclass(frozen=True)
class DraftTexts:
    """A few texts to learn from.

    `texts` is what is drafted from; `final` [B, A, d] the target's last states, normed, at the
    positions drafted from; `taught` float32 [N, V] the log-probabilities of the target, and
    `wanted` int64 [N] the tokens of its answer, where `texts.valid(0)`: of the token after the next
    one.
    """

    texts: Texts
    final: Tensor
    taught: Tensor
    wanted: Tensor


class DraftData:
    """Prompts with their answers, and the cached states of their whole texts."""

    def __init__(
        self,
        backbone: Backbone,
        pairs: Sequence[tuple[TrainPrompt, list[int]]],
        cache: Cache,
        held_out: bool,
    ) -> None:
        self.backbone, self.cache = backbone, cache
        self.used = [
            (prompt, answer)
            for prompt, answer in pairs
            if prompt.held_out == held_out and len(answer) > 1
        ]

    def __len__(self) -> int:
        return len(self.used)

    @cached_property
    def longest(self) -> int:
        """Positions of the longest text."""
        return max(len(prompt.ids) + len(answer) for prompt, answer in self.used)

    def over(
        self, answers: Sequence[int], work: Callable[[DraftTexts], R]
    ) -> Iterator[tuple[list[int], R]]:
        """Do `work` on the material of these answers, in groups of like length, which are halved
        where a GPU's memory is too small. Yields each group with what came of it."""
        for group in self._groups(answers):
            yield from in_halves(lambda chosen: work(self.read(chosen)), group)

    def _groups(self, answers: Sequence[int]) -> Iterator[list[int]]:
        head = self.backbone.head
        tokens = TOKENS[head.device.type]
        rows = max(1, LOGITS[head.device.type] // head.shape[0])
        sizes = {i: (len(self.used[i][0].ids), len(self.used[i][1])) for i in answers}
        order = sorted(answers, key=lambda i: (sizes[i][1], sizes[i][0], i), reverse=True)
        group: list[int] = []
        for number in order:
            wider = [*group, number]
            width = max(sum(sizes[i]) for i in wider)
            length = max(sizes[i][1] for i in wider)
            if group and (len(wider) * width > tokens or len(wider) * length > rows):
                yield group
                wider = [number]
            group = wider
        if group:
            yield group

    @torch.no_grad()
    def read(self, answers: Sequence[int]) -> DraftTexts:
        """The material of these answers, on the model's device."""
        weights, device = self.backbone.weights, self.backbone.head.device
        chosen = [self.used[i] for i in answers]
        ids = [torch.tensor(prompt.ids + answer) for prompt, answer in chosen]
        following = pad_sequence([text[1:] for text in ids], batch_first=True).to(device)
        whole = list(self.cache.batch(answers))
        states = [part.transpose(0, 1).flatten(1) for part in whole]
        counts = torch.tensor([len(answer) - 1 for _, answer in chosen], device=device)
        begins = torch.tensor([len(prompt.ids) - 1 for prompt, _ in chosen], device=device)
        texts = Texts(
            pad_sequence(states, batch_first=True).to(device),
            functional.embedding(following, weights.embedding),
            begins,
            counts,
        )
        made, places = texts.valid(0), texts.places
        rows = torch.arange(len(chosen), device=device)[:, None]
        last = texts.states[..., -weights.norm.shape[0] :].float()
        normed = rms_norm(last, weights.norm, weights.epsilon).to(self.backbone.head.dtype)
        # the logits keep the products' dtype: as targets eight bits of them are enough
        logits = normed[rows, places + 1][made] @ self.backbone.head.T
        return DraftTexts(
            texts,
            normed[rows, places],
            torch.log_softmax(logits.float(), dim=-1),
            following[rows, places + 1][made],
        )


def divergences(head: Tensor, made: Sequence[Tensor], found: DraftTexts) -> list[Tensor]:
    """The summed forward KL of each draft to the target's distribution, in nats.

    The drafts' soft cross-entropy but for the target's entropy, which no parameter moves.

    Args:
        head: E* [V, d].
        made: per draft, what goes into the head, [B, A, d].
        found: the texts.
    """
    every = found.texts.valid(0)
    sums = []
    for draft, hidden in enumerate(made):
        valid = found.texts.valid(draft)[every]
        logits = (hidden[every][valid] @ head.T).float()
        taught = found.taught[valid]
        sums.append(
            functional.kl_div(
                functional.log_softmax(logits, dim=-1), taught, reduction="sum", log_target=True
            )
        )
    return sums


def right(head: Tensor, made: Sequence[Tensor], found: DraftTexts) -> Tensor:
    """bool [B, A, drafts]: whether draft j of the row that began at a column is the answer's token,
    if those before it were; false behind the answer's end.

    Args:
        head, made, found: as in `divergences`.
    """
    every, (rows, columns) = found.texts.valid(0), found.texts.places.shape
    same = torch.zeros(rows, columns, len(made), dtype=torch.bool, device=head.device)
    for draft, hidden in enumerate(made):
        tokens = (hidden[every] @ head.T).argmax(dim=-1)
        at = torch.zeros(rows, columns, dtype=torch.bool, device=head.device)
        at[every] = tokens == found.wanted
        same[:, : columns - draft, draft] = (at & found.texts.valid(draft))[:, draft:]
    return same
