"""Early exit of one sequence in plain torch, from the definition alone. Two lists for each layer
are its cache, no batch and no kernel; a layer left out gets the keys and values of the state that
the token left with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from backends.engine.sampling import TokenSampling, draw
from tests.support.engine.random_models import RandomModel

Leaves = Callable[[int, int, float], bool]
"""Whether token number n of an answer (0 follows the prompt's own) leaves at exit number i, where
the best token is so far above the second in probability."""


@dataclass
class ExitDecoder:
    """Decodes one sequence of a random model in float32."""

    model: RandomModel
    exits: tuple[int, ...]
    leaves: Leaves
    depths: list[int] = field(default_factory=list)
    """After how many layers each token of the answer left, its first one apart."""
    nearest: float = math.inf
    """How near the two best logits ever came where one was chosen."""

    def __post_init__(self) -> None:
        layers = range(self.model.architecture.layers)
        self._keys: list[list[Tensor]] = [[] for _ in layers]
        self._values: list[list[Tensor]] = [[] for _ in layers]

    def answer(
        self,
        prompt: Sequence[int],
        most: int,
        stops: frozenset[int] = frozenset(),
        sampling: TokenSampling | None = None,
    ) -> list[int]:
        """Up to and including a stop token, `most` at the most."""
        for token in prompt[:-1]:
            self._step(token, None)
        found: list[int] = []
        token, number = prompt[-1], -1
        while not found or (len(found) < most and found[-1] not in stops):
            logits = self._step(token, number if found else None)
            best = logits.topk(2).values
            self.nearest = min(self.nearest, float(best[0] - best[1]))
            place = len(prompt) + len(found)
            token = int(logits.argmax()) if sampling is None else draw(logits, sampling, place)[0]
            found.append(token)
            number += 1
        return found

    def _step(self, token: int, number: int | None) -> Tensor:
        """(vocabulary,) logits after the token, by the exit it leaves at; None: at none."""
        weights, shape = self.model.weights, self.model.architecture
        x = weights.embedding[token].float()
        left = shape.layers
        for layer in range(shape.layers):
            self._remember(layer, x)
            if layer >= left:
                continue
            x = x + self._attended(layer, x)
            block = weights.layers[layer]
            gate, up = (block.gate_up.float() @ self._norm(x, block.post_norm)).chunk(2)
            x = x + block.down.float() @ (gate / (1 + torch.exp(-gate)) * up)
            if number is not None and layer + 1 in self.exits:
                best = self._logits(x).softmax(-1).topk(2).values
                index = self.exits.index(layer + 1)
                if self.leaves(number, index, float(best[0] - best[1])):
                    left = layer + 1
        if number is not None:
            self.depths.append(left)
        return self._logits(x)

    def _remember(self, layer: int, x: Tensor) -> None:
        block, shape = self.model.weights.layers[layer], self.model.architecture
        joined = self._joined(layer, x)[shape.query_size :]
        keys, values = joined.view(2, shape.kv_heads, shape.head_dim)
        self._keys[layer].append(self._turned(keys, block.k_norm, len(self._keys[layer])))
        self._values[layer].append(values)

    def _attended(self, layer: int, x: Tensor) -> Tensor:
        block, shape = self.model.weights.layers[layer], self.model.architecture
        queries = self._joined(layer, x)[: shape.query_size].view(shape.heads, shape.head_dim)
        queries = self._turned(queries, block.q_norm, len(self._keys[layer]) - 1)
        group = shape.heads // shape.kv_heads
        keys, values = (
            torch.stack(kept).repeat_interleave(group, 1)
            for kept in (self._keys[layer], self._values[layer])
        )
        scores = torch.einsum("hd,phd->hp", queries, keys) / math.sqrt(shape.head_dim)
        mixed = torch.einsum("hp,phd->hd", scores.softmax(-1), values)
        return block.out.float() @ mixed.flatten()

    def _joined(self, layer: int, x: Tensor) -> Tensor:
        block = self.model.weights.layers[layer]
        found = block.qkv.float() @ self._norm(x, block.input_norm)
        return found if block.qkv_bias is None else found + block.qkv_bias.float()

    def _turned(self, heads: Tensor, gain: Tensor | None, position: int) -> Tensor:
        if gain is not None:
            heads = torch.stack([self._norm(head, gain) for head in heads])
        angles = torch.tensor(self.model.architecture.inverse_frequencies) * position
        low, high = heads.chunk(2, -1)
        turned = low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()
        return torch.cat(turned, -1)

    def _logits(self, x: Tensor) -> Tensor:
        return self.model.weights.head.float() @ self._norm(x, self.model.weights.norm)

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean() + self.model.weights.epsilon) * gain
