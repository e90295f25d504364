"""The backend `vllm-speculative`: vLLM with one of its own draft-and-verify methods.

vLLM decodes, drafts and verifies; what is added here are checks before it is started, and counts by
the definitions of our own engine. vLLM's own statistics count accepted drafts behind a stop token
and leave out steps without drafts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.checkpoints import models, traces
from backends.checkpoints.draft_heads import check as draft_heads
from backends.checkpoints.draft_heads.files import EAGLE3
from backends.checkpoints.draft_models import AUTO, check_drafts, check_lookup
from backends.checkpoints.draft_traces import (
    REPLAY,
    SEARCHES,
    STATES_AFTER,
    check_workload,
    find_drafts,
    remarks,
)
from backends.engine.drafters.counts import draft_counts
from backends.vllm.arguments import (
    OWN_ARGUMENTS,
    SPECULATIVE_ARGUMENTS,
    check_engine,
    check_speculative,
    effective,
    engine_arguments,
    load_engine,
    set_environment,
)
from backends.vllm.backend import NOTHING, VllmBackend
from backends.vllm.drafting import (
    DRAFT_MODEL,
    HEADS,
    LOOKED_FOR,
    METHODS,
    NAME,
    PREFIX,
    REPLAYED,
    SUFFIX,
    check_draft_model,
    check_drawn,
    check_head,
    check_method,
    check_ranks,
    config,
    drafter,
    drafter_files,
    drawn_head,
    find_trace,
    gpu_remarks,
)
from backends.vllm.drafts import ReplayedVerification, forget_answers, states_after
from backends.vllm.sampling import REPAIRED, repair_expansion
from harness.core.backend import Option
from harness.core.decisions import Decisions
from harness.core.errors import UserError
from harness.core.names import DRAFT_US, DRAFTS_FROM_ANSWERS, REJECTION_SAMPLING
from harness.core.nouns import Commit, Model
from results.traces.rated import drafts_of
from results.traces.rates import TraceSource
from results.traces.recorded import TraceRow

ARGUMENTS = OWN_ARGUMENTS | dict.fromkeys(
    SPECULATIVE_ARGUMENTS, "the options 'method', 'draft', 'drafts' and 'speculative'"
) | {
    "per_request_spec_decode_metrics": "always on",
    "distributed_executor_backend": "the model runs in the backend's own process",
}  # fmt: skip
GIVEN = {
    "method": "is the backend's option 'method'",
    "model": "is the backend's option 'draft'",
    "num_speculative_tokens": "is the backend's option 'drafts'",
    "prompt_lookup_min": "is the backend's option 'lookup_min'",
    "prompt_lookup_max": "is the backend's option 'lookup_max'",
    "max_model_len": "beyond it drafts are zeros; see the backend's option 'max_model_len'",
    "synthetic_acceptance_rates": "answers would not be the model's",
    "synthetic_acceptance_length": "answers would not be the model's",
}
"""Fields of vLLM's SpeculativeConfig that may not be passed through, and why."""
SYNTHETIC = "synthetic"
"""The rejection sampling that accepts drafts by rates, whatever the model says."""


class VllmSpeculative(VllmBackend):
    """vLLM's own draft-and-verify (`LLMEngine` with a `speculative_config`): drafts of a small
    model, a trained head or the text, verified in one pass. Lossless by promise, which is
    measured."""

    NAME: ClassVar[str] = NAME
    CAPABILITIES: ClassVar[frozenset[str]] = frozenset({REJECTION_SAMPLING})
    OPTIONS: ClassVar[dict[str, Option]] = {
        **{k: o for k, o in VllmBackend.OPTIONS.items() if k != "margins"},
        "replay": REPLAY,
        "method": Option(str, DRAFT_MODEL, "vLLM's name of how drafts are made", choices=METHODS),
        "draft": Option(
            str, AUTO, "the draft model or the trained head: a bundled name, a folder or a hub id; "
            "auto: the demo model's draft model or EAGLE-3 head. In a replay of draft_model also a "
            "shape, which gets the model's vocabulary; auto: one that suits it, or a head of "
            "random weights",
        ),
        "drafts": Option(int, 3, "tokens drafted for each verification", minimum=1),
        **LOOKED_FOR,
        "speculative": Option(dict, {}, "further fields of vLLM's SpeculativeConfig, by name"),
        "record": traces.RECORD,
    }  # fmt: skip

    def __init__(self, engine: Any, options: Mapping[str, Any], eos_ids: Sequence[int]) -> None:
        super().__init__(engine, options, eos_ids)
        self._scheduler = engine.engine_core.engine_core.scheduler
        self._seen: dict[str, int] = {}
        """By the engine's id: verifications that have been told."""
        self._records = bool(options["record"])
        self._decided = Decisions()
        self._under_way = 0
        """Requests that got tokens in the last step."""
        self._learns = options["method"] == SUFFIX
        if self._learns:
            more = {*self.CAPABILITIES, DRAFTS_FROM_ANSWERS}
            self.info = replace(self.info, capabilities=frozenset(more))
        self._most_found = options["drafts"] if options["method"] in SEARCHES else 0
        """By a search of the text; 0 where others draft, who never find fewer."""
        self._replayed: ReplayedVerification | None = None
        if self._source is not None:
            engine.collective_rpc(self._replace_judge)

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for options that go against one another, a method that cannot run here
        and a draft model that does not fit."""
        check_engine(NAME, options["engine"], ARGUMENTS)
        where = f"{PREFIX} 'speculative'"
        check_speculative(where, options["speculative"], GIVEN)
        if options["speculative"].get("rejection_sample_method") == SYNTHETIC:
            raise UserError(
                f"{where}: rejection_sample_method: {SYNTHETIC}: answers would not be the model's"
            )
        method = options["method"]
        check_method(options)
        check_lookup(PREFIX, options)
        find_trace(options)
        check_ranks(options)
        if model_dir is None:
            return
        check_drafts(PREFIX, options["drafts"], model_dir, options["max_model_len"])
        if method == DRAFT_MODEL:
            check_draft_model(model_dir, options)
        elif method in HEADS and (drawn := drawn_head(options, model_dir)) is not None:
            check_drawn(drawn)
        elif method in HEADS:
            folder = drafter(options, model_dir)
            check_head(method, folder, model_dir)
            draft_heads.check_number(PREFIX, folder, options["drafts"])

    @classmethod
    def check_shape(cls, model_dir: Path, options: Mapping[str, Any]) -> None:
        """Raise `UserError` where drafts would be held against what random weights say."""
        if find_trace(options) is None:
            raise UserError(
                "drafts for random weights are never accepted; give 'replay: demo', a trace or "
                f"rates, for method {' or '.join(REPLAYED)}"
            )

    @classmethod
    def check_workload(cls, workload: str, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for a workload of which a replayed trace has no request."""
        check_workload(PREFIX, find_trace(options), workload)

    @classmethod
    def warnings(cls, model_dir: Path, options: Mapping[str, Any]) -> list[str]:
        """That another number of drafts than the trace's is replayed, and on a GPU by what.
        Raises `UserError` as the plain engine does."""
        super().warnings(model_dir, options)
        trace = find_trace(options)
        found = [] if trace is None else remarks(PREFIX, trace, options["drafts"])
        return [*found, *gpu_remarks(options)]

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """The draft model's or head's files, and the trace that is replayed. Raises
        `UserError`."""
        trace = find_drafts(PREFIX, options, NAME)
        found = [] if trace is None else [trace]
        if options["method"] in (DRAFT_MODEL, *HEADS):
            found += drafter_files(options, model_dir)
        return found

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the engine. Raises `UserError` for what vLLM refuses."""
        assert model_dir is not None
        set_environment(options["threads"])
        arguments = engine_arguments(options, model_dir, model.dtype) | {
            "speculative_config": config(model_dir, options),
            "per_request_spec_decode_metrics": "detailed",
        }
        if options["replay"] is not None:
            # else the lengths by which a trace is read are not known when drafts are judged
            arguments["async_scheduling"] = False
            # the one whose verification is replayed
            os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
        engine = load_engine(NAME, arguments)
        told = effective(options, engine)
        on_cpu = engine.vllm_config.device_config.device_type == "cpu"
        if on_cpu and all(engine.collective_rpc(repair_expansion)):
            told["repaired"] = REPAIRED
        if options["method"] == EAGLE3:
            told[STATES_AFTER] = engine.collective_rpc(states_after)[0]
        return cls(engine, told, models.stop_ids(model_dir))

    def reset(self) -> None:
        """Abort what is unfinished and empty the prefix cache."""
        super().reset()
        self._seen.clear()
        if self._learns:
            self._engine.collective_rpc(forget_answers)
        if self._replayed is not None:
            self._replayed.clear()
            if self._learns:
                self._replayed.watch_search()

    @classmethod
    def _open_source(cls, options: Mapping[str, Any]) -> TraceSource:
        trace = find_trace(options)
        assert trace is not None
        return trace

    def _replace_judge(self, worker: Any) -> None:
        """Runs where the model is, which is this process."""
        self._replayed = ReplayedVerification(worker.model_runner)

    def _replay(self, name: str, row: TraceRow, max_new_tokens: int) -> None:
        assert self._replayed is not None
        assert self._source is not None
        self._replayed.enter(name, drafts_of(self._source, row))

    def _step(self) -> Sequence[Any]:
        found = super()._step()
        self._under_way = len(found)
        return found

    def _commit(self, output: Any) -> Commit:
        self._decided = Decisions()
        commit = super()._commit(output)
        if commit.finished is not None and self._replayed is not None:
            self._replayed.leave(output.request_id)
        return replace(commit, decisions=self._decided) if self._records else commit

    def _telemetry(self, output: Any, before: int, tokens: int) -> Mapping[str, float]:
        """What a step adds: its work, and the drafts that it verified, if there were any."""
        found = output.spec_decode_metrics
        if found is None and (request := self._scheduler.requests.get(output.request_id)):
            found = request.spec_decode_metrics
        if not before:
            if found is not None and output.finish_reason is None:
                # a prompt of which one token is not cached is padded as if by drafts
                self._seen[output.request_id] = len(found.per_step_drafted)
            return NOTHING
        told, ended = self._seen.get(output.request_id, 0), output.finish_reason is not None
        self._seen[output.request_id] = len(found.per_step_drafted)
        if ended:
            del self._seen[output.request_id]
        work = {**self._work(tokens), "step_tokens": tokens}
        if told == len(found.per_step_drafted):
            self._decide(0, 0)
            return {**work, **draft_counts(0, 0, ended=ended)}
        accepted = min(found.per_step_accepted[-1], tokens)
        self._decide(found.per_step_drafted[-1], accepted)
        return {
            **work,
            **draft_counts(found.per_step_drafted[-1], accepted, ended=accepted == tokens),
        }

    def _decide(self, drafted: int, accepted: int) -> None:
        """Of a step, for a trace. vLLM asks a draft model for as many as there is room for, and a
        search that found fewer was asked for one more."""
        if self._records:
            self._decided = Decisions(
                drafted=[drafted],
                accepted=[accepted],
                batch=[self._under_way],
                asked=[max(drafted, min(drafted + 1, self._most_found))],
            )

    def _watch(self, worker: Any) -> None:
        super()._watch(worker)
        self._clock.watch(worker.model_runner, "propose_draft_token_ids", count=DRAFT_US)
