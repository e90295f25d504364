"""What the methods of `vllm-speculative` are told, read beside the model, and refuse."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.draft_heads import check as draft_heads
from backends.checkpoints.draft_heads.files import EAGLE3, MEDUSA
from backends.checkpoints.draft_models import (
    AUTO,
    draft_files,
    longest_sequence,
)
from backends.checkpoints.draft_traces import open_drafts
from backends.checkpoints.shapes.drafts import (
    check_drafting,
    draft_folder,
    drafting_shape,
    is_shape,
)
from backends.checkpoints.shapes.heads import DrawnHead, replayed_head
from backends.engine.model.architecture import FAMILIES
from backends.vllm import sources
from harness.core.backend import Option
from harness.core.errors import UserError, runs_elsewhere
from results.traces.rates import TraceSource

NAME = "vllm-speculative"
PREFIX = f"backend '{NAME}': option"
DRAFT_MODEL, NGRAM, SUFFIX = "draft_model", "ngram", "suffix"
LOADED = ("eagle", EAGLE3, MEDUSA)
HEADS = (*LOADED, "mlp_speculator")
"""Methods whose drafts come from a head that was trained for the model; of the last vLLM knows the
name alone, and registers no head."""
ON_GPU = ("ngram_gpu",)
METHODS = (DRAFT_MODEL, NGRAM, SUFFIX, *HEADS, *ON_GPU)
LOOKUPS = (NGRAM, "ngram_gpu")
LOOKED_FOR: Mapping[str, Option] = {
    "lookup_min": Option(int, 2, "ngram: fewest tokens that must be found again", minimum=1),
    "lookup_max": Option(int, 4, "ngram: most tokens that are looked for", minimum=1),
}
"""Options of these methods alone."""
REPLAYED = (DRAFT_MODEL, EAGLE3, MEDUSA, NGRAM, SUFFIX)
"""Methods of which a trace tells all: how many tokens they draft, and how many of these stand."""
OTHER_TOKENS = "use_heterogeneous_vocab"
"""The field of vLLM's SpeculativeConfig by which it drafts the tokens that both models know."""
METHODS_ON_V1 = (SUFFIX, MEDUSA, "mlp_speculator")
FIELDS_ON_V1 = (OTHER_TOKENS, "parallel_drafting")
"""Methods, and fields of SpeculativeConfig, that vLLM's newer model runner does not do."""
GREEDY = "greedy"
"""How vLLM samples drafts by default, and the only way with mapped tokens."""
KEPT = ("eagle", EAGLE3)
"""Methods with heads that vLLM keeps to whatever the head's path says."""
HEADS_BY_PATH = ("eagle-", EAGLE3, "dflash", "dspark")
"""What vLLM's `SpeculativeConfig` looks for in a draft's path, and then takes another method."""
RANKS = ("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size")
"""vLLM's arguments whose product is the number of processes that a model is in."""


def drafter(options: Mapping[str, Any], model_dir: Path) -> Path:
    """The folder of the draft model or of the head, made now if it is one of random weights. Raises
    `UserError`."""
    method = options["method"]
    if method in HEADS and options["draft"] == AUTO:
        if (drawn := drawn_head(options, model_dir)) is not None:
            return drawn.made(PREFIX)
        return draft_heads.bundled(PREFIX, method, model_dir)
    return draft_folder(PREFIX, model_dir, options)


def gpu_remarks(options: Mapping[str, Any]) -> list[str]:
    """What vLLM runs on a GPU in another way than without drafts; on a CPU both run on the same."""
    what = _on_v1(options)
    if what is None or not _on_gpu():
        return []
    on, told = "vLLM's V1 model runner", "'model_runner' among a trial's effective options says"
    if options["replay"]:
        on = "vLLM's synchronous scheduler and its V1 model runner"
        told = "'async_scheduling' and 'model_runner' among a trial's effective options say"
    return [
        f"{PREFIX} {what}: runs on {on}, and 'vllm' on vLLM's defaults: a part of their ratio may "
        f"come from that; {told} what ran"
    ]


def _on_v1(options: Mapping[str, Any]) -> str | None:
    """What has vLLM decode on its V1 model runner on a GPU, as on a CPU; None where nothing has."""
    if options["replay"]:
        return "'replay'"
    if (method := options["method"]) in METHODS_ON_V1:
        return f"'method': {method}"
    asked = (name for name in FIELDS_ON_V1 if options["speculative"].get(name) is True)
    return next((f"'speculative': {name}" for name in asked), None)


def drafter_files(options: Mapping[str, Any], model_dir: Path) -> list[Path]:
    """What decides the drafts of a model or head: its tokenizer too where vLLM maps its tokens.
    Raises `UserError`."""
    folder = drafter(options, model_dir)
    mapped = options["speculative"].get(OTHER_TOKENS) is True
    tokenizer = ("tokenizer.json", "tokenizer_config.json") if mapped else ()
    return draft_files(folder) + [folder / n for n in tokenizer if (folder / n).is_file()]


def drawn_head(options: Mapping[str, Any], model_dir: Path) -> DrawnHead | None:
    """The head of random weights that drafts in a replay; None where another head does. Raises
    `UserError`."""
    return replayed_head(PREFIX, options, model_dir, find_trace(options))


def find_trace(options: Mapping[str, Any]) -> TraceSource | None:
    """What is replayed; None where nothing is. Raises `UserError` for a method whose drafts no
    trace tells of, and for a trace that does not fit."""
    method = options["method"]
    for asked in ("replay", "record"):
        if options[asked] and method not in REPLAYED:
            raise UserError(
                f"{PREFIX} '{asked}': no trace tells of the drafts of vLLM's method {method}; "
                f"expected {' or '.join(REPLAYED)}"
            )
    if options["replay"] and options["record"]:
        raise UserError(f"{PREFIX} 'record' has no meaning with 'replay'")
    own = tuple(LOOKED_FOR) if method in LOOKUPS else ()
    return open_drafts(PREFIX, options, NAME, own, REPLAYED)


def check_ranks(options: Mapping[str, Any]) -> None:
    """Raise `UserError` where drafts are judged by a trace, and the model is in other processes."""
    for name in RANKS:
        if options["replay"] and (size := options["engine"].get(name, 1)) != 1:
            raise UserError(
                f"{PREFIX} 'replay': engine: {name}: {size!r}: expected 1: a trace judges drafts "
                "in the backend's own process, and the model would be in others"
            )


def check_draft_model(model_dir: Path, options: Mapping[str, Any]) -> None:
    """Raise `UserError` for one that is a head, has other tokens (unless vLLM is told to map them)
    or is meant for shorter sequences: beyond its length vLLM puts zeros in the place of drafts, and
    has them verified."""
    longest = longest_sequence(model_dir, options["max_model_len"])
    check_drafting(
        PREFIX,
        model_dir,
        options,
        longest,
        _check_whole,
        same_tokens=options["speculative"].get(OTHER_TOKENS) is not True,
    )
    made = drafting_shape(PREFIX, model_dir, options)
    if made is not None and not runs_elsewhere():
        _check_path(made.folder, "give the shape another name, or set XDG_CACHE_HOME")


def check_drawn(head: DrawnHead) -> None:
    """Raise `UserError` for a damaged one, and one that lies where vLLM takes it for another
    method's."""
    head.check()
    if head.kind not in KEPT and not runs_elsewhere():
        _check_path(head.folder, "set XDG_CACHE_HOME")


def _check_whole(folder: Path) -> None:
    draft_heads.check_whole(PREFIX, folder, LOADED)
    named = models.architecture(folder)
    if named in _registered_heads():
        raise UserError(f"{PREFIX} 'draft': {folder}: is a head ({named}), not a model")
    _check_path(folder, "move or copy it elsewhere")


def _registered_heads() -> frozenset[str]:
    return sources.keys("model_executor/models/registry.py", "_SPECULATIVE_DECODING_MODELS")


def _check_path(folder: Path, hint: str) -> None:
    for part in HEADS_BY_PATH:
        if part in str(folder).lower():
            raise UserError(
                f"{PREFIX} 'draft': {folder}: vLLM takes a draft under a path with '{part}' for a "
                f"head; {hint}"
            )


def check_method(options: Mapping[str, Any]) -> None:
    """Raise `UserError` for a method that this vLLM has not, that cannot run here, or that is asked
    for what it cannot do."""
    method, draft = options["method"], options["draft"]
    known = sources.choices("config/speculative.py", "SpeculativeMethod")
    if known and method not in known:
        raise UserError(
            f"{PREFIX} 'method': the installed vLLM has no method {method}; of those that can be "
            f"asked for it has {', '.join(name for name in METHODS if name in known)}"
        )
    if method in HEADS and is_shape(draft):
        raise UserError(
            f"{PREFIX} 'draft': '{draft}': is a shape, and {method} drafts with a trained head; "
            "expected its folder or hub id"
        )
    if method in (*LOOKUPS, SUFFIX) and draft != AUTO:
        raise UserError(f"{PREFIX} 'draft': '{draft}': {method} drafts from the text alone")
    for name, option in LOOKED_FOR.items():
        if method not in LOOKUPS and options[name] != option.default:
            raise UserError(f"{PREFIX} '{name}': belongs to method {NGRAM}, not {method}")
    if options["speculative"].get(OTHER_TOKENS):
        _check_mapped(method, options["speculative"].get("draft_sample_method", GREEDY))
    if not runs_elsewhere():
        _check_machine(options)


def _check_mapped(method: str, sampled: str) -> None:
    where = f"{PREFIX} 'speculative': "
    if method != DRAFT_MODEL:
        raise UserError(f"{where}{OTHER_TOKENS}: belongs to method {DRAFT_MODEL}, not {method}")
    if sampled != GREEDY:
        raise UserError(
            f"{where}draft_sample_method: is {sampled}; expected {GREEDY} with {OTHER_TOKENS}"
        )


def _on_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _check_machine(options: Mapping[str, Any]) -> None:
    method = options["method"]
    # of the V1 model runner; the other has no such limit
    most = sources.number("v1/sample/rejection_sampler.py", "MAX_SPEC_LEN")
    on_gpu, by = _on_gpu(), _on_v1(options)
    if most is not None and options["drafts"] > most and (by or not on_gpu):
        where = f"its V1 model runner ({by})" if on_gpu else "a CPU"
        raise UserError(
            f"{PREFIX} 'drafts': is {options['drafts']}; expected at most {most}, the most that "
            f"the installed vLLM verifies at once on {where}"
        )
    if method == SUFFIX and importlib.util.find_spec("arctic_inference") is None:
        raise UserError(
            f"{PREFIX} 'method': suffix needs a package that is not installed; 'pip install "
            "--no-deps arctic-inference==0.1.1' builds it"
        )
    if method in ON_GPU and not on_gpu:
        raise UserError(f"{PREFIX} 'method': {method} needs a GPU; {NGRAM} does the same here")


def check_head(method: str, folder: Path, model_dir: Path) -> None:
    """Raise `UserError` for a whole model where a head is expected, another model's head, and one
    that vLLM registers no class for or takes for another method's."""
    named = models.architecture(folder)
    if named in FAMILIES and draft_heads.head_kind(folder) is None:
        raise UserError(
            f"{PREFIX} 'draft': {folder}: architecture {named} is that of a whole model; {method} "
            f"needs a trained head, or say 'method: {DRAFT_MODEL}'"
        )
    if method not in KEPT:
        _check_path(folder, "move or copy it elsewhere")
    elif (
        named in FAMILIES
        and draft_heads.PUBLISHED not in models.read_config(folder)
        and (known := _registered_heads())
    ):
        name = f"Eagle{'3' * (method == EAGLE3)}{named}"
        if name not in known:
            raise UserError(
                f"{PREFIX} 'draft': {folder}: the installed vLLM has no head {name}, for which it "
                f"would take it by its architecture, {named}"
            )
    draft_heads.check_target(PREFIX, method, folder, model_dir)


def config(model_dir: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's SpeculativeConfig."""
    method = options["method"]
    found = {"method": method, "num_speculative_tokens": options["drafts"]}
    if method in LOOKUPS:
        found["prompt_lookup_min"] = options["lookup_min"]
        found["prompt_lookup_max"] = options["lookup_max"]
    elif method != SUFFIX:
        found["model"] = str(drafter(options, model_dir))
    return {**found, **options["speculative"]}
