"""The options of `tetris` for one model: where it is cut, and what is asked there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.checkpoints.traces import supposed
from backends.early_exit.calibration.files import AUTO
from backends.early_exit.plan import ExitPlan
from backends.early_exit.policy import NEVER
from backends.own.exits.rule import exit_head
from harness.core.errors import UserError

NAME = "tetris"


def traced(settings: Mapping[str, Any]) -> str:
    """The backend whose decisions a replay has: what is verified was drafted."""
    return "adadecode" if settings["verify"] else NAME


class CutPlan(ExitPlan):
    """The options of early exit, read for this backend, and `stages`."""

    NAME = NAME

    @property
    def method(self) -> str:
        """See `ExitPlan.method`."""
        return traced(self.settings)

    def check(self) -> None:
        """As `ExitPlan.check`, and for drafts that nobody makes or writes down."""
        super().check()
        if not self.settings["verify"]:
            return
        measure = self.policy.measure
        unfit = {
            "stages": self.settings["stages"] == 1,
            "measure": measure == NEVER,
            "record": self.settings["record"],
        }
        if self.source is not None and self.source.method is not None and measure != "softmax":
            raise UserError(
                f"{self.prefix}: option 'replay': recorded with measure softmax, not {measure}"
            )
        for option in (name for name, is_unfit in unfit.items() if is_unfit):
            raise UserError(
                f"{self.prefix}: option 'verify' has no meaning with "
                f"'{option}: {str(self.settings[option]).lower()}'"
            )

    def warnings(self) -> list[str]:
        """As `ExitPlan.warnings`, and that rates suppose more than they say."""
        replay = self.settings["replay"] if self.settings["verify"] else None
        return super().warnings() + supposed(replay, NAME)

    def cuts(self) -> tuple[int, ...]:
        """Layers behind which a stage ends: of those after which confidence may be asked the
        nearest to depth * i / (stages + 1), since fewer come to the later stages; where nobody
        leaves, equal parts. Raises `UserError` for more stages than that gives."""
        stages: int = self.settings["stages"]
        never = self.policy.measure == NEVER
        possible = list(range(1, self.depth)) if never else list(self.policy.checks())
        if stages - 1 > len(possible):
            after = f"ramps after {possible}" if possible else "no ramp that can be passed"
            told = f"expected at most {len(possible) + 1}"
            if possible and not never and self.settings["layers"] == AUTO:
                whose = "" if self._calibration is None else "the calibration's, "
                after += f" ({whose}since 'layers' is auto)"
                told += ", or more 'layers'" if stages <= self.depth else ""
            raise UserError(f"{self.prefix}: option 'stages': {stages} for {after}; {told}")
        found: list[int] = []
        for number in range(1, stages):
            wanted = self.depth * number / (stages if never else stages + 1)
            left = possible[len(found) and possible.index(found[-1]) + 1 :]
            # as many have to stay as there are cuts to come
            left = left[: len(left) - (stages - 1 - number)]
            found.append(min(left, key=lambda layer: (abs(layer - wanted), layer)))
        return tuple(found)

    def head(self, layer: int, final: Any) -> Any:
        """What speaks at the end of a stage."""
        return exit_head(self, layer, final)
