"""The backend `vllm-early-exit`: a vLLM whose model leaves early, driven like the plain one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.checkpoints import models
from backends.early_exit import FAMILIES, register
from backends.early_exit.decisions import DecisionLog, ReplayedSteps
from backends.early_exit.options import MIXED, SEPARATE, WHOLE_SEGMENTS, ExitOptions
from backends.early_exit.plan import ExitPlan
from backends.early_exit.planned import PlannedExits
from backends.early_exit.plugin.telemetry import StepLog
from backends.early_exit.policy import (
    NEVER,
    PREFIX,
)
from backends.early_exit.settings import EXIT_OPTIONS, check_exit_options
from backends.vllm.arguments import (
    OWN_ARGUMENTS,
    SPECULATIVE_ARGUMENTS,
    check_engine,
    effective,
    engine_arguments,
    load_engine,
    set_environment,
)
from backends.vllm.backend import NOTHING, VllmBackend
from harness.core.backend import Option
from harness.core.errors import UserError, runs_elsewhere
from harness.core.nouns import Commit, Measured, Model, Provenance
from results.traces.played import PlayedRow
from results.traces.recorded import TraceRow

ONE_DEVICE = "early exit runs on one device, without it"
NO_DRAFTS = "early exit and speculative decoding do not go together"
OWN_MODEL = "the backend puts its own model class there"
REFUSED_ARGUMENTS = OWN_ARGUMENTS | {
    "hf_overrides": OWN_MODEL,
    "additional_config": "the backend has its own settings there",
    "scheduler_cls": "the option prompt_steps",
    **dict.fromkeys(SPECULATIVE_ARGUMENTS, NO_DRAFTS),
    **dict.fromkeys(("quantization", "quantization_config"), "the fill needs plain weights"),
    **dict.fromkeys(("tensor_parallel_size", "pipeline_parallel_size"), ONE_DEVICE),
    "distributed_executor_backend": "the model runs in the backend's own process",
    **dict.fromkeys(("model_impl", "model_class_overrides"), OWN_MODEL),
    "worker_cls": "the plugin works on vLLM's own worker",
    "enable_lora": "the fill does not know adapters",
}


class VllmEarlyExit(PlannedExits, VllmBackend):
    """Iteration-level batched early exit inside vLLM: all sequences of a batch leave a step at the
    first checked layer where the last of them is sure of its next token. Lossy, unless `measure` is
    never."""

    PLAN: ClassVar[type[ExitPlan]] = ExitOptions
    OPTIONS: ClassVar[dict[str, Option]] = {
        **VllmBackend.OPTIONS,
        **EXIT_OPTIONS,
        "prompt_steps": Option(
            str, MIXED, "separate: no step both reads prompts and decodes", (MIXED, SEPARATE)
        ),
        "step_times": Option(
            bool, None, "measure checks and fills; default: on a CPU. On a GPU it costs time"
        ),
    }
    NAME = "vllm-early-exit"
    families = frozenset(FAMILIES)
    PROVENANCE: ClassVar[Provenance] = "re-implementation"

    def __init__(
        self, engine: Any, plan: ExitOptions, options: Mapping[str, Any], measured: Measured
    ) -> None:
        self._plan = plan
        self._causal: Any = None
        self._control: Any = None
        self._log = StepLog()
        self._decided: DecisionLog | None = None
        self._replayed: ReplayedSteps | None = None
        self.configured = plan.policy
        (fill,) = engine.collective_rpc(self._attach)
        from backends.kernels import exit_confidence

        paths = {"checks": exit_confidence.kernels(), "fill": fill}
        super().__init__(engine, {**options, **paths}, models.stop_ids(plan.model_dir))
        self.info = replace(self.info, measured=measured)
        self.configure({})

    @classmethod
    def batch_decides(cls, options: Mapping[str, Any]) -> bool:
        """A batch leaves when its last sequence is sure: alone, each leaves earlier."""
        return bool(options["measure"] != NEVER)

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for options that contradict each other, engine arguments that are not
        the user's, and for layers, heads and classifiers that do not fit the model."""
        if model_dir is not None:
            ExitOptions(model_dir, options).check()
            return
        check_engine(cls.NAME, options["engine"], REFUSED_ARGUMENTS)
        _check_weights(options)
        check_exit_options(cls.NAME, options)
        compilation = options["engine"].get("compilation_config")
        if compilation is not None and not isinstance(compilation, dict):
            raise UserError(
                f"{PREFIX}: engine: compilation_config: expected a mapping, got {compilation!r}"
            )
        graphs = (compilation or {}).get("cudagraph_mode")
        if graphs not in (None, "NONE", "PIECEWISE", WHOLE_SEGMENTS):
            raise UserError(
                f"{PREFIX}: engine: compilation_config: cudagraph_mode {graphs!r}: a graph of the "
                f"whole model cannot end early; expected PIECEWISE, {WHOLE_SEGMENTS} (graphs of "
                "whole segments) or NONE"
            )

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the engine. Raises `UserError` for what vLLM refuses."""
        assert model_dir is not None
        plan = ExitOptions(model_dir, options)
        set_environment(options["threads"])
        # the newer runner keeps no batch on the host, by which prompts are told from decodes
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
        register()
        arguments = engine_arguments(options, model_dir, model.dtype)
        engine = load_engine(cls.NAME, arguments | plan.engine_arguments(arguments))
        return cls(
            engine, plan, effective(options, engine) | plan.effective(), plan.measured(model.dtype)
        )

    def configure(self, options: Mapping[str, Any]) -> None:
        """From the next step on leave as the options of `open` say, but for those given here:
        measure, threshold, thresholds, layers, decay, decay_tau, heads, classifier. No engine is
        loaded. Requests in flight lose the counts of their steps so far.

        Raises `UserError` for a layer at which the engine was not cut when it was opened: it is
        cut at its layers, apart from those whose threshold nothing can pass.
        """
        plan = self._plan.changed(options)
        available = self._causal.exits
        for layer in plan.policy.boundaries(plan.depth):
            if layer not in available:
                raise UserError(
                    f"{PREFIX}: no exit after layer {layer}; this engine was opened with "
                    f"{', '.join(map(str, available)) or 'none'}"
                )
        self.configured = plan.policy
        self._control.set_policy(plan.policy, plan.measure(self._causal))
        self._log.clear()
        layers = plan.policy.layers
        self._decided = DecisionLog(layers) if plan.settings["record"] else None
        self._control.records = self._decided is not None
        self._replayed = ReplayedSteps(layers, plan.columns) if plan.columns else None
        self._control.replay = self._replayed

    def reset(self) -> None:
        """Abort what is unfinished and empty the prefix cache; schedules begin anew."""
        super().reset()
        self._control.restart()
        self._log.clear()
        for kept in (self._decided, self._replayed):
            if kept is not None:
                kept.clear()

    def close(self) -> None:
        """Shut the engine down and free its memory."""
        self._causal = self._control = None
        super().close()

    def _attach(self, worker: Any) -> str | None:
        """Runs where the model is, which is this process. Says how fills reach the caches."""
        self._causal = worker.model_runner.get_model()
        self._control = self._causal.control
        self._control.runner = worker.model_runner
        timed = self._plan.settings["step_times"]
        self._control.timed = worker.device.type == "cpu" if timed is None else timed
        self._causal.prepare_filling()
        path: str | None = self._causal.fill_path
        return path

    def _is_lossless(self, options: Mapping[str, Any]) -> bool:
        return bool(options["measure"] == NEVER)

    def _step(self) -> Sequence[Any]:
        outputs = super()._step()
        for step in self._control.take_steps():
            self._log.note(step, self._live)
            if self._decided is not None:
                self._decided.note(step, self._live)
        return outputs

    def _telemetry(self, output: Any, before: int, tokens: int) -> Mapping[str, float]:
        if output.finish_reason is None:
            return NOTHING
        # an asynchronous scheduler may have decoded one token more, which is not handed out
        return self._log.take(output.request_id, max(before + tokens - 1, 0))

    def _replay(self, name: str, row: TraceRow, max_new_tokens: int) -> None:
        if self._replayed is not None:
            self._replayed.enter(name, PlayedRow(row, self._replayed.columns), max_new_tokens)

    def _commit(self, output: Any) -> Commit:
        before = self._live[output.request_id].tokens
        commit = super()._commit(output)
        if commit.finished is None:
            return commit
        if self._replayed is not None:
            self._replayed.leave(output.request_id)
        if self._decided is None:
            return commit
        tokens = max(before + len(commit.token_ids) - 1, 0)
        return replace(commit, decisions=self._decided.take(output.request_id, tokens))


def _check_weights(options: Mapping[str, Any]) -> None:
    """Raise `UserError` for weights that vLLM makes up: on a CPU it has packed them for its kernels
    by the time that a fill would read them."""
    if options["measure"] == NEVER or options["engine"].get("load_format") != "dummy":
        return
    import torch

    if not runs_elsewhere() and not torch.cuda.is_available():
        raise UserError(
            f"{PREFIX}: engine: load_format: dummy: on a CPU the fill cannot read weights that "
            "vLLM makes up; give the model as a shape (model: {shape: 0.1b})"
        )
