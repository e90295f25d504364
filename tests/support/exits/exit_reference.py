"""Batched early exit with filling of the key-value cache, in plain PyTorch.

Written from the semantics alone: every operation on transformers' float32 weights, a cache that
begins as NaN (so that reading what nobody wrote shows), no shortcut. It replays the steps that an
engine took (which positions of which requests were computed together) and decides all else by
itself: confidences, who leaves where, what is filled, the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from harness.core.nouns import Request


@dataclass(frozen=True)
class Rule:
    """When a decode step ends early. Layers count from 1."""

    measure: str = "never"  # or softmax, state, classifier, static, schedule
    layers: tuple[int, ...] = ()  # checked ones, the one of static, those of schedule
    thresholds: tuple[float, ...] = ()
    decay: str = "none"
    tau: float = 4.0
    heads: Path | None = None
    """A folder of trained exit heads; None: the model's own head everywhere."""
    classifier: tuple[Tensor, Tensor] | None = None
    """Weight (2, width) and bias (2,); the second row speaks for leaving."""
    fill: bool = True  # False: the skipped layers' cache stays as it was, a wrong engine

    def checked(self) -> list[int]:
        """Layers whose confidence counts; where none can pass there is no exit, for state too."""
        pairs = zip(self.layers, self.thresholds, strict=False)
        passable = [layer for layer, bound in pairs if bound < 1 or self.decay != "none"]
        return passable if self.measure in ("softmax", "state", "classifier") else []

    def bound(self, layer: int, token: int, tokens: int) -> float:
        """The threshold after `layer` at decode step `token` of at most `tokens` tokens."""
        plain = self.thresholds[self.layers.index(layer)]
        fading = math.exp(-self.tau * token / tokens)
        if self.decay == "calm":
            return min(max(0.9 * plain + 0.1 * fading, 0.0), 1.0)
        return 0.9 * plain + 0.1 * plain * fading if self.decay == "t5x" else plain


@dataclass
class ReferenceSequence:
    """One request: all its tokens, how many came as the prompt, keys and values by layer."""

    tokens: list[int]
    prompt: int
    limit: int
    keys: list[Tensor]
    values: list[Tensor]
    filled: int = 0
    """Positions whose keys and values have been computed."""


@dataclass
class Decided:
    """What one step came to. `own` and `tokens` hold the rows that brought a token."""

    mixed: bool
    exit_layer: int
    own: dict[str, int]
    tokens: dict[str, int]


@dataclass
class ExitReference:
    """Replays an engine's steps under one `Rule`."""

    directory: Path
    rule: Rule = Rule()
    logit_margin: float = math.inf
    """How near the two best logits ever came: too near, and rounding chooses the token."""
    confidence_margin: float = math.inf
    """The same of confidences that mattered and their thresholds."""
    sequences: dict[str, ReferenceSequence] = field(default_factory=dict)
    given_way: list[ReferenceSequence] = field(default_factory=list)
    """What a request had computed when it had to begin again: prefix hits may find it."""
    decode_steps: int = 0

    def __post_init__(self) -> None:
        from safetensors.torch import load_file
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(self.directory, dtype=torch.float32)
        config = self.model.config
        self.depth, self.positions = config.num_hidden_layers, config.max_position_embeddings
        self.kv_heads, self.group = config.num_key_value_heads, config.num_attention_heads
        self.group //= self.kv_heads
        self.head_dim = config.head_dim
        folder = self.rule.heads
        self.heads = {} if folder is None else load_file(folder / "heads.safetensors")

    def submit(self, request: Request) -> None:
        """A request that steps may name from now on."""
        room = (len(request.prompt_ids) + request.max_new_tokens, self.kv_heads, self.head_dim)
        keys, values = ([torch.full(room, math.nan) for _ in range(self.depth)] for _ in "kv")
        self.sequences[request.id] = ReferenceSequence(
            list(request.prompt_ids), len(request.prompt_ids), request.max_new_tokens, keys, values
        )

    @torch.inference_mode()
    def step(self, rows: Mapping[str, tuple[int, int]]) -> Decided:
        """One engine step: for each request its first position and how many it computes.

        A request whose first position is behind what it has computed begins again there; one
        before which positions are missing takes them from an earlier request with equal tokens (a
        hit in the prefix cache).
        """
        if all(self._decodes(name, *span) for name, span in rows.items()):
            for name, (start, _) in rows.items():
                self._begin(name, start)
            decided, logits = self._decode(list(rows))
        else:
            logits = {name: self._read(name, *span) for name, span in rows.items()}
            decided = Decided(True, self.depth, dict.fromkeys(rows, self.depth), {})
        for name, (start, count) in rows.items():
            answer = self.sequences[name]
            answer.filled = start + count
            if answer.filled == len(answer.tokens):
                decided.tokens[name] = self._choose(logits[name])
                answer.tokens.append(decided.tokens[name])
        decided.own = {name: decided.own[name] for name in decided.tokens}
        return decided

    def _decodes(self, name: str, start: int, count: int) -> bool:
        """Whether a row is the newest token of an answer, and nothing of a prompt or of what a
        request that gave way computes once more."""
        answer = self.sequences[name]
        return count == 1 and answer.prompt <= start == len(answer.tokens) - 1

    def _begin(self, name: str, start: int) -> None:
        answer = self.sequences[name]
        if start < answer.filled:
            keys, values = ([x.clone() for x in kind] for kind in (answer.keys, answer.values))
            self.given_way.append(
                replace(answer, tokens=answer.tokens[:], keys=keys, values=values)
            )
        if start > answer.filled:
            source = next(
                other
                for other in [*self.sequences.values(), *self.given_way]
                if other is not answer
                and other.filled >= start
                and other.tokens[:start] == answer.tokens[:start]
            )
            for layer in range(self.depth):
                answer.keys[layer][:start] = source.keys[layer][:start]
                answer.values[layer][:start] = source.values[layer][:start]
        answer.filled = start

    def _read(self, name: str, start: int, count: int) -> Tensor:
        """Full depth over positions of one sequence: (vocabulary,) logits at the last of them."""
        self._begin(name, start)
        answer = self.sequences[name]
        hidden = self._embed(answer.tokens[start : start + count])
        for layer in range(self.depth):
            hidden = self._layer(layer, hidden, [(answer, start, count)])
        answer.filled = start + count
        return self._logits(hidden[-1:])[0]

    def _decode(self, names: Sequence[str]) -> tuple[Decided, dict[str, Tensor]]:
        """One token of each sequence, all of which leave where the last of them would."""
        rule, rows = self.rule, [self.sequences[name] for name in names]
        spans = [(row, row.filled, 1) for row in rows]
        hidden = self._embed([row.tokens[row.filled] for row in rows])
        before, own, exit_layer = hidden, [0] * len(rows), self.depth
        forced = self._forced()
        for layer in range(1, self.depth):
            hidden = self._layer(layer - 1, hidden, spans)
            if layer == forced:
                own, exit_layer = [layer] * len(rows), layer
                break
            if layer in rule.checked():
                found = self._confidence(layer, hidden, before)
                before = hidden
                for index, (row, confidence) in enumerate(zip(rows, found.tolist(), strict=True)):
                    token = row.filled - row.prompt
                    bound = rule.bound(layer, token, row.limit)
                    if not own[index]:
                        near = abs(confidence - bound)
                        self.confidence_margin = min(self.confidence_margin, near)
                        own[index] = layer if confidence > bound else 0
                if all(own):
                    exit_layer = layer
                    break
        if exit_layer == self.depth:
            hidden = self._layer(self.depth - 1, hidden, spans)
        elif rule.fill:
            for layer in range(exit_layer, self.depth):
                self._keep(layer, hidden, spans)
        logits = self._logits(hidden, exit_layer)
        own_exits = {name: at or self.depth for name, at in zip(names, own, strict=True)}
        decided = Decided(False, exit_layer, own_exits, {})
        return decided, dict(zip(names, logits, strict=True))

    def _forced(self) -> int:
        rule, step = self.rule, self.decode_steps
        self.decode_steps += 1
        unasked = rule.measure in ("static", "schedule")
        return rule.layers[step % len(rule.layers)] if unasked else 0

    def _confidence(self, layer: int, hidden: Tensor, before: Tensor) -> Tensor:
        """(rows,) confidences after `layer`; `before` is the hidden state of the last exit."""
        if self.rule.measure == "softmax":
            best = self._logits(hidden, layer).softmax(-1).topk(2).values
            return best[:, 0] - best[:, 1]
        if self.rule.measure == "state":
            squares = hidden.pow(2).sum(-1) * before.pow(2).sum(-1)
            return (hidden * before).sum(-1) / squares.sqrt()
        assert self.rule.classifier is not None
        weight, bias = self.rule.classifier
        scores = hidden @ weight.float().T + bias.float()
        return scores.softmax(-1)[:, 1]

    def _logits(self, hidden: Tensor, layer: int = 0) -> Tensor:
        """(rows, vocabulary) of the exit after `layer`; 0 and the depth: of the model."""
        normed = self._norm(self.model.model.norm, hidden)
        if self.heads and 0 < layer < self.depth:
            whole = self.heads.get(f"layer.{layer}.head")
            if whole is not None:
                return functional.linear(normed, whole.float())
            normed = functional.linear(normed, self.heads[f"layer.{layer}.transform"].float())
        return functional.linear(normed, self.model.lm_head.weight)

    def _choose(self, logits: Tensor) -> int:
        best = logits.topk(2).values
        self.logit_margin = min(self.logit_margin, float(best[0] - best[1]))
        return int(logits.argmax())

    def _embed(self, tokens: Sequence[int]) -> Tensor:
        return functional.embedding(torch.tensor(tokens), self.model.model.embed_tokens.weight)

    def _layer(self, layer: int, hidden: Tensor, spans: Sequence[Any]) -> Tensor:
        """One decoder layer over (rows, width); `spans` says whose and at which positions."""
        block = self.model.model.layers[layer]
        self._keep(layer, hidden, spans)
        queries = block.self_attn.q_proj(self._norm(block.input_layernorm, hidden))
        queries = self._rotate(queries, _positions(spans))
        mixed, first = [], 0
        for sequence, start, count in spans:
            mixed.append(self._attend(sequence, layer, queries[first : first + count], start))
            first += count
        hidden = hidden + block.self_attn.o_proj(torch.cat(mixed))
        normed = self._norm(block.post_attention_layernorm, hidden)
        gate, up = block.mlp.gate_proj(normed), block.mlp.up_proj(normed)
        return torch.add(hidden, block.mlp.down_proj(functional.silu(gate) * up))

    def _keep(self, layer: int, hidden: Tensor, spans: Sequence[Any]) -> None:
        """Write keys and values of `layer` computed from `hidden`."""
        block = self.model.model.layers[layer]
        normed = self._norm(block.input_layernorm, hidden)
        keys = self._rotate(block.self_attn.k_proj(normed), _positions(spans))
        values = block.self_attn.v_proj(normed).view(len(normed), -1, self.head_dim)
        first = 0
        for sequence, start, count in spans:
            sequence.keys[layer][start : start + count] = keys[first : first + count]
            sequence.values[layer][start : start + count] = values[first : first + count]
            first += count

    def _attend(
        self, sequence: ReferenceSequence, layer: int, queries: Tensor, start: int
    ) -> Tensor:
        """(count, heads * head_dim) of causal attention for queries from position `start`."""
        end = start + len(queries)
        keys = sequence.keys[layer][:end].repeat_interleave(self.group, 1)
        values = sequence.values[layer][:end].repeat_interleave(self.group, 1)
        scores = torch.einsum("qhd,khd->hqk", queries, keys) / math.sqrt(self.head_dim)
        later = torch.arange(end)[None, :] > torch.arange(start, end)[:, None]
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, values).flatten(1)

    def _rotate(self, flat: Tensor, positions: Tensor) -> Tensor:
        """Rotary embedding of (rows, heads * head_dim): (rows, heads, head_dim)."""
        heads = flat.view(len(flat), -1, self.head_dim)
        cosines, sines = self.model.model.rotary_emb(heads, positions[None])
        left, right = heads.chunk(2, -1)
        turned = torch.cat((-right, left), -1)
        return torch.add(heads * cosines[0][:, None], turned * sines[0][:, None])

    @staticmethod
    def _norm(norm: Any, hidden: Tensor) -> Tensor:
        mean = hidden.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon
        return torch.mul(hidden * mean.rsqrt(), norm.weight)


def _positions(spans: Sequence[Any]) -> Tensor:
    return torch.cat([torch.arange(start, start + count) for _, start, count in spans])
