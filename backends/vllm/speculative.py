"""The backend `vllm-speculative`: vLLM with one of its own draft-and-verify methods.

vLLM decodes, drafts and verifies; what is added here are checks before it is started, and counts by
the definitions of our own engine. vLLM's own statistics count accepted drafts behind a stop token
and leave out steps without drafts.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.checkpoints import models
from backends.checkpoints.draft_heads import check as draft_heads
from backends.checkpoints.draft_models import (
    AUTO,
    check_drafts,
    check_length,
    check_lookup,
    check_same_tokens,
    draft_files,
    find_draft,
    longest_sequence,
)
from backends.engine.drafters.counts import draft_counts
from backends.engine.model.architecture import FAMILIES
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
from backends.vllm.sampling import REPAIRED, repair_expansion
from harness.core.backend import Option
from harness.core.errors import UserError
from harness.core.names import DRAFT_US, REJECTION_SAMPLING
from harness.core.nouns import Model

NAME = "vllm-speculative"
PREFIX = f"backend '{NAME}': option"
DRAFT_MODEL, NGRAM, SUFFIX = "draft_model", "ngram", "suffix"
HEADS = ("eagle", "eagle3", "medusa", "mlp_speculator")
"""Methods whose drafts come from a head that was trained for the model."""
ON_GPU = ("ngram_gpu",)
METHODS = (DRAFT_MODEL, NGRAM, SUFFIX, *HEADS, *ON_GPU)
LOOKUPS = (NGRAM, "ngram_gpu")
ARGUMENTS = OWN_ARGUMENTS | dict.fromkeys(
    SPECULATIVE_ARGUMENTS, "the options 'method', 'draft', 'drafts' and 'speculative'"
) | {"per_request_spec_decode_metrics": "always on"}  # fmt: skip
GIVEN = {
    "method": "is the backend's option 'method'",
    "model": "is the backend's option 'draft'",
    "num_speculative_tokens": "is the backend's option 'drafts'",
    "prompt_lookup_min": "is the backend's option 'lookup_min'",
    "prompt_lookup_max": "is the backend's option 'lookup_max'",
    "synthetic_acceptance_rates": "answers would not be the model's",
    "synthetic_acceptance_length": "answers would not be the model's",
}
"""Fields of vLLM's SpeculativeConfig that may not be passed through, and why."""


class VllmSpeculative(VllmBackend):
    """vLLM's `LLMEngine` with a `speculative_config`: lossless by promise, which is measured."""

    NAME: ClassVar[str] = NAME
    CAPABILITIES: ClassVar[frozenset[str]] = frozenset({REJECTION_SAMPLING})
    OPTIONS: ClassVar[dict[str, Option]] = {
        **{k: o for k, o in VllmBackend.OPTIONS.items() if k not in ("margins", "replay")},
        "method": Option(str, DRAFT_MODEL, "vLLM's name of how drafts are made", choices=METHODS),
        "draft": Option(
            str, AUTO, "the draft model or the trained head: a bundled name, a folder or a hub id; "
            "auto: the demo model's draft model or EAGLE-3 head",
        ),
        "drafts": Option(int, 3, "tokens drafted for each verification", minimum=1),
        "lookup_min": Option(int, 2, "ngram: fewest tokens that must be found again", minimum=1),
        "lookup_max": Option(int, 4, "ngram: most tokens that are looked for", minimum=1),
        "speculative": Option(dict, {}, "further fields of vLLM's SpeculativeConfig, by name"),
    }  # fmt: skip

    def __init__(self, engine: Any, options: Mapping[str, Any], eos_ids: Sequence[int]) -> None:
        super().__init__(engine, options, eos_ids)
        self._scheduler = engine.engine_core.engine_core.scheduler
        self._seen: dict[str, int] = {}
        """By the engine's id: verifications that have been told."""

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for options that go against one another, a method that cannot run here
        and a draft model that does not fit."""
        check_engine(NAME, options["engine"], ARGUMENTS)
        check_speculative(f"{PREFIX} 'speculative'", options["speculative"], GIVEN)
        method, draft = options["method"], options["draft"]
        check_lookup(PREFIX, options)
        _check_method(method, draft)
        if model_dir is None:
            return
        check_drafts(PREFIX, options["drafts"], model_dir, options["max_model_len"])
        if method == DRAFT_MODEL:
            folder = find_draft(PREFIX, draft, model_dir)
            check_same_tokens(PREFIX, folder, model_dir)
            # beyond its length vLLM puts zeros in the place of drafts, and has them verified
            check_length(PREFIX, folder, longest_sequence(model_dir, options["max_model_len"]))
        elif method in HEADS:
            folder = _drafter(options, model_dir)
            _check_head(method, folder, model_dir)
            draft_heads.check_number(PREFIX, folder, options["drafts"])

    @classmethod
    def check_shape(cls, model_dir: Path, options: Mapping[str, Any]) -> None:
        """Raise `UserError`: nobody drafts what random weights say."""
        raise UserError("drafts for random weights are never accepted; vLLM cannot replay any")

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """The draft model's or head's files. Raises `UserError`."""
        if options["method"] not in (DRAFT_MODEL, *HEADS):
            return []
        return draft_files(_drafter(options, model_dir))

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the engine. Raises `UserError` for what vLLM refuses."""
        assert model_dir is not None
        set_environment(options["threads"])
        arguments = engine_arguments(options, model_dir, model.dtype) | {
            "speculative_config": _config(model_dir, options),
            "per_request_spec_decode_metrics": "detailed",
        }
        engine = load_engine(NAME, arguments)
        told = effective(options, engine)
        if engine.vllm_config.device_config.device_type == "cpu" and repair_expansion():
            told["repaired"] = REPAIRED
        return cls(engine, told, models.stop_ids(model_dir))

    def reset(self) -> None:
        """Abort what is unfinished and empty the prefix cache."""
        super().reset()
        self._seen.clear()

    def _telemetry(self, output: Any, before: int, tokens: int) -> Mapping[str, float]:
        """What a step adds: its work, and the drafts that it verified, if there were any."""
        if not before:
            return NOTHING
        found = output.spec_decode_metrics
        if found is None:
            found = self._scheduler.requests[output.request_id].spec_decode_metrics
        told, ended = self._seen.get(output.request_id, 0), output.finish_reason is not None
        self._seen[output.request_id] = len(found.per_step_drafted)
        if ended:
            del self._seen[output.request_id]
        work = {**self._work(tokens), "step_tokens": tokens}
        if told == len(found.per_step_drafted):
            return {**work, **draft_counts(0, 0, ended=ended)}
        accepted = min(found.per_step_accepted[-1], tokens)
        return {
            **work,
            **draft_counts(found.per_step_drafted[-1], accepted, ended=accepted == tokens),
        }

    def _watch(self, worker: Any) -> None:
        super()._watch(worker)
        self._clock.watch(worker.model_runner, "propose_draft_token_ids", count=DRAFT_US)


def _drafter(options: Mapping[str, Any], model_dir: Path) -> Path:
    """The folder of the draft model or of the head. Raises `UserError`."""
    method, draft = options["method"], options["draft"]
    if method in HEADS and draft == AUTO:
        return draft_heads.bundled(PREFIX, method, model_dir)
    return find_draft(PREFIX, draft, model_dir)


def _check_method(method: str, draft: str) -> None:
    """Raise `UserError` for a method that cannot run here."""
    if method in (*LOOKUPS, SUFFIX) and draft != AUTO:
        raise UserError(f"{PREFIX} 'draft': '{draft}': {method} drafts from the text alone")
    if method == SUFFIX and importlib.util.find_spec("arctic_inference") is None:
        raise UserError(
            f"{PREFIX} 'method': suffix needs a package that is not installed; 'pip install "
            "--no-deps arctic-inference==0.1.1' builds it"
        )
    if method in ON_GPU:
        import torch

        if not torch.cuda.is_available():
            raise UserError(f"{PREFIX} 'method': {method} needs a GPU; {NGRAM} does the same here")


def _check_head(method: str, folder: Path, model_dir: Path) -> None:
    """Raise `UserError` for a whole model where a head is expected, and another model's head."""
    named = models.architecture(folder)
    if named in FAMILIES:
        raise UserError(
            f"{PREFIX} 'draft': {folder}: architecture {named} is that of a whole model; {method} "
            f"needs a trained head, or say 'method: {DRAFT_MODEL}'"
        )
    draft_heads.check_target(PREFIX, method, folder, model_dir)


def _config(model_dir: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's SpeculativeConfig."""
    method = options["method"]
    found = {"method": method, "num_speculative_tokens": options["drafts"]}
    if method in LOOKUPS:
        found["prompt_lookup_min"] = options["lookup_min"]
        found["prompt_lookup_max"] = options["lookup_max"]
    elif method != SUFFIX:
        found["model"] = str(_drafter(options, model_dir))
    return {**found, **options["speculative"]}
