"""`tetris-classifier`: TETRIS for one-pass classification, on the cores of one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from backends.classifiers.backend import LabelBackend, refuse_unknown, set_threads
from backends.classifiers.config import ClassifierConfig
from backends.classifiers.one_device import check_ramps
from backends.classifiers.options import (
    BATCH_OPTIONS,
    NEVER,
    RAMP_OPTIONS,
    check,
    check_cuts,
    even_cuts,
    rule,
    taken,
)
from harness.core.backend import Option
from harness.core.errors import UserError
from harness.core.nouns import BackendInfo, Commit, Model

if TYPE_CHECKING:
    from backends.classifiers.flight import InputInFlight
    from backends.tetris.labels.pipeline import LabelPipeline, LabelStages

MOST_STAGES = 64


class TetrisClassifier(LabelBackend):
    """TETRIS for a classifier: its layers are cut into a pipeline of processes, and an input that
    is sure of its label at the end of a stage leaves there. Lossy, unless `measure` is never."""

    NAME = "tetris-classifier"
    OPTIONS: ClassVar[dict[str, Option]] = {
        **BATCH_OPTIONS,
        **RAMP_OPTIONS,
        "stages": Option(
            int, 2, "processes that the layers are cut into", minimum=1, maximum=MOST_STAGES
        ),
        "layers": Option(
            list, None, "layers behind which a stage ends; default: even stages", minimum=1
        ),
        "wait_ms": Option(
            float, 20.0, "that survivors wait to be fused to a whole batch, at most", minimum=0
        ),
        "slo_ms": Option(
            float,
            None,
            "from an input's arrival to its label: who can still make it waits no longer for a "
            "whole batch; default: no such deadline",
            minimum=1,
        ),
        "black_box": Option(
            bool, False, "ask all ramps, also inside stages, as without the paper's exit_wrapper"
        ),
    }

    def __init__(
        self,
        config: ClassifierConfig,
        info: BackendInfo,
        workers: LabelStages,
        pipeline: LabelPipeline,
    ) -> None:
        super().__init__(config, info)
        self.workers, self._pipeline = workers, pipeline

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for options that contradict each other or do not fit the model."""
        check(cls.NAME, options)
        layers, stages = options["layers"], options["stages"]
        if layers is not None and len(layers) != stages - 1:
            raise UserError(
                f"backend '{cls.NAME}': option 'layers': names {len(layers)} ends of stages; "
                f"{stages} stages have {stages - 1}"
            )
        if model_dir is not None:
            _ends(cls.NAME, options, refuse_unknown(cls.NAME, model_dir))

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Start the stages. Raises `UserError` for weights that do not fit and missing ramps."""
        from backends.classifiers.weights import load
        from backends.tetris.labels import worker
        from backends.tetris.labels.jobs import LabelStageSetup
        from backends.tetris.labels.pipeline import LabelPipeline
        from backends.tetris.piped_stages import PipedStages

        assert model_dir is not None
        config = refuse_unknown(cls.NAME, model_dir)
        ends = _ends(cls.NAME, options, config)
        asked = rule(options)
        if asked is not None:
            check_ramps(cls.NAME, ends, load(model_dir, model.dtype).ramps)
        threads = set_threads(options, shared_by=options["stages"])
        spans = list(zip((0, *ends), (*ends, config.depth), strict=True))
        setup = LabelStageSetup(
            model_dir=str(model_dir),
            dtype=model.dtype,
            threads=threads,
            first=0,
            last=0,
            rule=asked,
            ends=ends if asked is not None else (),
            black_box=options["black_box"],
        )
        setups = [replace(setup, first=first, last=last) for first, last in spans]
        workers: LabelStages = PipedStages(cls.NAME, worker.__name__, setups)
        pipeline = LabelPipeline(
            workers,
            [last - first for first, last in spans],
            batch=options["batch"],
            wait_ms=options["wait_ms"],
            slo_ms=options["slo_ms"],
        )
        in_force = taken({**options, "threads": threads, "layers": list(ends)})
        info = cls.describe(in_force, lossless=options["measure"] == NEVER)
        return cls(config, info, workers, pipeline)

    def enqueue(self, one: InputInFlight) -> None:
        """Before the first stage."""
        self._pipeline.add(one)

    def advance(self) -> Sequence[InputInFlight]:
        """Who is done by now; stages that are idle get what waits for them."""
        return self._pipeline.step()

    def poll(self) -> list[Commit]:
        """The labels of those who are done, the first with what the stages did since."""
        found = super().poll()
        if not found or found[0].label is None:
            return found
        counts = {**found[0].telemetry, **self._pipeline.counts()}
        return [_with(found[0], counts), *found[1:]]

    def wait(self, timeout_s: float) -> None:
        """Until a stage has answered, or a batch is due that is not whole."""
        self._pipeline.rest(timeout_s)

    def forget(self) -> None:
        """Empty the queues; what runs is waited for."""
        self._pipeline.clear()

    def close(self) -> None:
        """End the processes."""
        self.workers.close()


def _ends(name: str, options: Mapping[str, Any], config: ClassifierConfig) -> tuple[int, ...]:
    if options["layers"] is not None:
        return check_cuts(name, "layers", options["layers"], config)
    return even_cuts(name, config, options["stages"])


def _with(commit: Commit, counts: Mapping[str, float]) -> Commit:
    return replace(commit, telemetry=counts)
