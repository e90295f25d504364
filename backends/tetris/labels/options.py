"""The options of a pipeline of labels: where it is cut, its workers, and when it is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backends.classifiers.config import ClassifierConfig
from backends.classifiers.options import (
    BATCH_OPTIONS,
    NEVER,
    RAMP_OPTIONS,
    check_cuts,
    even_cuts,
)
from backends.tetris.pipeline.replicas import MOST_WORKERS, check_replicas
from backends.tetris.workers.options import PLACE_OPTIONS
from backends.tetris.workers.piped_stages import ANSWERED_WITHIN_S
from harness.core.backend import Option
from harness.core.errors import UserError

LEAST_WINDOW_S = 0.1
"""In less a worker runs too few batches to be judged by."""
AUTO = "auto"

PIPELINE_OPTIONS: dict[str, Option] = {
    **BATCH_OPTIONS,
    **RAMP_OPTIONS,
    "stages": Option(int, 2, "parts that the layers are cut into", minimum=1, maximum=MOST_WORKERS),
    "layers": Option(
        list, None, "layers behind which a stage ends; default: even stages", minimum=1
    ),
    "workers": Option(
        int,
        None,
        "processes, each of which runs one stage; default: as many as replicas, or stages",
        minimum=1,
        maximum=MOST_WORKERS,
    ),
    "replicas": Option(
        list,
        None,
        "workers of each stage, in order; auto: the workers shared out evenly until the first "
        "window's end, then as planned; default: one each",
        minimum=1,
        maximum=MOST_WORKERS,
        words=(AUTO,),
    ),
    "replan_s": Option(
        float,
        0.0,
        "plan stages and their workers anew after windows of so many seconds (TETRIS's: 120); all "
        "ramps are asked then, and each worker keeps all layers; 0: never",
        minimum=0,
        maximum=1e6,
    ),
    "wait_ms": Option(
        float, 20.0, "that survivors wait to be fused to a whole batch, at most", minimum=0
    ),
    "slo_ms": Option(
        float,
        None,
        "from an input's arrival to its label: who can still make it waits no longer for a "
        "whole batch, and plans have to meet it; default: no such deadline",
        minimum=1,
        maximum=1e9,
    ),
    "answered_within_s": ANSWERED_WITHIN_S,
    **PLACE_OPTIONS,
    "black_box": Option(
        bool, False, "ask all ramps, also inside stages, as without the paper's exit_wrapper"
    ),
}


def check_stages(name: str, options: Mapping[str, Any]) -> None:
    """Raise `UserError` for stages, workers and replicas that contradict each other."""
    stages, layers, replan_s = options["stages"], options["layers"], options["replan_s"]
    if layers is not None and len(layers) != stages - 1:
        told = f"names {len(layers)} ends of stages; {stages} stages have {stages - 1}"
        raise UserError(f"backend '{name}': option 'layers': {told}")
    if 0 < replan_s < LEAST_WINDOW_S:
        told = f"expected 0 or at least {LEAST_WINDOW_S}, got {replan_s}"
        raise UserError(f"backend '{name}': option 'replan_s': {told}")
    if replan_s and options["measure"] == NEVER:
        told = f"means nothing with measure '{NEVER}': nobody leaves; expected 0"
        raise UserError(f"backend '{name}': option 'replan_s': {told}")
    _check_replicas(name, options)


def _check_replicas(name: str, options: Mapping[str, Any]) -> None:
    stages, replicas, workers = options["stages"], options["replicas"], options["workers"]
    where = f"backend '{name}': option"
    if replicas == AUTO and not options["replan_s"]:
        told = "who leaves is seen only while it serves; expected option 'replan_s' above 0"
        raise UserError(f"{where} 'replicas': {AUTO}: {told}, or a list")
    if isinstance(replicas, list):
        check_replicas(name, stages, replicas)
        if workers is not None and sum(replicas) != workers:
            told = f"{replicas!r} add up to {sum(replicas)}; option 'workers' is {workers}"
            raise UserError(f"{where} 'replicas': {told}")
    elif workers is not None and workers < stages:
        told = f"is {workers}; {stages} stages need one each"
        raise UserError(f"{where} 'workers': {told}")
    elif workers is not None and workers > stages and replicas is None:
        told = f"is {workers} for {stages} stages; expected option 'replicas' as well"
        raise UserError(f"{where} 'workers': {told}: a list, or {AUTO} with 'replan_s'")


def stage_ends(name: str, options: Mapping[str, Any], config: ClassifierConfig) -> tuple[int, ...]:
    """Layers behind which a stage ends, the last layer left out. Raises `UserError`."""
    if options["layers"] is not None:
        return check_cuts(name, "layers", options["layers"], config)
    return even_cuts(name, config, options["stages"])


def first_replicas(options: Mapping[str, Any]) -> Sequence[int]:
    """Workers of each stage before anything was planned. Shared out evenly, the earlier stages have
    those that are left over: more come to them."""
    stages, replicas = options["stages"], options["replicas"]
    if isinstance(replicas, list):
        return replicas
    each, more = divmod(options["workers"] or stages, stages)
    return [each + (place < more) for place in range(stages)]
