"""The options of early exit that its backends share, and what goes with what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from backends.checkpoints import exit_heads, traces
from backends.early_exit.calibration.files import AUTO, NONE
from backends.early_exit.decisions import check_replay
from backends.early_exit.policy import (
    CONFIDENT,
    DECAYS,
    DEFAULT_THRESHOLD,
    FORCED,
    MEASURES,
    NEVER,
    TAU,
)
from harness.core.backend import Option
from harness.core.errors import UserError

EXIT_OPTIONS: dict[str, Option] = {
    "measure": Option(
        str, "softmax", "how confidence is measured; static and schedule do not ask", MEASURES
    ),
    "threshold": Option(
        float,
        AUTO,
        "a confidence must be greater; auto: the calibration's, "
        f"{DEFAULT_THRESHOLD} without one",
        minimum=0,
        maximum=1,
        words=(AUTO,),
    ),
    "thresholds": Option(list, None, "one for each of `layers`, instead of `threshold`",
        minimum=0, maximum=1),
    "layers": Option(
        list,
        AUTO,
        "layers after which confidence is asked, static leaves, or schedule leaves in turn; "
        "auto: the calibration's, else quarters of the depth (static: half)",
        words=(AUTO,),
    ),
    "decay": Option(str, "none", "thresholds that fall along the answer: a formula", DECAYS),
    "decay_tau": Option(float, TAU, "how fast they fall", minimum=0, maximum=1000),
    "heads": Option(
        str, exit_heads.ORIGINAL, "softmax: original (the model's head), or trained exit "
        "heads: auto (the demo model's), a bundled name, a folder"
    ),
    "classifier": Option(str, AUTO, "a trained classifier: auto (the demo model's), a folder"),
    "calibration": Option(
        str, AUTO, "layers and thresholds of 'decodebench calibrate': auto (the demo's, which "
        "keep its task scores), rouge (its others, for ROUGE-L to full), none, a file"
    ),
    "record": traces.RECORD,
}  # fmt: skip
ASKING_MEASURE = replace(
    EXIT_OPTIONS["measure"], help="how confidence is measured", choices=(*CONFIDENT, NEVER)
)
"""Where no layer can be told to be the exit."""
GOES_WITH = {
    "threshold": CONFIDENT,
    "thresholds": CONFIDENT,
    "decay": CONFIDENT,
    "layers": (*CONFIDENT, *FORCED),
    "heads": ("softmax",),
    "classifier": ("classifier",),
    "calibration": CONFIDENT,
}
"""The measures with which an option means something."""


def check_exit_options(name: str, options: Mapping[str, Any], method: str | None = None) -> None:
    """Raise `UserError`, for the backend `name`, for options that contradict each other; `method`
    as in `traces.find_trace`."""
    check_replay(options, name, method)
    prefix = f"backend '{name}'"
    measure = options["measure"]
    for option, measures in GOES_WITH.items():
        if options[option] != EXIT_OPTIONS[option].default and measure not in measures:
            raise UserError(
                f"{prefix}: option '{option}' has no meaning with 'measure: {measure}'; it goes "
                f"with {', '.join(measures)}"
            )
    given = [
        option
        for option, left_open in (("threshold", AUTO), ("thresholds", None))
        if options[option] != left_open
    ]
    if options["calibration"] not in (AUTO, NONE):
        given.append("calibration")
    if len(given) > 1:
        raise UserError(f"{prefix}: give '{given[0]}' or '{given[1]}', not both")
    if options["decay_tau"] != TAU and options["decay"] == "none":
        raise UserError(f"{prefix}: option 'decay_tau' needs a 'decay': calm or t5x")
