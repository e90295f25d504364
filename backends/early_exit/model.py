"""The model class that leaves early: vLLM's Llama, run segment by segment.

Algorithm 1 of "An Efficient Inference Framework for Early-exit Large Language Models", section 3.1.
Each sequence of an iteration has a status that starts false and stays true once its confidence
has passed a threshold. When all are true the iteration ends: every sequence is decoded from
that layer's hidden state, which also fills the caches of the layers left out. An iteration that
reads prompt tokens runs at full depth.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from vllm.compilation.decorators import ignore_torch_compile
from vllm.forward_context import get_forward_context
from vllm.model_executor.models.llama import LlamaDecoderLayer, LlamaForCausalLM, LlamaModel

from backends.early_exit.filling import Filling
from backends.early_exit.handover import make_handover
from backends.early_exit.measures import Measure
from backends.early_exit.norm import rms_norm
from backends.early_exit.policy import NEVER, Policy
from backends.early_exit.segments import build_segments
from backends.early_exit.telemetry import Step

SETTINGS = "early_exit"
"""Key of the plugin's part in vLLM's `additional_config`; it has `exits`, a list of layers."""


@ignore_torch_compile
class EarlyExitLlamaModel(LlamaModel):  # type: ignore[misc]
    """The layers, cut at the exits. Until `policy` is set it never leaves early."""

    def __init__(self, *, vllm_config: Any, prefix: str = "", **arguments: Any) -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix, **arguments)
        self.depth = len(self.layers)
        settings = (vllm_config.additional_config or {}).get(SETTINGS, {})
        self.exits: tuple[int, ...] = tuple(settings.get("exits", ()))
        self.segments = build_segments(self.layers, self.exits, self.norm, vllm_config, prefix)
        self.handover = make_handover(vllm_config)
        self.policy = Policy(NEVER)
        self.measure: Measure | None = None
        self.runner: Any = None
        self.timed = False
        self.steps: list[Step] = []
        """What was done since somebody last took them away."""
        self.filling: Filling | None = None
        self.exit_logits: Tensor | None = None
        """Of the step's exit, where its check has computed them."""
        self._decode_steps = 0

    def build_filling(self) -> None:
        """Stack the projections that fill the caches. The layers' weights must be as loaded."""
        if self.exits:
            self.filling = Filling(self.layers, self.exits)

    def set_policy(self, policy: Policy, measure: Measure | None) -> None:
        """Leave by this policy from the next step on; schedules begin anew."""
        self.policy, self.measure = policy, measure
        self.restart()

    def restart(self) -> None:
        """Forget the steps so far; schedules begin anew."""
        self.steps.clear()
        self._decode_steps = 0

    def take_steps(self) -> list[Step]:
        """The steps since the last call."""
        taken, self.steps = self.steps, []
        return taken

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """(tokens, width): the hidden states that the head reads, after the final norm."""
        self.exit_logits = None
        hidden = self.embed_input_ids(input_ids) if inputs_embeds is None else inputs_embeds
        step = self._step()
        if step is None:
            return self._whole(positions, hidden)
        began = self._now()
        self.steps.append(step)
        if step.mixed:
            out = self._whole(positions, hidden)
        else:
            out = self._decode(positions, hidden, step)
        if self.timed:
            step.forward_ns = self._now() - began
        return out

    def _step(self) -> Step | None:
        """What is about to be decoded; None for a warm-up and for steps of prompts only."""
        if self.runner is None or get_forward_context().attn_metadata is None:
            return None
        batch, runner = self.runner.input_batch, self.runner
        count = batch.num_reqs
        prompts = batch.num_prompt_tokens[:count]
        brings_token = ~runner.discard_request_mask.np[:count]
        # One new token alone does not tell: a prompt's last chunk may be of one token. Nor does a
        # position behind the prompt: a request that gave way computes its answer once more.
        decoding = brings_token & (batch.num_computed_tokens_cpu[:count] >= prompts)
        if decoding.all() and runner.query_start_loc.np[count] == count:
            names, mixed = list(batch.req_ids[:count]), False
        else:
            goes_on = brings_token & (batch.num_tokens_no_spec[:count] > prompts)
            names, mixed = [batch.req_ids[i] for i in goes_on.nonzero()[0]], True
        if not names:
            return None
        return Step(names, self.depth, self.depth, [self.depth] * len(names), mixed=mixed)

    def _whole(self, positions: Tensor, hidden: Tensor) -> Tensor:
        residual = None
        for segment in self.segments:
            hidden, residual = self._run(segment, positions, hidden, residual)
        return hidden

    def _decode(self, positions: Tensor, hidden: Tensor, step: Step) -> Tensor:
        policy, measure = self.policy, self.measure
        bounds = policy.checks()
        forced = policy.forced_layer(self._decode_steps, self.depth)
        self._decode_steps += 1
        if measure is not None and bounds:
            measure.begin(hidden)
        residual: Tensor | None = None
        for segment, layer in zip(self.segments, (*self.exits, self.depth), strict=True):
            hidden, residual = self._run(segment, positions, hidden, residual)
            if layer == self.depth:
                break
            if layer >= forced:
                step.own_exits = [layer] * len(step.names)
                return self._leave(layer, hidden + residual, None, positions, step)
            if layer not in bounds or measure is None:
                continue
            stream = hidden + residual
            began = self._now()
            answer = measure(layer, stream)
            left = self._latch(layer, answer.confidence, bounds[layer], step)
            step.check_ns += self._now() - began
            if left:
                self.exit_logits = answer.logits
                return self._leave(layer, stream, answer.normed, positions, step)
        return hidden

    def _latch(self, layer: int, confidence: Tensor, bound: float, step: Step) -> bool:
        """Note who passes at this layer; whether all have passed by now."""
        step.checked = (*step.checked, layer)
        rows = len(step.names)
        limits: Any = bound if self.policy.decay == "none" else self._decayed(bound, confidence)
        passed = (confidence[:rows] > limits).tolist()
        own = step.own_exits
        for row, passes in enumerate(passed):
            if passes and own[row] == self.depth:
                own[row] = layer
        return self.depth not in own

    def _decayed(self, bound: float, confidence: Tensor) -> Tensor:
        batch = self.runner.input_batch
        found = []
        for row, name in enumerate(batch.req_ids[: batch.num_reqs]):
            token = int(batch.num_computed_tokens_cpu[row] - batch.num_prompt_tokens[row])
            tokens = self.runner.requests[name].sampling_params.max_tokens
            found.append(self.policy.threshold(bound, token, tokens))
        return confidence.new_tensor(found)

    def _leave(
        self, layer: int, stream: Tensor, normed: Tensor | None, positions: Tensor, step: Step
    ) -> Tensor:
        began = self._now()
        assert self.filling is not None
        self.filling(layer, stream, positions)
        step.exit_layer, step.fill_ns = layer, self._now() - began
        return self.final_norm(stream) if normed is None else normed

    def final_norm(self, stream: Tensor) -> Tensor:
        """(rows, width): what the head reads at an exit with this residual stream."""
        return rms_norm(stream, self.norm.weight.data, self.norm.variance_epsilon)

    def _run(
        self, segment: Any, positions: Tensor, hidden: Tensor, residual: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if self.handover is not None:
            hidden, residual = self.handover(hidden, residual)
        found = (
            segment(positions, hidden) if residual is None else segment(positions, hidden, residual)
        )
        return found[0], found[1]

    def _now(self) -> int:
        if not self.timed:
            return 0
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter_ns()


class EarlyExitLlamaForCausalLM(LlamaForCausalLM):  # type: ignore[misc]
    """The whole model, with the head."""

    model: EarlyExitLlamaModel

    def _init_model(
        self, vllm_config: Any, prefix: str = "", layer_type: Any = LlamaDecoderLayer
    ) -> EarlyExitLlamaModel:
        return EarlyExitLlamaModel(vllm_config=vllm_config, prefix=prefix, layer_type=layer_type)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load, and stack the projections of the fill, of which vLLM knows nothing."""
        loaded: set[str] = super().load_weights(weights)
        self.model.build_filling()
        return loaded | {name for name, _ in self.named_parameters() if ".filling." in name}

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        """(rows, vocabulary). The exit's own where its check has computed them already."""
        logits = self.model.exit_logits
        if logits is not None and len(logits) >= len(hidden_states):
            self.model.exit_logits = None
            return logits[: len(hidden_states)]
        computed: Tensor | None = super().compute_logits(hidden_states)
        return computed
