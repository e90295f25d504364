"""What every backend with early exit answers by the plan of its exits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from backends.checkpoints import traces
from backends.early_exit.plan import ExitPlan
from backends.early_exit.policy import CONFIDENT
from harness.core.backend import Backend
from harness.core.errors import UserError


class PlannedExits(Backend):
    """To inherit from before the backend of an engine."""

    PLAN: ClassVar[type[ExitPlan]]
    """How its options are read."""

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """What options name that decides a trial's numbers: heads, classifier, calibration, the
        trace that is replayed. Raises `UserError`."""
        return cls.PLAN(model_dir, options).files()

    @classmethod
    def warnings(cls, model_dir: Path, options: Mapping[str, Any]) -> list[str]:
        """What the user probably did not mean."""
        return cls.PLAN(model_dir, options).warnings()

    @classmethod
    def dtype_warnings(cls, model_dir: Path, options: Mapping[str, Any], dtype: str) -> list[str]:
        """That a calibration does not speak of this dtype."""
        return cls.PLAN(model_dir, options).dtype_warnings(dtype)

    @classmethod
    def check_shape(cls, model_dir: Path, options: Mapping[str, Any]) -> None:
        """Raise `UserError` where confidences would be asked of random weights."""
        super().check_shape(model_dir, options)
        if options["replay"] is None and options["measure"] in CONFIDENT:
            raise UserError(traces.UNDECIDED)
