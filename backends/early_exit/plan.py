"""What the options of early exit come to for one model, whatever engine leaves."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from backends.checkpoints import exit_heads, models, traces
from backends.checkpoints.classifier import TENSORS, Classifier, find_classifier, open_classifier
from backends.checkpoints.exit_heads import ORIGINAL, HeadFolder
from backends.early_exit.calibration.files import (
    AUTO,
    ROUGE,
    Calibration,
    find_calibration,
    open_calibration,
)
from backends.early_exit.policy import (
    CONFIDENT,
    DEFAULT_THRESHOLD,
    NEVER,
    ExitPolicy,
    default_layers,
    make_policy,
)
from harness.core.errors import UserError
from harness.core.files import sha256
from harness.core.nouns import Measured
from results.traces import played
from results.traces.rates import TraceSource


class ExitPlan:
    """The options, all of them, read for the checkpoint in `model_dir`.

    Raises `UserError` for layers out of range, thresholds that do not fit and files of another
    checkpoint.
    """

    NAME: ClassVar[str]
    """The backend's."""

    def __init__(self, model_dir: Path, settings: Mapping[str, Any]) -> None:
        self.model_dir, self.settings = model_dir, settings
        self.depth = int(models.read_config(model_dir)["num_hidden_layers"])
        self._unfit: str | None = None
        """Why a calibration that was there is not used."""
        self._calibration = self._find_calibration()
        self._source = self._find_source()
        self.policy = self._policy()

    def files(self) -> list[Path]:
        """The files that decide what is decoded, beside the model's own."""
        found = [self._parameters] if self._parameters else []
        found += traces.files(self.settings, self.NAME, self.method)
        return found if self._calibration is None else [*found, self._calibration[0]]

    def check(self) -> None:
        """Raise `UserError` for a replay that lacks what is asked of it, and for heads or a
        classifier that do not fit."""
        if self._source is not None:
            columns = dict(zip(self.policy.layers, self.columns, strict=True))
            bounds = {}
            if not self._decays_as_recorded(columns):
                # those that fall along an answer begin with their highest
                every = self.policy.checks().items()
                bounds = {x: self.policy.threshold(bound, 0, 1) for x, bound in every}
            played.check_known(
                self._source, [columns[x] for x in bounds], list(bounds.values()), self._replay
            )
        if self.policy.measure == "classifier":
            self.classifier()
        elif self._parameters is not None:
            self.heads()

    def _decays_as_recorded(self, columns: Mapping[int, int]) -> bool:
        """Whether thresholds fall, as they did and from no higher ones: what they ask for was
        asked then."""
        assert self._source is not None
        policy, recorded = self.policy, self._source.settings
        here, there = (policy.decay, policy.tau), (recorded.get("decay"), recorded.get("decay_tau"))
        return (
            policy.decay != "none"
            and here == there
            and all(
                bound <= self._source.thresholds[columns[layer]]
                for layer, bound in policy.checks().items()
            )
        )

    def warnings(self) -> list[str]:
        """What the user probably did not mean."""
        found = self.policy.warnings(self.prefix)
        if self.settings["layers"] != AUTO:
            found += self.policy.comparisons(self.prefix)
        if self._unfit is not None:
            found.append(
                f"{self.prefix}: the bundled calibration does not hold here ({self._unfit}); "
                f"threshold {DEFAULT_THRESHOLD} is taken"
            )
        if self.policy.measure == "classifier" and self._source is None:
            known = self.classifier().layers
            if others := [str(x) for x in self.policy.checks() if x not in known]:
                found.append(
                    f"{self.prefix}: option 'layers': the classifier was not trained after layer "
                    f"{', '.join(others)}"
                )
        if self._calibration is not None and self.settings["calibration"] not in (AUTO, ROUGE):
            path, calibration = self._calibration
            if calibration.backend.partition(" ")[0] != self.NAME:
                found.append(f"{self.prefix}: {path}: calibrated with {calibration.backend}")
        return found

    def dtype_warnings(self, dtype: str) -> list[str]:
        """That the calibration's thresholds are used in another dtype, or with another cache, than
        it speaks of."""
        if self._calibration is None:
            return []
        path, calibration = self._calibration
        if (unlike := calibration.unlike(dtype, self.settings)) is None:
            return []
        return [
            f"{self.prefix}: {path}: {unlike}: its thresholds are used, and its statement does not "
            "hold"
        ]

    def effective(self) -> dict[str, Any]:
        """The options as they took effect."""
        policy = self.policy
        same = len(set(policy.thresholds)) == 1
        return {
            "layers": list(policy.layers),
            "threshold": policy.thresholds[0] if same else None,
            "thresholds": list(policy.thresholds),
        }

    def heads(self) -> HeadFolder:
        """The trained heads that were asked for. Raises `UserError`."""
        assert self._parameters is not None
        folder = exit_heads.open_folder(self._parameters.parent, self.model_dir)
        where = f"{self.prefix}: option 'layers' with heads '{folder.path.name}'"
        exit_heads.check_layers(self.policy.layers, folder.layers, where)
        return folder

    def classifier(self) -> Classifier:
        """The one that was asked for. Raises `UserError`."""
        assert self._parameters is not None
        return open_classifier(self._parameters.parent, self.model_dir)

    @property
    def method(self) -> str:
        """The backend whose decisions are replayed."""
        return self.NAME

    @property
    def prefix(self) -> str:
        """What a message about the backend begins with."""
        return f"backend '{self.NAME}'"

    @property
    def has_heads(self) -> bool:
        """Whether confidence is asked of trained heads."""
        return self.policy.measure == "softmax" and self._parameters is not None

    @property
    def source(self) -> TraceSource | None:
        """What decides in the place of confidences; None where the model does."""
        return self._source

    @property
    def _replay(self) -> str:
        return f"{self.prefix}: option 'replay'"

    @property
    def columns(self) -> tuple[int, ...]:
        """The exits of the replayed trace that those after the policy's layers replay."""
        if self._source is None:
            return ()
        return played.columns(self._source, self.policy.layers, self.depth, self._replay)

    def _policy(self) -> ExitPolicy:
        chosen, measure = self.settings, self.settings["measure"]
        if self.depth < 2 and measure != NEVER:
            raise UserError(
                f"{self.prefix}: a model of {self.depth} layer has no exit before its end"
            )
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
            measure,
            layers,
            thresholds,
            chosen["decay"],
            chosen["decay_tau"],
            self.depth,
            self.prefix,
        )

    def measured(self, dtype: str) -> Measured:
        """The calibration's statement, where it speaks of this dtype and these options."""
        calibration = None if self._calibration is None else self._calibration[1]
        if calibration is None or calibration.unlike(dtype, self.settings) is not None:
            return Measured()
        told = calibration.workloads
        most = {
            x: int(told[x]["max_new_tokens"]) if x in told else None for x in calibration.prompts
        }
        return Measured(
            calibration=calibration.statement,
            calibration_batch=calibration.batch,
            calibration_limits=most,
            calibration_data=calibration.rows_told(),
        )

    def _traced_thresholds(self, layers: Sequence[int]) -> list[float] | None:
        """Those under which the replayed trace was recorded."""
        if self._source is None or not self._source.thresholds or self.method != self.NAME:
            return None
        found = played.columns(self._source, layers, self.depth, self._replay)
        return [self._source.thresholds[column] for column in found]

    def _find_source(self) -> TraceSource | None:
        """What decides in the place of confidences; None where none are asked."""
        replay, measure = self.settings["replay"], self.settings["measure"]
        if replay is None or measure not in CONFIDENT:
            return None
        found = traces.open_method(replay, self.NAME, self.method)
        recorded = found.settings.get("measure", measure)
        if recorded != measure:
            raise UserError(f"{self._replay}: recorded with measure {recorded}, not {measure}")
        if not found.fractions:
            hint = "; 'measure: never' needs none" if self.method == self.NAME else ""
            raise UserError(f"{self._replay}: the rates have no 'exits'{hint}")
        return found

    def _find_calibration(self) -> tuple[Path, Calibration] | None:
        """The calibration that decides thresholds. None where it was not asked for by name and does
        not hold for these options."""
        chosen, measure = self.settings, self.settings["measure"]
        wanted = chosen["threshold"] == AUTO and chosen["thresholds"] is None
        wanted = wanted and chosen["replay"] is None
        if measure not in CONFIDENT or not wanted:
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
            parameters=None if self._parameters is None else _digest(self._parameters, self.prefix),
        )
        if found.measure != measure:
            problem = f"calibrated for measure {found.measure}, not {measure}"
        if problem is None:
            return path, found
        if chosen["calibration"] == AUTO:
            self._unfit = problem
            return None
        raise UserError(f"{self.prefix}: {path}: {problem}; calibrate anew or give 'threshold'")

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


def _digest(path: Path, prefix: str) -> str:
    try:
        return sha256(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{prefix}: {path}: cannot be read: {reason}") from None
