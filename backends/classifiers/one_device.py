"""Classifiers on one device: all layers for everybody, or early exits, batched in three ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from backends.classifiers.backend import LabelBackend, refuse_unknown, set_threads
from backends.classifiers.config import ClassifierConfig, ramps
from backends.classifiers.options import (
    BATCH_OPTIONS,
    BATCHINGS,
    NEVER,
    RAMP_OPTIONS,
    REGROUPED,
    SHRINKING,
    TOGETHER,
    check,
    check_cuts,
    even_cuts,
    rule,
    taken,
)
from backends.classifiers.part_times import PartClock
from harness.core.backend import Option
from harness.core.errors import UserError
from harness.core.nouns import BackendInfo, Model

if TYPE_CHECKING:
    from backends.classifiers.flight import InputInFlight
    from backends.classifiers.segments import SegmentedClassifier


WAIT_MS = 20.0


class OneDeviceBackend(LabelBackend):
    """A classifier whose segments take turns on one device."""

    def __init__(
        self, config: ClassifierConfig, info: BackendInfo, engine: SegmentedClassifier
    ) -> None:
        super().__init__(config, info)
        self._engine = engine

    def enqueue(self, one: InputInFlight) -> None:
        """Before the first segment."""
        self._engine.add(one)

    def advance(self) -> Sequence[InputInFlight]:
        """One segment, for one batch."""
        return self._engine.step()

    def forget(self) -> None:
        """Empty the queues."""
        self._engine.clear()

    def clocked(self) -> PartClock:
        """Time the parts of the network from now on."""
        clock = PartClock(self._engine.model)
        self._engine.model = clock
        return clock


class PlainClassifier(OneDeviceBackend):
    """A classifier that runs all layers for every input: what early exits are compared with."""

    NAME = "classifier"
    OPTIONS: ClassVar[dict[str, Option]] = dict(BATCH_OPTIONS)

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for a model that is no classifier."""
        if model_dir is not None:
            refuse_unknown(cls.NAME, model_dir)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the network. Raises `UserError` for weights that do not fit."""
        from backends.classifiers.segments import SegmentedClassifier
        from backends.classifiers.weights import load
        from backends.tetris.ramps.wrapper import ExitWrapper

        assert model_dir is not None
        options = {**options, "threads": set_threads(options)}
        engine = SegmentedClassifier(
            load(model_dir, model.dtype),
            ExitWrapper(None, (), ()),
            (),
            batching=SHRINKING,
            batch=options["batch"],
            patience_ms=0.0,
        )
        return cls(
            refuse_unknown(cls.NAME, model_dir), cls.describe(options, lossless=True), engine
        )


class EarlyExitClassifier(OneDeviceBackend):
    """A classifier on one device whose inputs leave at the first checked layer where they are sure
    of their label."""

    NAME = "classifier-early-exit"
    OPTIONS: ClassVar[dict[str, Option]] = {
        **BATCH_OPTIONS,
        **RAMP_OPTIONS,
        "layers": Option(
            list,
            None,
            "layers after which inputs may leave; default: every one with a ramp, with regrouped "
            "those that end one of 3 even segments",
            minimum=1,
        ),
        "batching": Option(
            str,
            SHRINKING,
            "shrinking: who is sure leaves and the rest goes on; together: a batch leaves once all "
            "are sure; regrouped: the rest waits to be fused with others to a whole batch",
            BATCHINGS,
        ),
        "wait_ms": Option(
            float,
            None,
            f"of regrouped: who waited so long goes before whole batches; default {WAIT_MS:g}",
            minimum=0,
        ),
    }

    @classmethod
    def batch_decides(cls, options: Mapping[str, Any]) -> bool:
        """A batch that stays together leaves where its last input is sure."""
        return bool(options["measure"] != NEVER and options["batching"] == TOGETHER)

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for options that contradict each other or do not fit the model."""
        check(cls.NAME, options)
        for key, unfit, expected in (
            ("batching", options["batching"] != REGROUPED, f"batching {REGROUPED}"),
            ("measure", options["measure"] == NEVER, "another measure, with which some leave"),
        ):
            if options["wait_ms"] is not None and unfit:
                raise UserError(
                    f"backend '{cls.NAME}': option 'wait_ms': means nothing with {key} "
                    f"'{options[key]}'; expected {expected}"
                )
        if model_dir is not None:
            config = refuse_unknown(cls.NAME, model_dir)
            there = ramps(model_dir, config)
            check_ramps(cls.NAME, options, _cuts(cls.NAME, options, config, there), there)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the network. Raises `UserError` for weights that do not fit."""
        from backends.classifiers.segments import SegmentedClassifier
        from backends.classifiers.weights import load
        from backends.tetris.ramps.wrapper import ExitWrapper

        assert model_dir is not None
        config = refuse_unknown(cls.NAME, model_dir)
        network = load(model_dir, model.dtype)
        asked = rule(options)
        cuts = _cuts(cls.NAME, options, config, network.ramps) if asked is not None else ()
        check_ramps(cls.NAME, options, cuts, network.ramps)
        options = taken({**options, "threads": set_threads(options), "layers": list(cuts)})
        if cuts and options["batching"] == REGROUPED and options["wait_ms"] is None:
            options["wait_ms"] = WAIT_MS
        engine = SegmentedClassifier(
            network,
            ExitWrapper(asked, network.ramps, cuts),
            cuts,
            batching=options["batching"],
            batch=options["batch"],
            patience_ms=options["wait_ms"] or 0.0,
        )
        info = cls.describe(options, lossless=options["measure"] == NEVER)
        return cls(config, info, engine)


def check_ramps(
    name: str, options: Mapping[str, Any], cuts: Sequence[int], there: Sequence[int]
) -> None:
    """Raise `UserError` for a cut at which a ramp is asked that is not among those `there`."""
    if options["measure"] == NEVER:
        return
    if missing := [one for one in cuts if one not in there]:
        told = f"has them behind {', '.join(map(str, there))}" if there else "has none"
        without = f"backend '{PlainClassifier.NAME}', or measure '{NEVER}'"
        expected = "option 'layers' among these" if there else without
        raise UserError(
            f"backend '{name}': the model has no ramp behind layer {missing[0]}; it {told}; "
            f"expected {expected}"
        )


def _cuts(
    name: str, options: Mapping[str, Any], config: ClassifierConfig, there: Sequence[int]
) -> tuple[int, ...]:
    """Where inputs may leave a network with these ramps; of one without any, that `check_ramps`
    refuses, every layer."""
    if options["layers"] is not None:
        return check_cuts(name, "layers", options["layers"], config)
    if options["batching"] == REGROUPED:
        return even_cuts(name, config, min(3, config.depth))
    return tuple(there) or tuple(range(1, config.depth))
