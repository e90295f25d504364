"""A BERT encoder (Devlin et al. 2018) under transformers' parameter names, with DeeBERT's ramps.

Batches are packed: linear layers run over the tokens of all inputs at once, attention over the
inputs of one length, rounded up to `BUCKET`. So the padding of an input, and with it its numbers,
do not depend on who runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn import functional

from backends.classifiers.models.base import RowState
from backends.classifiers.models.shapes import EncoderShape

BUCKET = 16
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
}


@dataclass(slots=True)
class PackedBatch:
    """Tokens of all inputs one after the other; inputs of one padded length stand together."""

    flat: Tensor
    """(tokens with padding, width)"""
    groups: tuple[tuple[int, int], ...]
    """Inputs and their padded length."""
    lengths: tuple[int, ...]
    masks: tuple[Tensor | None, ...]
    """By group (inputs, 1, 1, padded length), added to scores; None where nothing is padding."""

    def pick(self, places: Sequence[int]) -> PackedBatch:
        """The inputs at these places, ascending."""
        states = self.split()
        return pack([states[place] for place in places])

    def split(self) -> list[RowState]:
        """Views of each input's tokens."""
        sizes = [padded for count, padded in self.groups for _ in range(count)]
        parts = torch.split(self.flat, sizes)
        return [RowState(part, length) for part, length in zip(parts, self.lengths, strict=True)]

    def first_tokens(self) -> Tensor:
        """(inputs, width): the states of the tokens that stand for their inputs."""
        found, start = [], 0
        for count, padded in self.groups:
            found.append(self.flat[start : start + count * padded : padded])
            start += count * padded
        return torch.cat(found) if len(found) > 1 else found[0]


def pack(states: Sequence[RowState]) -> PackedBatch:
    """One batch of states, those of one padded length beside each other."""
    groups, masks, lengths = [], [], [state.length for state in states]
    start = 0
    for padded, members in groupby(states, key=lambda state: len(state.hidden)):
        count = len(list(members))
        own = lengths[start : start + count]
        start += count
        groups.append((count, padded))
        masks.append(_mask(own, padded, states[0].hidden))
    flat = torch.cat([state.hidden for state in states])
    return PackedBatch(flat, tuple(groups), tuple(lengths), tuple(masks))


def _mask(lengths: Sequence[int], padded: int, like: Tensor) -> Tensor | None:
    if min(lengths) == padded:
        return None
    places = torch.arange(padded)
    hidden = places >= torch.tensor(lengths)[:, None]
    mask = torch.zeros(hidden.shape, dtype=like.dtype).masked_fill_(hidden, float("-inf"))
    return mask[:, None, None, :]


class _Embeddings(nn.Module):
    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(shape.vocabulary, shape.width)
        self.position_embeddings = nn.Embedding(shape.positions, shape.width)
        self.token_type_embeddings = nn.Embedding(shape.types, shape.width)
        self.LayerNorm = nn.LayerNorm(shape.width, eps=shape.epsilon)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        both = self.word_embeddings(tokens) + self.token_type_embeddings.weight[0]
        found: Tensor = self.LayerNorm(both + self.position_embeddings(places))
        return found


class _Projections(nn.Module):
    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.query = nn.Linear(shape.width, shape.width)
        self.key = nn.Linear(shape.width, shape.width)
        self.value = nn.Linear(shape.width, shape.width)


class _Sum(nn.Module):
    """A projection back to the residual stream, and the norm after it."""

    def __init__(self, source: int, shape: EncoderShape) -> None:
        super().__init__()
        self.dense = nn.Linear(source, shape.width)
        self.LayerNorm = nn.LayerNorm(shape.width, eps=shape.epsilon)

    def forward(self, inner: Tensor, stream: Tensor) -> Tensor:
        found: Tensor = self.LayerNorm(self.dense(inner) + stream)
        return found


class _Attention(nn.Module):
    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.self = _Projections(shape)
        self.output = _Sum(shape.width, shape)
        self._heads = shape.heads

    def forward(self, batch: PackedBatch) -> Tensor:
        queries, keys, values = (
            linear(batch.flat) for linear in (self.self.query, self.self.key, self.self.value)
        )
        found, start = [], 0
        for (count, padded), mask in zip(batch.groups, batch.masks, strict=True):
            end = start + count * padded
            q, k, v = (
                x[start:end].view(count, padded, self._heads, -1).transpose(1, 2)
                for x in (queries, keys, values)
            )
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            found.append(mixed.transpose(1, 2).reshape(count * padded, -1))
            start = end
        joined: Tensor = self.output(torch.cat(found), batch.flat)
        return joined


class _Inner(nn.Module):
    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.width, shape.feed_forward)


class EncoderLayer(nn.Module):
    """One layer, norms after the sums."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.attention = _Attention(shape)
        self.intermediate = _Inner(shape)
        self.output = _Sum(shape.feed_forward, shape)
        self._activation = ACTIVATIONS[shape.activation]

    def forward(self, batch: PackedBatch) -> PackedBatch:
        """The batch after the layer."""
        flat = self.attention(batch)
        inner = self._activation(self.intermediate.dense(flat))
        return PackedBatch(self.output(inner, flat), batch.groups, batch.lengths, batch.masks)


class _Pooler(nn.Module):
    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.width, shape.width)

    def forward(self, first: Tensor) -> Tensor:
        return torch.tanh(self.dense(first))


class DeeBertRamp(nn.Module):
    """A pooler of its own and a classifier (DeeBERT's ``highway``)."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.pooler = _Pooler(shape)
        self.classifier = nn.Linear(shape.width, shape.classes)

    def forward(self, first: Tensor) -> Tensor:
        """(n, classes) logits of (n, width) first tokens."""
        found: Tensor = self.classifier(self.pooler(first))
        return found


class _Layers(nn.Module):
    def __init__(self, shape: EncoderShape, ramps: Sequence[int]) -> None:
        super().__init__()
        self.layer = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.layers))
        self.highway = nn.ModuleDict({str(number - 1): DeeBertRamp(shape) for number in ramps})


class _Bert(nn.Module):
    def __init__(self, shape: EncoderShape, ramps: Sequence[int]) -> None:
        super().__init__()
        self.embeddings = _Embeddings(shape)
        self.encoder = _Layers(shape, ramps)
        self.pooler = _Pooler(shape)


class BertClassifier(nn.Module):
    """The encoder, a ramp behind each layer that `ramps` names, from 1, and the classifier."""

    def __init__(self, shape: EncoderShape, ramps: Sequence[int]) -> None:
        super().__init__()
        self.bert = _Bert(shape, ramps)
        self.classifier = nn.Linear(shape.width, shape.classes)
        self.shape = shape
        self.depth, self.classes, self.longest = shape.layers, shape.classes, shape.positions
        self.vocabulary = shape.vocabulary
        self.ramps = tuple(ramps)

    def start(self, prompts: Sequence[Sequence[int]]) -> list[RowState]:
        """Embeddings of each prompt, (length rounded up to `BUCKET`, width)."""
        padded = [min(-(-len(p) // BUCKET) * BUCKET, self.longest) for p in prompts]
        tokens = [[*p, *[0] * (end - len(p))] for p, end in zip(prompts, padded, strict=True)]
        places = torch.cat([torch.arange(end) for end in padded])
        ids = torch.tensor([token for row in tokens for token in row])
        flat: Tensor = self.bert.embeddings(ids, places)
        parts = torch.split(flat, padded)
        return [RowState(part, len(p)) for part, p in zip(parts, prompts, strict=True)]

    def gather(self, states: Sequence[RowState]) -> PackedBatch:
        """One packed batch."""
        return pack(states)

    def layer(self, number: int, batch: PackedBatch) -> PackedBatch:
        """Run layer `number`, from 1."""
        found: PackedBatch = self.bert.encoder.layer[number - 1](batch)
        return found

    def ramp(self, number: int, batch: PackedBatch) -> Tensor:
        """(n, classes) float32 logits of the ramp behind `number` layers."""
        found: Tensor = self.bert.encoder.highway[str(number - 1)](batch.first_tokens())
        return found.float()

    def final(self, batch: PackedBatch) -> Tensor:
        """(n, classes) float32 logits."""
        found: Tensor = self.classifier(self.bert.pooler(batch.first_tokens()))
        return found.float()
