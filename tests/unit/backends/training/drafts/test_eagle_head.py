"""The unrolled EAGLE-3 head against drafting one token at a time, as an engine does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from backends.engine.model.architecture import Architecture
from backends.engine.model.forward import Rotary
from backends.training.drafts.eagle_head import EagleHead, Texts

SHAPE = Architecture(
    layers=4,
    width=12,
    feed_forward=20,
    heads=4,
    kv_heads=2,
    head_dim=6,
    vocabulary=30,
    tied=True,
    family="llama",
    epsilon=1e-5,
    positions=64,
    inverse_frequencies=(1.0, 0.1, 0.01),
)
LENGTHS = [(9, 4, 5), (7, 1, 6), (3, 0, 2)]
"""Positions of each text, the first drafted from, and how many are."""


def texts(states: list[Tensor], embedded: list[Tensor]) -> Texts:
    pad = torch.nn.utils.rnn.pad_sequence
    return Texts(
        pad(states, batch_first=True, padding_value=9.0),
        pad(embedded, batch_first=True, padding_value=-9.0),
        torch.tensor([begin for _, begin, _ in LENGTHS]),
        torch.tensor([count for _, _, count in LENGTHS]),
    )


def norm(x: Tensor, gain: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + SHAPE.epsilon) * gain


def turned(x: Tensor, place: int) -> Tensor:
    """One head's vector, rotated to a position."""
    angles = torch.tensor(SHAPE.inverse_frequencies) * place
    low, high = x[:3], x[3:]
    return torch.cat(
        (low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin())
    )


class OneByOne:
    """The head with a cache of keys and values, one position a call."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.w = weights
        self.cache: dict[int, tuple[list[Tensor], list[Tensor]]] = {}

    def __call__(self, place: int, embedded: Tensor, hidden: Tensor) -> Tensor:
        w = {name.removeprefix("midlayer."): weight for name, weight in self.w.items()}
        x = torch.cat(
            (norm(embedded, w["input_layernorm.weight"]), norm(hidden, w["hidden_norm.weight"]))
        )
        q, k, v = ((w[f"self_attn.{part}_proj.weight"] @ x).view(-1, 6) for part in "qkv")
        self.cache[place] = ([turned(head, place) for head in k], list(v))
        mixed = []
        for number, head in enumerate(q):
            seen = [at for at in sorted(self.cache) if at <= place]
            keys = torch.stack([self.cache[at][0][number // 2] for at in seen])
            values = torch.stack([self.cache[at][1][number // 2] for at in seen])
            chances = (keys @ turned(head, place) / 6**0.5).softmax(0)
            mixed.append(chances @ values)
        hidden = hidden + w["self_attn.o_proj.weight"] @ torch.cat(mixed)
        y = norm(hidden, w["post_attention_layernorm.weight"])
        gate = functional.silu(w["mlp.gate_proj.weight"] @ y) * (w["mlp.up_proj.weight"] @ y)
        return hidden + w["mlp.down_proj.weight"] @ gate


@pytest.mark.parametrize("drafts", [1, 4])
def test_the_shifted_mask_is_drafting_one_token_at_a_time(drafts: int) -> None:
    torch.manual_seed(1)
    head = EagleHead(SHAPE, 3)
    flat = head.initial(torch.rand(12) + 0.5, seed=5)
    flat = flat + 0.1 * torch.randn_like(flat)
    states = [torch.randn(length, 36) for length, _, _ in LENGTHS]
    embedded = [torch.randn(length, 12) for length, _, _ in LENGTHS]
    made = head.unrolled(flat, texts(states, embedded), Rotary.build(SHAPE, 64), drafts)
    weights = head.named(flat)
    compared = 0
    for row, (_, begin, count) in enumerate(LENGTHS):
        for start in range(count):
            engine = OneByOne(weights)
            for place in range(begin + start + 1):
                fused = weights["fc.weight"] @ states[row][place]
                hidden = engine(place, embedded[row][place], fused)
            for draft in range(min(drafts, count - start)):
                if draft:
                    place = begin + start + draft
                    hidden = engine(place, embedded[row][place], hidden)
                torch.testing.assert_close(made[draft][row, start + draft], hidden)
                compared += 1
    assert compared == {1: 13, 4: 35}[drafts]


def test_padding_and_later_tokens_change_no_draft() -> None:
    torch.manual_seed(2)
    head = EagleHead(SHAPE, 3)
    flat = head.initial(torch.ones(12), seed=5)
    states, embedded = torch.randn(9, 36), torch.randn(9, 12)
    rotary = Rotary.build(SHAPE, 64)
    begins, counts = torch.tensor([2]), torch.tensor([6])
    found = head.unrolled(flat, Texts(states[None], embedded[None], begins, counts), rotary, 3)
    states, embedded = states.clone(), embedded.clone()
    states[6:], embedded[6:] = 7.0, -7.0
    other = head.unrolled(flat, Texts(states[None], embedded[None], begins, counts), rotary, 3)
    for mine, theirs in zip(found, other, strict=True):
        torch.testing.assert_close(mine[:, :4], theirs[:, :4])
        assert not torch.allclose(mine[:, 4:], theirs[:, 4:])
