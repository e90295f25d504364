"""A Llama written for training small models fast; its weights carry Hugging Face's names."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class LlamaShape:
    """The sizes of a Llama. `heads * head_dim` need not equal `width`."""

    vocabulary: int
    layers: int = 8
    width: int = 256
    feed_forward: int = 768
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 64
    positions: int = 4096
    rope_theta: float = 10000.0
    epsilon: float = 1e-5

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes by name."""
        return asdict(self)


def rotary(positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cos and sin of the rotary angles, each float32 of shape (positions, head_dim)."""
    inverse = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), inverse)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary position embedding (the half-split form) to (..., time, head_dim)."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend causally: q (batch, heads, time, size), k and v with as many or fewer heads.

    On a CPU the products are written out: at a few hundred positions in bfloat16, PyTorch's
    fused operator takes about 2.5 times as long for the forward and backward pass.
    """
    if q.is_cuda:
        grouped = q.shape[1] != k.shape[1]
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    batch, heads, time, size = q.shape
    groups = q.reshape(batch, k.shape[1], -1, size)
    mask = torch.full((time, time), -torch.inf, dtype=q.dtype).triu(1)
    scores = (groups * size**-0.5) @ k.transpose(-1, -2)
    scores = scores.view(batch, heads, time, time) + mask
    weights = functional.softmax(scores, dim=-1).view(batch, k.shape[1], -1, time)
    return (weights @ v).view(batch, heads, time, size)


class RMSNorm(nn.Module):
    """Root-mean-square norm with a gain."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension; the result has x's dtype."""
        return functional.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.epsilon)


class Linear(nn.Linear):
    """A linear map without bias whose float32 weight is cast to the input's dtype."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return x times the transposed weight, in x's dtype."""
        return functional.linear(x, self.weight.to(x.dtype))


class Attention(nn.Module):
    """Causal grouped-query attention."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = Linear(shape.width, shape.heads * shape.head_dim)
        self.k_proj = Linear(shape.width, shape.kv_heads * shape.head_dim)
        self.v_proj = Linear(shape.width, shape.kv_heads * shape.head_dim)
        self.o_proj = Linear(shape.heads * shape.head_dim, shape.width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attend over (batch, time, width)."""
        batch, time, _ = x.shape
        size = self.shape.head_dim
        q, k, v = (
            projection(x).view(batch, time, -1, size).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = causal_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        output: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, time, -1))
        return output


class FeedForward(nn.Module):
    """The gated feed-forward block (SwiGLU)."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.gate_proj = Linear(shape.width, shape.feed_forward)
        self.up_proj = Linear(shape.width, shape.feed_forward)
        self.down_proj = Linear(shape.feed_forward, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., width) to (..., width)."""
        output: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return output


class LlamaLayer(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = FeedForward(shape)
        self.input_layernorm = RMSNorm(shape.width, shape.epsilon)
        self.post_attention_layernorm = RMSNorm(shape.width, shape.epsilon)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map (batch, time, width) to the same shape."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return y


class Body(nn.Module):
    """Embedding, layers and final norm, under Hugging Face's names."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(LlamaLayer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width, shape.epsilon)


class Llama(nn.Module):
    """A Llama with tied embeddings that shows the hidden state after every layer."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        cos, sin = rotary(shape.positions, shape.head_dim, shape.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = (2 * shape.layers) ** -0.5 if "o_proj" in name or "down" in name else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    def hidden_states(self, ids: Tensor, dtype: torch.dtype) -> list[Tensor]:
        """Return the hidden state after each layer, before the final norm.

        Args:
            ids: int64 (batch, time).
            dtype: the dtype of the residual stream and of the products.

        Returns:
            One (batch, time, width) tensor per layer.
        """
        time = ids.shape[1]
        cos, sin = self.cos[:time].to(dtype), self.sin[:time].to(dtype)
        x = functional.embedding(ids, self.model.embed_tokens.weight).to(dtype)
        states = []
        for layer in self.model.layers:
            x = layer(x, cos, sin)
            states.append(x)
        return states

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits of (..., width) hidden states: final norm, then shared head."""
        weight = self.model.embed_tokens.weight.to(hidden.dtype)
        return functional.linear(self.model.norm(hidden), weight).float()
