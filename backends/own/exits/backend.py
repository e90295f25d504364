"""Early exit on our own engine: each sequence leaves when it is sure, and batches are regrouped.

The measures, thresholds and decays are those of `vllm-early-exit`, whose batches leave when their
last sequence is sure. Here none waits for another (`backends.engine.early_exits`), as in DREX
(arXiv 2512.15705).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.early_exit.plan import ExitPlan
from backends.early_exit.planned import PlannedExits
from backends.early_exit.policy import NEVER
from backends.early_exit.settings import ASKING_MEASURE, EXIT_OPTIONS, check_exit_options
from backends.own.backend import OPTIONS, EngineBackend, Loaded, check_fit
from backends.own.decisions import Recorder, Replayer
from backends.own.exits.rule import SequenceRule, columns, exit_head, measure_of
from harness.core.backend import Option
from harness.core.nouns import Model

NAME = "own-early-exit"
READY, LOCKSTEP = "ready", "lockstep"


class OwnExitPlan(ExitPlan):
    """The options of early exit, read for this backend."""

    NAME = NAME


class OwnEarlyExit(PlannedExits, EngineBackend):
    """Early exit by sequence on our own engine: each leaves at the first checked layer where it is
    sure of its next token, waiting for no other, and batches are regrouped. Lossy, unless `measure`
    is never."""

    PLAN: ClassVar[type[ExitPlan]] = OwnExitPlan
    OPTIONS: ClassVar[dict[str, Option]] = {
        **OPTIONS,
        **EXIT_OPTIONS,
        "measure": ASKING_MEASURE,
        "layers": replace(
            EXIT_OPTIONS["layers"],
            help="layers after which confidence is asked; auto: the calibration's, else quarters "
            "of the depth",
        ),
        "batching": Option(
            str,
            READY,
            "ready: whoever left begins the next token at once, and the segment runs that has "
            "enough waiting; lockstep: all tokens go through first",
            (READY, LOCKSTEP),
        ),
    }

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for options that contradict each other, and for layers, heads, a
        classifier, a trace and sizes that do not fit the model."""
        if model_dir is None:
            check_exit_options(NAME, options)
            return
        check_fit(NAME, model_dir, options)
        OwnExitPlan(model_dir, options).check()

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the model and what measures confidence. Raises `UserError` for what the engine
        cannot take."""
        from backends.engine.decoder import Decoder
        from backends.engine.early_exits import EarlyExits
        from backends.engine.executors.base import StepRows

        assert model_dir is not None
        plan = OwnExitPlan(model_dir, options)
        loaded = Loaded(NAME, model_dir, model, options)
        rule = SequenceRule(plan.policy, plan.depth)
        executor = loaded.executor([exit_head(plan, x, loaded.weights.head) for x in rule.layers])
        decided: Recorder | Replayer | None = None
        if loaded.source is not None:
            decided = Replayer(loaded.source, columns(plan, rule.layers))
        elif options["record"]:
            decided = Recorder(len(rule.layers), judged=False)
        for index in range(1, len(executor.exits) + 1):
            # a first fill may have to be prepared, which is no part of any request's time
            executor.fill(index, StepRows.of([(0, 0, 0)]))
        costs, segments = _segments(executor, options)
        leaving = EarlyExits(
            executor,
            rule,
            segments,
            measure=measure_of(plan, executor, loaded.weights.embedding),
            decisions=decided if rule.layers else None,
        )
        decoder = Decoder(
            executor,
            leaving=leaving,
            decisions=decided if rule.layers or options["record"] else None,
            prefill_tokens=options["prefill_tokens"],
        )
        asked = plan.effective()
        if options["record"]:  # what a trace is made of: nothing is known of the others
            asked |= {
                "layers": list(rule.layers),
                "thresholds": list(plan.policy.checks().values()),
            }
        info = loaded.info(
            executor,
            asked,
            replace(plan.measured(model.dtype), costs=costs),
            lossless=options["measure"] == NEVER,
        )
        return cls(decoder, executor, info, loaded.stop_ids, decided)


def _segments(executor: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any] | None, Any]:
    """What chooses the next segment, and the costs that it chooses by."""
    from backends.engine.costs.timing import measure
    from backends.engine.segments.queues import BalancedQueues, Lockstep

    if options["batching"] == LOCKSTEP or not executor.exits:
        return None, Lockstep()
    rows = min(options["max_num_seqs"], MOST_TIMED)
    found = measure(executor, rows - 1)
    heads = (*found.exit_heads, found.final_head)
    full = found.segments_full or found.segments
    per_row = [(b - a) / max(rows - 1, 1) for a, b in zip(found.segments, full, strict=True)]
    fixed = [a - one + h for a, one, h in zip(found.segments, per_row, heads, strict=True)]
    return found.to_json(), BalancedQueues(fixed)


MOST_TIMED = 8
"""Rows of the pass that tells what a row adds."""
