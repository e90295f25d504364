"""The EAGLE-3 head as vLLM computes it, unrolled over several drafts for training.

After "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test"
(Li et al. 2025, arXiv 2503.01840), sections 3.1 and 3.2. At position t the head reads the target's
fused states of t and the embedding of token t + 1, and predicts token t + 2. Draft j + 1 reads the
head's own output of draft j in the place of the fused states.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from backends.engine.drafters.eagle.sizes import ATTENTION, FEED_FORWARD, LAYER, eagle_shapes
from backends.engine.model.architecture import Architecture
from backends.engine.model.forward import Rotary


@dataclass(frozen=True)
class Texts:
    """Some texts, padded on the right to T positions, with A positions to draft from.

    `states` is [B, T, taps * d], `embedded` [B, T, d] the embedding of each position's *next*
    token, both in the dtype of the products; `begins` int64 [B] the first position to draft from:
    the prompt's last. The B-th text drafts from `counts`[B] positions in a row.
    """

    states: Tensor
    embedded: Tensor
    begins: Tensor
    counts: Tensor

    @property
    def places(self) -> Tensor:
        """int64 [B, A]: the positions to draft from, those behind a text's end repeated."""
        steps = torch.arange(int(self.counts.max()), device=self.begins.device)
        return self.begins[:, None] + torch.minimum(steps, self.counts[:, None] - 1)

    def valid(self, draft: int) -> Tensor:
        """bool [B, A]: where the given draft of a row, counted from 0, is made."""
        steps = torch.arange(int(self.counts.max()), device=self.begins.device)
        return (steps >= draft) & (steps < self.counts[:, None])


class EagleHead:
    """One decoder layer over [embedding; hidden], with its weights side by side in one vector, so
    that an optimiser sees a single parameter."""

    def __init__(self, architecture: Architecture, taps: int) -> None:
        self.architecture, self.taps = architecture, taps
        self.shapes = eagle_shapes(architecture, taps)
        self.sizes = [torch.Size(shape).numel() for shape in self.shapes.values()]

    def initial(self, norm: Tensor, seed: int) -> Tensor:
        """Weights to begin with, float32 [n]: the fusion passes the last tap's states on, but
        quietly, since they say the next token and a draft is the one after it.

        Args:
            norm: float32 [d], the gain of the target's final norm.
            seed: of the random matrices.
        """
        generator, d = torch.Generator().manual_seed(seed), self.architecture.width
        parts = {}
        for name, shape in self.shapes.items():
            if len(shape) == 1:
                parts[name] = norm.cpu().float() if name == "norm.weight" else torch.ones(shape)
                continue
            quiet = 0.3 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
            parts[name] = torch.randn(shape, generator=generator) * quiet * shape[1] ** -0.5
        fusion = parts["fc.weight"]
        fusion[:, -d:] += torch.eye(d)
        fusion *= 0.2
        return torch.cat([part.flatten() for part in parts.values()])

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of the weights under their names in a checkpoint."""
        pieces = torch.split(flat, self.sizes)
        return {
            name: piece.view(shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def unrolled(self, flat: Tensor, texts: Texts, rotary: Rotary, drafts: int) -> list[Tensor]:
        """The hidden states of `drafts` drafts in a row, before the norm.

        The keys of the first draft reach over the whole text, as the target's verified tokens do;
        a later draft j sees those up to position t - j and its own predecessors' keys of the same
        row: the shifted mask of the paper's training-time test.

        Args:
            flat: the weights, float32 [n].
            texts: what to draft from.
            rotary: angles of at least T positions.
            drafts: how many.

        Returns:
            [B, A, d] each. Column a of draft j stands at position `places[:, a]` and belongs to
            the row of drafts begun j positions before.
        """
        weights = {k: w.to(texts.states.dtype) for k, w in self.named(flat).items()}
        places = texts.places
        fused = functional.linear(texts.states, weights["fc.weight"])
        whole = self._joined(weights, texts.embedded, fused)
        every = torch.arange(whole.shape[1], device=whole.device).expand(whole.shape[:2])
        earlier = [self._keys(weights, whole, every, rotary)]
        embedded, hidden = _at(texts.embedded, places), _at(fused, places)
        found: list[Tensor] = []
        for draft in range(drafts):
            if draft:
                hidden = _later(found[-1], 1)
                joined = self._joined(weights, embedded, hidden)
                earlier.append(self._keys(weights, joined, places, rotary))
            else:
                joined = _at(whole, places)
            queries = self._heads(weights, joined, "q", places, rotary)
            hidden = hidden + self._attended(weights, queries, earlier, places)
            found.append(hidden + self._fed_forward(weights, hidden))
        return found

    def normed(self, flat: Tensor, hidden: Tensor) -> Tensor:
        """What the target's head is given."""
        return self._norm(hidden, self.named(flat)["norm.weight"].to(hidden.dtype))

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return functional.rms_norm(x, gain.shape, gain, self.architecture.epsilon)

    def _joined(self, weights: dict[str, Tensor], embedded: Tensor, hidden: Tensor) -> Tensor:
        left = self._norm(embedded, weights[LAYER + "input_layernorm.weight"])
        right = self._norm(hidden, weights[LAYER + "hidden_norm.weight"])
        return torch.cat((left, right), dim=-1)

    def _heads(
        self, weights: dict[str, Tensor], joined: Tensor, part: str, places: Tensor, rotary: Rotary
    ) -> Tensor:
        """[B, heads, positions, head_dim], rotated unless they are values."""
        flat = functional.linear(joined, weights[f"{ATTENTION}{part}_proj.weight"])
        heads = flat.view(*flat.shape[:2], -1, self.architecture.head_dim)
        if part != "v":
            heads = rotary.at(places).turn(heads.float()).to(flat.dtype)
        return heads.transpose(1, 2)

    def _keys(
        self, weights: dict[str, Tensor], joined: Tensor, places: Tensor, rotary: Rotary
    ) -> tuple[Tensor, Tensor]:
        keys = self._heads(weights, joined, "k", places, rotary)
        return keys, self._heads(weights, joined, "v", places, rotary)

    def _attended(
        self,
        weights: dict[str, Tensor],
        queries: Tensor,
        earlier: list[tuple[Tensor, Tensor]],
        places: Tensor,
    ) -> Tensor:
        """Attention of the last draft's queries [B, heads, A, head_dim] over all drafts' keys."""
        draft = len(earlier) - 1
        (keys, values), own = earlier[0], earlier[1:]
        split = (len(queries), keys.shape[1], -1, *queries.shape[2:])
        grouped = queries.reshape(split) * queries.shape[-1] ** -0.5
        seen = torch.arange(keys.shape[2], device=keys.device) <= places[..., None] - draft
        scores = grouped @ keys[:, :, None].transpose(-1, -2)
        parts = [scores.masked_fill(~seen[:, None, None], -torch.inf)]
        shifted = [
            (_later(k, draft - i)[:, :, None], _later(v, draft - i)[:, :, None])
            for i, (k, v) in enumerate(own, start=1)
        ]
        parts += [(grouped * k).sum(dim=-1, keepdim=True) for k, _ in shifted]
        chances = functional.softmax(torch.cat(parts, dim=-1).float(), dim=-1).to(values.dtype)
        mixed = chances[..., : keys.shape[2]] @ values[:, :, None]
        for i, (_, v) in enumerate(shifted):
            mixed = mixed + chances[..., keys.shape[2] + i, None] * v
        flat = mixed.flatten(1, 2).transpose(1, 2).flatten(2)
        return functional.linear(flat, weights[f"{ATTENTION}o_proj.weight"])

    def _fed_forward(self, weights: dict[str, Tensor], hidden: Tensor) -> Tensor:
        x = self._norm(hidden, weights[LAYER + "post_attention_layernorm.weight"])
        gate, up = (
            functional.linear(x, weights[f"{FEED_FORWARD}{part}_proj.weight"])
            for part in ("gate", "up")
        )
        return functional.linear(
            functional.silu(gate) * up, weights[f"{FEED_FORWARD}down_proj.weight"]
        )


def _at(x: Tensor, places: Tensor) -> Tensor:
    """[B, A, d]: the rows of [B, T, d] at some places."""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))


def _later(x: Tensor, by: int) -> Tensor:
    """Move (..., A, d) towards the end, zeros in front."""
    return functional.pad(x, (0, 0, by, 0))[..., : x.shape[-2], :]
