"""Unmodified vLLM in this process, driven step by step: the reference system.

`LLMEngine` runs without vLLM's own background process, so that one `poll` is one engine step and
the harness's stamps are those of the step's end. Prompts and answers are token ids; vLLM neither
tokenises nor detokenises, and keeps no statistics. Tokens are taken from the engine core as it
hands them out: vLLM's output processor would only build texts and output objects around them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

from backends.checkpoints import models, traces
from backends.pass_clock import PassClock
from backends.vllm.arguments import (
    CPU_KV_CACHE_GIB,
    OWN_ARGUMENTS,
    SPECULATIVE_ARGUMENTS,
    check_engine,
    effective,
    engine_arguments,
    load_engine,
    set_environment,
)
from backends.vllm.margins import margins
from backends.vllm.sampling import keep_generators
from backends.vllm.shapes import check_head_size
from harness.core.backend import Backend, Option, misfit
from harness.core.names import CACHED_TOKENS, PREEMPTIONS
from harness.core.nouns import (
    REPLAYED,
    BackendInfo,
    Commit,
    FinishReason,
    Model,
    Provenance,
    Request,
)
from results.traces.rates import TraceSource
from results.traces.recorded import TraceRow

PLAIN_ARGUMENTS = OWN_ARGUMENTS | dict.fromkeys(
    SPECULATIVE_ARGUMENTS, "the backend 'vllm-speculative' decodes with drafts"
)
FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
DRAIN_STEPS = 8
NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(slots=True)
class _EngineRequest:
    """A request inside the engine."""

    request_id: str
    prompt_tokens: int
    tokens: int = 0
    cached_tokens: int = 0
    stops_at_limit: bool = False
    """The limit that the engine was given is where a trace ends the answer."""
    inside: Any = None
    """vLLM's own, which counts how often it was preempted."""


class VllmBackend(Backend):
    """Unmodified vLLM (its `LLMEngine`), plain decoding: one token per pass, continuous batching.
    Greedy text is vLLM's own; `info.options` holds what took effect."""

    CONTEXT = math.inf
    OPTIONS: ClassVar[dict[str, Option]] = {
        "max_model_len": Option(
            int, None, "longest prompt and answer; default: the model's", minimum=1
        ),
        "max_num_seqs": Option(
            int, None, "requests in one step; default: that of vllm serve", minimum=1
        ),
        "enforce_eager": Option(
            bool, None, "no torch.compile, no CUDA graphs; default: true on a CPU, else false"
        ),
        "prefix_caching": Option(bool, False, "keep the KV of shared prompt beginnings"),
        "kv_cache_gib": Option(
            float,
            None,
            f"KV cache; default: {CPU_KV_CACHE_GIB} on a CPU, else vLLM's",
            minimum=1e-6,
            maximum=1e6,
        ),
        "seed": Option(int, 0, "the engine's seed; a request's own is in its sampling"),
        "threads": Option(int, None, "CPU threads; default: OpenMP's", minimum=1),
        "margins": Option(bool, False, "record the top-2 logit margin of each token (costs time)"),
        "compiled_norm": Option(
            bool, False, "on a CPU: vLLM's compiled RMSNorm, as on a GPU; default: its Python one"
        ),
        "engine": Option(dict, {}, "further arguments of vLLM's EngineArgs, by name"),
        "replay": traces.REPLAY,
    }
    NAME: ClassVar[str] = "vllm"
    PROVENANCE: ClassVar[Provenance] = "official code"
    CAPABILITIES: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, engine: Any, options: Mapping[str, Any], eos_ids: Sequence[int]) -> None:
        import vllm
        from vllm.inputs.engine import tokens_input
        from vllm.platforms import current_platform
        from vllm.sampling_params import SamplingParams

        self._engine = engine
        self._eos_ids = set(eos_ids)
        self._vocabulary = engine.vllm_config.model_config.get_vocab_size()
        self._max_len = engine.vllm_config.model_config.max_model_len
        self._prompt = tokens_input
        self._params = functools.partial(
            SamplingParams,
            detokenize=False,
            ignore_eos=True,
            logprobs=2 if options.get("margins") else None,
            skip_clone=True,
        )
        self._with_margins = bool(options.get("margins"))
        self._layers = engine.vllm_config.model_config.hf_text_config.num_hidden_layers
        self._one_token = self._work(1)
        self._tasks = engine.get_supported_tasks()
        self._live: dict[str, _EngineRequest] = {}
        """By the engine's id: unlike the request's it is never used twice."""
        self._number = itertools.count()
        self._clock = PassClock()
        if current_platform.is_cpu():
            engine.collective_rpc(_keep_generators)
            if engine.vllm_config.parallel_config.distributed_executor_backend == "uni":
                # on a GPU a call returns before its work is done, and no clock reaches other ranks
                engine.collective_rpc(self._watch)
        self._refused: list[Commit] = []
        self._source = self._open_source(options) if options.get("replay") is not None else None
        self.info = BackendInfo(
            name=self.NAME,
            version=vllm.__version__,
            provenance=self.PROVENANCE if self._source is None else REPLAYED,
            options=options,
            lossless=self._source is None and self._is_lossless(options),
            capabilities=self.CAPABILITIES,
        )

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for an engine argument that vLLM lacks or that is not the user's, and
        for a trace that cannot be read."""
        check_engine(cls.NAME, options["engine"], PLAIN_ARGUMENTS)
        if options["replay"] is not None:
            traces.open_source(options["replay"], cls.NAME)

    @classmethod
    def warnings(cls, model_dir: Path, options: Mapping[str, Any]) -> list[str]:
        """None. Raises `UserError` for heads that no kernel takes."""
        check_head_size(cls.NAME, model_dir, options["engine"])
        return []

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """The trace that is replayed. Raises `UserError`."""
        return traces.files(options, cls.NAME)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the engine. Raises `UserError` for a value that vLLM refuses."""
        assert model_dir is not None
        set_environment(options["threads"])
        engine = load_engine(cls.NAME, engine_arguments(options, model_dir, model.dtype))
        return cls(engine, effective(options, engine), models.stop_ids(model_dir))

    @classmethod
    def _open_source(cls, options: Mapping[str, Any]) -> TraceSource:
        """What is replayed. Raises `UserError`."""
        return traces.open_source(options["replay"], cls.NAME)

    def submit(self, request: Request) -> None:
        """Queue a request; one that cannot be served whole comes back as an error commit."""
        row = None
        if self._source is not None:
            row = self._source.row_for(
                request.id, request.max_new_tokens, ignore_eos=request.ignore_eos
            )
            request = replace(request, prompt_ids=traces.folded(request, self._vocabulary))
        refused = misfit(request, self._max_len, self._vocabulary)
        if refused is None:
            sampling, most = request.sampling, request.max_new_tokens
            stops = () if request.ignore_eos or row else {*request.stop_ids, *self._eos_ids}
            last = None if row is None else row.end(most, ignore_eos=request.ignore_eos)
            params = self._params(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                seed=sampling.seed if sampling.temperature > 0 else None,
                max_tokens=most if last is None else last,
                stop_token_ids=list(stops),
            )
            live = _EngineRequest(
                request.id, len(request.prompt_ids), stops_at_limit=last is not None
            )
            name = self._enter(request, live, params)
            if row is not None:
                self._replay(name, row, most)
        else:
            self._refused.append(refused)

    def poll(self) -> list[Commit]:
        """One engine step. A step that only reads prompts hands out nothing."""
        commits, self._refused = self._refused, []
        if self._live:
            commits.extend(self._commit(o) for o in self._step() if o.request_id in self._live)
        return commits

    def reset(self) -> None:
        """Abort what is unfinished and empty the prefix cache."""
        self._refused.clear()
        core = self._engine.engine_core
        core.abort_requests(list(self._live))
        self._live.clear()
        self._clock.clear()
        for _ in range(DRAIN_STEPS):
            if self._engine.reset_prefix_cache():
                return
            core.get_output()
        raise RuntimeError("vLLM still holds KV blocks after all requests were aborted")

    def close(self) -> None:
        """Shut the engine down and free its memory."""
        self._engine.engine_core.shutdown()
        del self._engine

    def _step(self) -> Sequence[Any]:
        """One engine step; its `EngineCoreOutput` of each request that got tokens."""
        outputs: Sequence[Any] = self._engine.engine_core.get_output().outputs
        return outputs

    def _enter(self, request: Request, live: _EngineRequest, params: Any) -> str:
        """What `LLMEngine.add_request` does, without a state for the output processor. Returns the
        engine's id."""
        name = f"{request.id}-{next(self._number)}"
        prompt = self._prompt(list(request.prompt_ids))
        entering = self._engine.input_processor.process_inputs(
            name, prompt, params, supported_tasks=self._tasks
        )
        self._live[name] = live
        core = self._engine.engine_core
        core.add_request(entering)
        live.inside = core.engine_core.scheduler.requests[name]
        return name

    def _replay(self, name: str, row: TraceRow, max_new_tokens: int) -> None:
        """The request of the engine's id `name`, of at most so many tokens, replays this row."""

    def _commit(self, output: Any) -> Commit:
        live = self._live[output.request_id]
        before, tokens = live.tokens, tuple(output.new_token_ids)
        live.tokens += len(tokens)
        if not before:
            self._clock.begin(output.request_id)
        if output.prefill_stats is not None:
            live.cached_tokens = output.prefill_stats.num_cached_tokens
        telemetry = self._telemetry(output, before, len(tokens))
        if self._with_margins and output.new_logprobs is not None:
            telemetry = {**telemetry, **margins(before, output.new_logprobs.logprobs)}
        if output.finish_reason is None:
            return Commit(live.request_id, tokens, None, telemetry)
        del self._live[output.request_id]
        reason = str(output.finish_reason)
        finished = FINISH.get(reason, "error")
        if finished == "length" and live.stops_at_limit:
            finished = "stop"
        error = f"vLLM ended the request: {reason}" if finished == "error" else None
        waited = self._clock.end(output.request_id, live.prompt_tokens, live.tokens)
        counts = {CACHED_TOKENS: live.cached_tokens, PREEMPTIONS: live.inside.num_preemptions}
        return Commit(live.request_id, tokens, finished, {**telemetry, **counts, **waited}, error)

    def _watch(self, worker: Any) -> None:
        """Runs where the model is, which is this process."""
        self._clock.watch(worker.model_runner.get_model(), "forward", "compute_logits")

    def _is_lossless(self, options: Mapping[str, Any]) -> bool:
        """Whether its text is promised to be plain decoding's."""
        return True

    def _telemetry(self, output: Any, before: int, tokens: int) -> Mapping[str, float]:
        """What `tokens` new tokens add to the counts of a request that had `before`; the prompt's
        own token is not counted."""
        if not before:
            return NOTHING
        return self._one_token if tokens == 1 else self._work(tokens)

    def _work(self, tokens: int) -> Mapping[str, float]:
        return {"steps": 1, "layers_run": self._layers, "layers_total": self._layers * tokens}


def _keep_generators(worker: Any) -> None:
    keep_generators(worker.model_runner)
