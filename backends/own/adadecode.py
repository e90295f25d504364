"""AdaDecode (Wei et al., ICML 2025) on our own engine: early predictions at middle layers, deferred
and verified, so that the text stays that of plain decoding.

The authors published no code; the exact step is in `backends.engine.drafters.exits`. By default the
exit layers and thresholds are chosen for this machine, from measured costs and a held-out trace.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.checkpoints import exit_heads, models, traces
from backends.checkpoints.exit_heads import AUTO
from backends.own.backend import OPTIONS, EngineBackend, Loaded, check_fit
from backends.own.chosen_exits import (
    EIGHT_BITS,
    PAPER_GAMMA,
    ChosenExits,
    ExitQuestion,
    check_head_dtype,
)
from backends.own.decisions import Recorder, Replayer
from harness.core.backend import Option
from harness.core.errors import UserError
from harness.core.nouns import Model

NAME = "adadecode"
PREFIX = f"backend '{NAME}': option"
MOST_DRAFTS = 15
READY = "ready"
LOCKSTEP_BATCH = 4
"""In a lockstep batch the deepest request of each step decides, and what the others drafted costs
rows."""


class AdaDecode(EngineBackend):
    """Adaptive layer parallelism (AdaDecode) on our own engine: a token that a head at a middle
    layer is sure of is predicted there, the layers above it run later, together with those of the
    next tokens, and verify it. Lossless, unless `verify` is turned off."""

    OPTIONS: ClassVar[dict[str, Option]] = {
        **OPTIONS,
        "gamma": Option(
            float,
            AUTO,
            "an early prediction must be more probable than this; auto: per exit, chosen on the "
            f"heads' held-out trace ({PAPER_GAMMA} without one)",
            minimum=0,
            maximum=1,
            words=(AUTO,),
        ),
        "max_drafts": Option(
            int, 5, "early predictions that may wait for verification", minimum=1,
            maximum=MOST_DRAFTS,
        ),
        "batching": Option(
            str, READY, "ready: a segment runs when enough requests wait for it; lockstep: every "
            "request moves a token at a time", choices=(READY, "lockstep"),
        ),
        "max_batch": Option(
            int, None, "requests under way beyond which nothing is predicted early; default: those "
            f"up to which it pays by measured costs (lockstep: {LOCKSTEP_BATCH})", minimum=1,
        ),
        "exit_layers": Option(
            list, AUTO, "layers after which to predict; auto: chosen on the trace", words=(AUTO,)
        ),
        "heads": Option(
            str, AUTO, "exit heads: auto (the demo model's), a bundled name, a folder, or original"
        ),
        "shortlist": Option(
            int, None, "tokens that exit heads know, the most frequent (replayed without trained "
            "heads: the first); default: all", minimum=2
        ),
        "head_dtype": Option(
            str, AUTO, "fp8: exit heads of 8 bits a number, on a GPU; auto: the model's",
            choices=(AUTO, EIGHT_BITS),
        ),
        "verify": Option(bool, True, "false: early predictions stand unverified (lossy)"),
        "record": traces.RECORD,
    }  # fmt: skip

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """What options name that decides a trial's numbers: exit heads, the trace that is replayed.
        Raises `UserError`."""
        where = _heads(options, model_dir)
        heads = [] if where is None else [where / exit_heads.ABOUT, where / exit_heads.TENSORS]
        return [*heads, *traces.files(options, NAME)]

    @classmethod
    def warnings(cls, model_dir: Path, options: Mapping[str, Any]) -> list[str]:
        """That rates suppose more than they say."""
        return traces.supposed(options["replay"], NAME) if options["verify"] else []

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for heads, exit layers, a trace and sizes that do not fit the model."""
        replay = options["replay"]
        if replay is not None and options["record"]:
            raise UserError(f"{PREFIX} 'record' has no meaning with 'replay'")
        source = None if replay is None else traces.open_method(replay, NAME)
        if model_dir is None:
            return
        shape = check_fit(NAME, model_dir, options)
        check_head_dtype(options)
        where = _heads(options, model_dir)
        trained = None if where is None else _head_layers(where, model_dir)
        ExitQuestion(shape, trained, options, source)

    @classmethod
    def check_shape(cls, model_dir: Path, options: Mapping[str, Any]) -> None:
        """Raise `UserError` where exit heads would be asked of random weights."""
        super().check_shape(model_dir, options)
        if options["replay"] is None:
            raise UserError(traces.UNDECIDED)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the model and its exit heads, and choose what is left to choose. Raises `UserError`
        for heads of another checkpoint, layers without a head and what the engine cannot take."""
        from backends.engine.decoder import Decoder

        assert model_dir is not None
        where = _heads(options, model_dir)
        folder = None if where is None else exit_heads.open_folder(where, model_dir)
        loaded = Loaded(NAME, model_dir, model, options)
        plan = ChosenExits(loaded, folder, options)
        layers, gammas, predicted = plan.choose()
        executor = loaded.executor([plan.head(layer) for layer in layers])
        measured = plan.measured(executor, predicted)
        decided: Recorder | Replayer | None = None
        if loaded.source is not None:
            decided = Replayer(loaded.source, plan.question.columns(layers))
        elif options["record"]:
            decided = Recorder(len(layers))
        drafter, batches = _drafter(executor, gammas, options, plan, decided)
        effective = {"exit_layers": list(layers), "gamma": list(gammas), **batches}
        hook = decided if layers or options["record"] else None
        decoder = Decoder(
            executor,
            drafter,
            verify=options["verify"],
            decisions=hook,
            prefill_tokens=options["prefill_tokens"],
        )
        info = loaded.info(executor, effective, measured, lossless=options["verify"])
        return cls(decoder, executor, info, loaded.stop_ids, decided)


def _drafter(
    executor: Any,
    gammas: tuple[float, ...],
    options: Mapping[str, Any],
    plan: ChosenExits,
    decided: Recorder | Replayer | None,
) -> tuple[Any, dict[str, Any]]:
    """What predicts early, None without exits, and the options of batches that took effect."""
    from backends.engine.drafters.exits import ExitDrafter, PredictionPolicy
    from backends.engine.segments.fills import ready_plan
    from backends.engine.segments.measured import segment_costs
    from backends.engine.segments.ready import ReadyDrafter

    most, drafts = options["max_batch"], options["max_drafts"]
    if not executor.exits:
        return None, {}
    if options["batching"] != READY:
        most = most or LOCKSTEP_BATCH
        policy = PredictionPolicy(gammas, drafts, most)
        return ExitDrafter(executor, policy, decided), {"max_batch": most}
    rates = plan.rates(executor.exits)
    found = ready_plan(segment_costs(executor), rates, drafts, executor.slots)
    most = found.most if most is None else most
    policy = PredictionPolicy(gammas, drafts, most)
    fills = {str(number): list(waits) for number, waits in found.policy.fills.items()}
    drafter = ReadyDrafter(executor, policy, found.policy, decided)
    return drafter, {"max_batch": most, "fills": fills}


def _heads(chosen: Mapping[str, Any], model_dir: Path) -> Path | None:
    """The folder of exit heads; None for the model's own head, which in a replay stands in for what
    a model has no heads for. Raises `UserError`."""
    name = chosen["heads"]
    if name == AUTO and chosen["replay"] is not None and not models.is_demo(model_dir):
        name = exit_heads.ORIGINAL
    return exit_heads.find_folder(name, model_dir)


def _head_layers(where: Path, model_dir: Path) -> tuple[int, ...]:
    """The layers of a folder of heads, all of which is checked: once for a sweep's many options."""
    stamps = tuple(path.stat().st_mtime_ns for path in sorted(where.iterdir()))
    return _checked_layers(where, model_dir, stamps)


@functools.lru_cache(maxsize=32)
def _checked_layers(where: Path, model_dir: Path, stamps: tuple[int, ...]) -> tuple[int, ...]:
    return exit_heads.open_folder(where, model_dir).layers
