"""`tetris-classifier`: TETRIS for one-pass classification, on the cores of one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from backends.classifiers.backend import LabelBackend, refuse_unknown
from backends.classifiers.config import ClassifierConfig, ramps
from backends.classifiers.one_device import check_ramps
from backends.classifiers.options import NEVER, check, rule, taken
from backends.tetris.labels.options import (
    PIPELINE_OPTIONS,
    check_stages,
    first_replicas,
    stage_ends,
)
from backends.tetris.pipeline.replicas import worker_names
from backends.tetris.workers.options import (
    capabilities,
    check_place,
    default_threads,
    place_of,
)
from backends.tetris.workers.whereabouts import by_stage, check_alike
from harness.core.backend import Option
from harness.core.nouns import BackendInfo, Commit, Model

if TYPE_CHECKING:
    from backends.classifiers.flight import InputInFlight
    from backends.tetris.labels.costs import LabelStages
    from backends.tetris.labels.jobs import LabelStageSetup
    from backends.tetris.labels.pipeline import LabelPipeline
    from backends.tetris.labels.plan_process import ProcessMaker
    from backends.tetris.labels.replanned import ServedPlans
    from backends.tetris.labels.stages import StageSpan

NO_SLO_MS = 1e9
TIMED, MOST_TIMED = 64, 400
"""Inputs with which the layers are timed."""


class TetrisClassifier(LabelBackend):
    """TETRIS for a classifier: its layers are cut into a pipeline of processes, and an input that
    is sure of its label at the end of a stage leaves there. Lossy, unless `measure` is never."""

    NAME = "tetris-classifier"
    OPTIONS: ClassVar[dict[str, Option]] = PIPELINE_OPTIONS

    def __init__(
        self,
        config: ClassifierConfig,
        info: BackendInfo,
        workers: LabelStages,
        pipeline: LabelPipeline,
        maker: ProcessMaker | None = None,
    ) -> None:
        super().__init__(config, info)
        self.workers, self._pipeline, self.maker = workers, pipeline, maker

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for options that contradict each other or do not fit the model."""
        check(cls.NAME, options)
        check_stages(cls.NAME, options)
        check_place(cls.NAME, options)
        if model_dir is not None:
            config = refuse_unknown(cls.NAME, model_dir)
            ends = stage_ends(cls.NAME, options, config)
            check_ramps(cls.NAME, options, ends, ramps(model_dir, config))

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Start the workers; with `replan_s` they measure what their layers cost. Raises
        `UserError` for weights that do not fit."""
        from backends.classifiers.weights import load
        from backends.tetris.labels import worker
        from backends.tetris.labels.pipeline import LabelPipeline
        from backends.tetris.labels.plan_process import ProcessMaker
        from backends.tetris.labels.stages import spans
        from backends.tetris.workers.piped_stages import PipedStages

        assert model_dir is not None
        config = refuse_unknown(cls.NAME, model_dir)
        ends = stage_ends(cls.NAME, options, config)
        stages = spans((*ends, config.depth), replicas := first_replicas(options))
        there: Sequence[int] = ()
        if rule(options) is not None:
            there = load(model_dir, model.dtype).ramps
            check_ramps(cls.NAME, options, ends, there)
        in_force = taken(
            {
                **options,
                "threads": options["threads"] or default_threads(options, sum(replicas)),
                "layers": list(ends),
                "workers": sum(replicas),
                "replicas": list(replicas),
                "black_box": options["black_box"] or options["replan_s"] > 0,
            }
        )
        setups = _setups(model_dir, model, in_force, stages, there)
        place = place_of(cls.NAME, worker.__name__, options, needed=[model_dir])
        patience_s, names = options["answered_within_s"], worker_names(replicas)
        if options["replan_s"]:  # whose stages change
            names = [f"worker {number}" for number in range(1, len(setups) + 1)]
        workers: LabelStages = PipedStages(cls.NAME, place, setups, patience_s, names)
        maker = plans = None
        try:
            if options["replan_s"]:
                where = workers.whereabouts()
                check_alike(f"backend '{cls.NAME}': option 'replan_s'", where)
                maker = ProcessMaker(cls.NAME)
                plans = _plans(workers, maker, model_dir, in_force, stages, there)
        except BaseException:
            workers.close()
            if maker is not None:
                maker.close()
            raise
        pipeline = LabelPipeline(
            workers,
            stages,
            batch=options["batch"],
            wait_ms=options["wait_ms"],
            slo_ms=options["slo_ms"],
            plans=plans,
        )
        info = cls.describe(in_force, lossless=options["measure"] == NEVER)
        info = replace(info, capabilities=capabilities(options))
        return cls(config, info, workers, pipeline, maker)

    def enqueue(self, one: InputInFlight) -> None:
        """Before the first stage."""
        self._pipeline.add(one)

    def advance(self) -> Sequence[InputInFlight]:
        """Who is done by now; workers that are idle get what waits for them."""
        return self._pipeline.step()

    def poll(self) -> list[Commit]:
        """The labels of those who are done, the first with what the stages did since."""
        found = super().poll()
        if not found or found[0].label is None:
            return found
        counts = {**found[0].telemetry, **self._pipeline.counts()}
        return [replace(found[0], telemetry=counts), *found[1:]]

    def wait(self, timeout_s: float) -> None:
        """Until a worker has answered, or a batch is due that is not whole."""
        self._pipeline.rest(timeout_s)

    def texts(self) -> None:
        """None, since labels are told. The trial is over: what is still planned would only take a
        core from the next one."""
        self._pipeline.drop_plan()

    def places(self) -> Sequence[Mapping[str, Any]]:
        """See `Backend.places`. Where plans change, a worker is of no stage."""
        found, options = self.workers.whereabouts(), self.info.options
        if not options["replan_s"]:
            return by_stage(options["replicas"], found)
        each = enumerate(found, start=1)
        return [{"worker": number, **one.to_json()} for number, one in each if one is not None]

    def forget(self) -> None:
        """Empty the queues; what runs is waited for. The stages are those of the beginning."""
        self._pipeline.clear()

    def close(self) -> None:
        """End the processes."""
        self.workers.close()
        if self.maker is not None:
            self.maker.close()


def _setups(
    model_dir: Path,
    model: Model,
    options: Mapping[str, Any],
    stages: Sequence[StageSpan],
    ramps: Sequence[int],
) -> list[LabelStageSetup]:
    """Of each worker. One that may come to run another stage keeps all layers."""
    from backends.tetris.labels.jobs import LabelStageSetup

    depth, asked = stages[-1].end, rule(options)
    ends = tuple(ramps) if options["replan_s"] else tuple(one.end for one in stages[:-1])
    setup = LabelStageSetup(
        model_dir=str(model_dir),
        dtype=model.dtype,
        threads=options["threads"],
        first=0,
        last=depth,
        rule=asked,
        ends=ends if asked is not None else (),
        black_box=options["black_box"],
    )
    if options["replan_s"]:
        return [setup] * options["workers"]
    return [replace(setup, first=one.first, last=one.end) for one in stages for _ in one.workers]


def _plans(
    workers: LabelStages,
    maker: ProcessMaker,
    model_dir: Path,
    options: Mapping[str, Any],
    stages: Sequence[StageSpan],
    ramps: Sequence[int],
) -> ServedPlans:
    """What plans the stages anew."""
    from backends.classifiers.inputs import bundled_inputs
    from backends.tetris.labels.costs import KIND, profiled
    from backends.tetris.labels.replanned import ServedPlans, plan_of
    from backends.tetris.pipeline.windows import WindowPlanner
    from backends.tetris.profile import DeviceCluster, Wanted

    batch, count = options["batch"], options["workers"]
    inputs = bundled_inputs(model_dir, max(TIMED, min(batch, MOST_TIMED)))
    profile = replace(profiled(workers, count, inputs, batch), ramps=tuple(ramps))
    cluster = DeviceCluster({KIND: count}, {KIND: 1.0})
    wanted = Wanted(options["slo_ms"] or NO_SLO_MS)
    first = plan_of(stages, batch)
    planner = partial(WindowPlanner, profile, cluster, wanted, first)
    return ServedPlans(planner, ramps, options["replan_s"], maker)
