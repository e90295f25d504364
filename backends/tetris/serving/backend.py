"""TETRIS as a backend: an early-exit model as a pipeline of stages, in processes of their own."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.checkpoints import models, traces
from backends.early_exit.plan import ExitPlan
from backends.early_exit.planned import PlannedExits
from backends.early_exit.policy import NEVER
from backends.early_exit.settings import ASKING_MEASURE, EXIT_OPTIONS, check_exit_options
from backends.own.backend import OPTIONS, EngineBackend, check_fit, device, longest
from backends.own.decisions import Recorder, Replayer
from backends.own.exits.rule import SequenceRule, columns
from backends.tetris.pipeline.replicas import MOST_WORKERS, check_replicas
from backends.tetris.serving.cut_plan import NAME, CutPlan, traced
from backends.tetris.workers.options import (
    PLACE_OPTIONS,
    capabilities,
    check_place,
    default_threads,
    is_here,
    stage_device,
)
from backends.tetris.workers.piped_stages import ANSWERED_WITHIN_S
from backends.tetris.workers.whereabouts import by_stage
from harness.core.backend import Option
from harness.core.errors import UserError, runs_elsewhere
from harness.core.nouns import REPLAYED, BackendInfo, Measured, Model

KERNELS_OF = {"cpu": "native", "cuda": "triton"}
"""What runs a stage's layers on a device."""


class Tetris(PlannedExits, EngineBackend):
    """TETRIS: early exit in stages. The layers are cut into a pipeline of processes, and a sequence
    that is sure of its next token at the end of a stage leaves there. Lossy, unless `measure` is
    never, or `verify` lets the last stage judge who left."""

    PASSES: ClassVar[tuple[str, ...]] = ("ready",)
    PLAN: ClassVar[type[ExitPlan]] = CutPlan
    OPTIONS: ClassVar[dict[str, Option]] = {
        **OPTIONS,
        **EXIT_OPTIONS,
        "measure": ASKING_MEASURE,
        "layers": replace(
            EXIT_OPTIONS["layers"],
            help="layers behind which the model may be cut, each with a ramp; auto: the "
            "calibration's, else quarters of the depth",
        ),
        "kernels": replace(
            OPTIONS["kernels"],
            choices=("auto", *KERNELS_OF.values()),
            help="native (C++) on a CPU, triton on GPUs, a worker on each by turns",
        ),
        "threads": replace(
            OPTIONS["threads"], help="CPU threads of each worker; default: the cores, shared out"
        ),
        "stages": Option(
            int, 2, "parts that the layers are cut into", minimum=1, maximum=MOST_WORKERS
        ),
        "replicas": Option(
            list,
            None,
            "processes of each stage, in order, such as [2, 1]; default: one each",
            minimum=1,
            maximum=MOST_WORKERS,
        ),
        "verify": Option(
            bool,
            False,
            "true: what leaves early goes through all stages all the same, and the last one "
            "verifies it (AdaDecode as a pipeline; lossless)",
        ),
        "batch": Option(
            int,
            1,
            "rows that a later stage waits for as long as more may come; 1: it never waits",
            minimum=1,
        ),
        "wait_ms": Option(
            float,
            None,
            "that an idle stage waits for them, at most; default: until they come",
            minimum=0,
        ),
        "answered_within_s": ANSWERED_WITHIN_S,
        **PLACE_OPTIONS,
    }

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for options that contradict each other, for what does not fit the
        model or the device."""
        check_place(NAME, options)
        if options["replicas"] is not None:
            check_replicas(NAME, options["stages"], options["replicas"])
        found = stage_device(options, device())
        if not runs_elsewhere() and options["kernels"] not in ("auto", KERNELS_OF[found]):
            raise UserError(
                f"backend '{NAME}': option 'kernels': stages run on {found} here; expected auto or "
                f"{KERNELS_OF[found]}"
            )
        if model_dir is None:
            check_exit_options(NAME, options, traced(options))
            return
        check_fit(NAME, model_dir, {**options, "kernels": KERNELS_OF[found]}, found)
        plan = CutPlan(model_dir, options)
        plan.check()
        plan.cuts()

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Start the stages. Raises `UserError` for what the engine cannot take."""
        from backends.engine.model.architecture import read_architecture
        from backends.tetris.serving.drafts.pipeline import VerifyingPipeline
        from backends.tetris.serving.drafts.queues import DraftQueues
        from backends.tetris.serving.jobs import StageSetup, StateSizes
        from backends.tetris.serving.pipeline import StagePipeline
        from backends.tetris.serving.processes import StageProcesses
        from backends.tetris.serving.queues import StageQueues

        assert model_dir is not None
        plan = CutPlan(model_dir, options)
        shape, cuts = read_architecture(model_dir), plan.cuts()
        rule = SequenceRule(plan.policy, plan.depth, cuts)
        slots, piece = options["max_num_seqs"], options["prefill_tokens"]
        verifies, here = options["verify"], is_here(options)
        replicas = tuple(options["replicas"] or [1] * options["stages"])
        threads = options["threads"] or default_threads(options, sum(replicas))
        most, kernels = longest(shape, options), KERNELS_OF[stage_device(options, device())]
        taken = {**options, "max_model_len": most, "threads": threads, "kernels": kernels}
        whole_prompts = kernels == "triton"
        room = max(piece, most) if whole_prompts else piece
        decided = _decided(plan, rule)
        is_replay = isinstance(decided, Replayer)
        info = BackendInfo(
            name=NAME,
            version=importlib.metadata.version("decodebench"),
            provenance=REPLAYED if is_replay else "re-implementation",
            options={
                **taken,
                "layers": list(cuts),
                "replicas": list(replicas),
                "threshold": None,
                "thresholds": list(rule.bounds),
            },
            lossless=(verifies or options["measure"] == NEVER) and not is_replay,
            # what other machines could reach is not known here
            measured=Measured() if verifies or not here else plan.measured(model.dtype),
            capabilities=capabilities(options),
        )
        stops = models.stop_ids(model_dir)
        sizes = StateSizes(replicas, slots, room, shape.width)
        setup = StageSetup(0, cuts, model_dir, model, taken, threads, sizes)
        processes = StageProcesses(setup, shape)
        queued: Any = DraftQueues if verifies else StageQueues
        queues = queued(
            replicas,
            rule,
            slots=slots,
            batch=options["batch"],
            prefill_tokens=piece,
            wait_s=math.inf if options["wait_ms"] is None else options["wait_ms"] / 1e3,
            whole_prompts=whole_prompts,
            replayed=decided if is_replay else None,
        )
        layers = [end - start for start, end in pairwise((0, *cuts, plan.depth))]
        piped = VerifyingPipeline if verifies else StagePipeline
        seen = decided if rule.layers or options["record"] else None
        pipeline = piped(processes, rule, layers, queues, rows=room, decisions=seen)
        return cls(pipeline, processes, info, stops, decided)

    def places(self) -> list[dict[str, Any]]:
        """See `Backend.places`."""
        return by_stage(self.info.options["replicas"], self._executor.whereabouts())


def _decided(plan: CutPlan, rule: SequenceRule) -> Recorder | Replayer | None:
    """Who sees what is decided, or decides it. Raises `UserError`."""
    replay = plan.settings["replay"]
    if replay is not None:
        source = traces.open_source(replay, NAME, plan.method)
        return Replayer(source, columns(plan, rule.layers))
    return Recorder(len(rule.layers), judged=False) if plan.settings["record"] else None
