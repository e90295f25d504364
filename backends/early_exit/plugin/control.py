"""Who decides where a step leaves: the status of each sequence, and what was done."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.forward_context import get_forward_context

from backends.early_exit.decisions import ReplayedSteps
from backends.early_exit.plugin.measures import Measure
from backends.early_exit.plugin.telemetry import DecodedStep
from backends.early_exit.policy import NEVER, ExitPolicy


class Control:
    """The policy at work on a model of `depth` layers; until it has a runner, nothing leaves.

    Apart from the model, since setting an attribute of a module costs as much as a small operation.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.runner: Any = None
        """vLLM's model runner, whose batch says which request is where."""
        self.timed = False
        self.measure: Measure | None = None
        self.bounds: dict[int, float] = {}
        """Threshold by checked layer."""
        self.logits: Tensor | None = None
        """(rows, vocabulary) of the step's exit, where its check has computed them."""
        self.records = False
        """Steps keep the confidences that were asked."""
        self.replay: ReplayedSteps | None = None
        """Decides in the place of the confidences, which are computed all the same."""
        self._policy = ExitPolicy(NEVER)
        self._steps: list[DecodedStep] = []
        self._decode_steps = 0
        self._decoded: list[int] = []
        """Of each request of the step, the token that it decodes (`_tokens`); kept for replays."""
        self._on_cuda = torch.cuda.is_available()

    def set_policy(self, policy: ExitPolicy, measure: Measure | None) -> None:
        """Leave by this policy from the next step on; schedules begin anew."""
        self._policy, self.measure = policy, measure
        self.bounds = policy.checks() if measure is not None else {}
        self.restart()

    def restart(self) -> None:
        """Forget the steps so far; schedules begin anew."""
        self._steps.clear()
        self._decode_steps = 0

    def take_steps(self) -> list[DecodedStep]:
        """The steps since the last call."""
        taken, self._steps = self._steps, []
        return taken

    def begin(self) -> DecodedStep | None:
        """What is about to be decoded; None for a warm-up and for steps of prompts only."""
        self.logits = None
        runner = self.runner
        if runner is None or get_forward_context().attn_metadata is None:
            return None
        batch, depth = runner.input_batch, self.depth
        count = batch.num_reqs
        prompts = batch.num_prompt_tokens[:count]
        brings_token = ~runner.discard_request_mask.np[:count]
        # One new token alone does not tell: a prompt's last chunk may be of one token. Nor does a
        # position after the prompt: a request that gave way computes its answer once more.
        decoding = brings_token & (batch.num_computed_tokens_cpu[:count] >= prompts)
        if decoding.all() and runner.query_start_loc.np[count] == count:
            names, mixed = list(batch.req_ids[:count]), False
        else:
            goes_on = brings_token & (batch.num_tokens_no_spec[:count] > prompts)
            names, mixed = [batch.req_ids[i] for i in goes_on.nonzero()[0]], True
        if not names:
            return None
        step = DecodedStep(names, depth, depth, [depth] * len(names), mixed=mixed)
        self._steps.append(step)
        return step

    def forced_layer(self) -> int:
        """Where this step, which only decodes, leaves unasked; the depth where it does not."""
        step, self._decode_steps = self._decode_steps, self._decode_steps + 1
        return self._policy.forced_layer(step, self.depth)

    def latch(self, layer: int, confidence: Tensor, step: DecodedStep) -> bool:
        """Note who passes after this layer with these (rows,) confidences, padded rows apart;
        whether all have passed by now."""
        step.checked = (*step.checked, layer)
        bound = self.bounds[layer]
        limits: Any = bound if self._policy.decay == "none" else self._decayed(bound, confidence)
        confidence = confidence[: len(step.names)]
        passed = (confidence > limits).tolist()
        if self.records:
            step.confidence.append(confidence.tolist())
        if self.replay is not None:
            passed = self._replayed(layer, step, limits, confidence.dtype)
        own = step.own_exits
        for row, passes in enumerate(passed):
            if passes and own[row] == self.depth:
                own[row] = layer
        return self.depth not in own

    def _replayed(
        self, layer: int, step: DecodedStep, limits: Any, dtype: torch.dtype
    ) -> list[bool]:
        """Who passes by the trace. What was computed has been paid for."""
        assert self.replay is not None
        if len(step.checked) == 1:
            self._decoded = self._tokens()
        told = self.replay(layer, step.names, self._decoded)
        if isinstance(limits, float) and dtype == torch.float32:
            # as torch compares them, without a tensor
            bound = float(np.float32(limits))
            return [value > bound for value in told]
        limits = limits.cpu() if isinstance(limits, Tensor) else limits
        passed: list[bool] = (torch.tensor(told).to(dtype) > limits).tolist()
        return passed

    def now(self) -> int:
        """Nanoseconds, with the device's work done; 0 where nothing is timed."""
        if not self.timed:
            return 0
        if self._on_cuda:
            torch.cuda.synchronize()
        return time.perf_counter_ns()

    def _decayed(self, bound: float, confidence: Tensor) -> Tensor:
        names = self.runner.input_batch.req_ids
        found = []
        for name, token in zip(names, self._tokens(), strict=False):
            if self.replay is None:
                tokens = self.runner.requests[name].sampling_params.max_tokens
            else:
                tokens = self.replay.limit(name)
            found.append(self._policy.threshold(bound, token, tokens))
        return confidence.new_tensor(found)

    def _tokens(self) -> list[int]:
        """Of each request of the step, which of its answer's tokens it decodes; 0 is the first
        after the prompt's own."""
        batch = self.runner.input_batch
        count = batch.num_reqs
        found: list[int] = (
            batch.num_computed_tokens_cpu[:count] - batch.num_prompt_tokens[:count]
        ).tolist()
        return found
