"""What a calibration is asked for, checked before any work."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.checkpoints import exit_heads
from backends.checkpoints.classifier import ABOUT, TENSORS, find_classifier, open_classifier
from backends.early_exit.calibration.files import METRICS, NONE
from backends.early_exit.policy import CONFIDENT, DECAYS, TAU
from backends.early_exit.settings import EXIT_OPTIONS
from harness.core.errors import UserError, nearest
from harness.core.files import sha256
from workloads import workload_info

SEED = 10_000
"""Of the rows: `train heads` and `train classifier` begin at 0, and what was fitted to a row looks
better on it than on others."""
ROWS = 100
VLLM = "vllm-early-exit"
BACKENDS = (VLLM, "own-early-exit")
AT_ONCE = 16
"""Prompts that are decoded side by side where neighbours make no difference."""
PER = ("mixture", "worst")
OWN_OPTIONS = (*EXIT_OPTIONS, "max_num_seqs", "replay")
RIGHT_OR_WRONG = ("pass_at_1", "exact_match")
"""Task scores that are 0 or 1."""
_PROBABILITIES = (
    *(0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55),
    *(0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05),
)
GRIDS: dict[str, tuple[float, ...]] = {
    "softmax": _PROBABILITIES,
    "state": (
        *(0.995, 0.99, 0.98, 0.97, 0.96, 0.95, 0.93, 0.9, 0.85, 0.8),
        *(0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05),
    ),
    "classifier": _PROBABILITIES,
}
"""Thresholds tested by default. They are fixed beforehand: a grid that was looked for on the same
prompts would void the guarantee."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What to calibrate, on what, and for which quality."""

    model: str
    measure: str
    workloads: tuple[str, ...]
    metric: str = "rouge_l"
    """"rouge_l": mean ROUGE-L to the full model's answer; "consistency": the share of equal
    answers; "score": 1 - the part of the task score that is lost, prompt by prompt."""
    target: float = 0.75
    confidence: float = 0.95
    rows: int = ROWS
    """Of each workload."""
    source: str = "bundled"
    revision: str | None = None
    """Of a hub id."""
    seed: int = SEED
    batch: int = 1
    layers: tuple[int, ...] | None = None
    """Checked; None takes the backend's default."""
    decay: str = "none"
    tau: float = TAU
    heads: str = exit_heads.ORIGINAL
    classifier: str = "auto"
    grid: tuple[float, ...] | None = None
    dtype: str = "float32"
    per: str = "worst"
    """The quality is held over all prompts together, or ("worst") for each workload's."""
    backend: str = VLLM
    """That decodes."""
    tries: int = 1
    """Sequences of settings that are tested, among which the level is shared out."""
    sets: tuple[tuple[int, ...] | None, ...] = ()
    """Of layers, all that are tried: one sequence each. Empty: `layers` alone."""
    whole_curve: bool = False
    """Measure the thresholds after the last that was tested, too."""
    max_new_tokens: int | None = None
    """Of an answer; None takes each workload's, as an experiment does."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Options of the backend beside the calibration's own, such as `max_model_len`."""
    workload_options: Mapping[str, Mapping[str, Any]] | None = None
    """By workload: which rows, and how they are cut, as an experiment has it."""
    without: tuple[str, ...] = ()
    """Files of earlier calibrations, or of their answers, whose prompts are left out."""

    @property
    def thresholds(self) -> tuple[float, ...]:
        """To be tested, in falling order."""
        return tuple(sorted(self.grid or GRIDS[self.measure], reverse=True))

    @property
    def answer_limits(self) -> dict[str, int]:
        """The most tokens of an answer, by workload."""
        most = self.max_new_tokens
        return {name: most or workload_info(name).max_new_tokens for name in self.workloads}

    @property
    def limit(self) -> float:
        """The mean loss allowed."""
        return 1.0 - self.target

    @property
    def level(self) -> float:
        """The chance of a wrong choice that is allowed in one sequence of settings (Bonferroni)."""
        return (1.0 - self.confidence) / self.tries

    @property
    def binary(self) -> bool:
        """Whether a group's loss is 0 or 1."""
        return all(self.binary_for(name) for name in self.workloads)

    def binary_for(self, workload: str) -> bool:
        """Whether it is in this workload."""
        right_or_wrong = workload_info(workload).metric in RIGHT_OR_WRONG
        return self.batch == 1 and (
            self.metric == "consistency" or (self.metric == "score" and right_or_wrong)
        )

    def identity(self) -> dict[str, Any]:
        """What of the settings decides answers, apart from the threshold."""
        return {
            "measure": self.measure,
            "layers": "auto" if self.layers is None else list(self.layers),
            "decay": self.decay,
            "decay_tau": self.tau,
            "workloads": list(self.workloads),
            "max_new_tokens": list(self.answer_limits.values()),
            "workload_options": self.workload_options,
            "source": self.source,
            "seed": self.seed,
            "rows": self.rows,
            "batch": self.batch,
            "dtype": self.dtype,
            "engine": dict(self.engine),
        }

    def longest(self, positions: int) -> int:
        """Tokens of the longest prompt and answer that the backend takes of a model with so many
        positions."""
        from backends.own.backend import LONGEST

        asked: int | None = self.engine.get("max_model_len")
        return min(positions, asked or (positions if self.backend == VLLM else LONGEST))

    def question(self) -> dict[str, Any]:
        """All that decides the choice among thresholds and sets of layers, apart from the
        answers."""
        sets = self.sets or (self.layers,)
        return {
            "layers": ["auto" if layers is None else list(layers) for layers in sets],
            "grid": list(self.thresholds),
            "target": self.target,
            "metric": self.metric,
            "confidence": self.confidence,
            "per": self.per,
            "tries": self.tries,
            "rows": self.rows,
        }

    def options(self) -> dict[str, Any]:
        """What the backend is opened with."""
        found: dict[str, Any] = {
            "measure": self.measure,
            "threshold": self.thresholds[0],
            "decay": self.decay,
            "calibration": NONE,
            "max_num_seqs": self.batch if self.backend == VLLM else AT_ONCE,
        }
        if self.decay != "none":
            found["decay_tau"] = self.tau
        if self.layers is not None:
            found["layers"] = list(self.layers)
        if self.measure == "softmax":
            found["heads"] = self.heads
        if self.measure == "classifier":
            found["classifier"] = self.classifier
        return {**found, **self.engine}


def check_settings(settings: Settings) -> None:
    """Raise `UserError` for what no calibration can use. Layers and files are checked elsewhere."""
    choices = {
        "measure": CONFIDENT,
        "metric": METRICS,
        "decay": DECAYS,
        "per": PER,
        "backend": BACKENDS,
    }
    for name, known in choices.items():
        if (value := getattr(settings, name)) not in known:
            raise UserError(f"--{name}: unknown {name} '{value}'; {nearest(value, known)}")
    if settings.batch > 1 and settings.backend != VLLM:
        raise UserError(f"--batch: goes with --backend {VLLM}, whose batches leave together")
    for name in ("target", "confidence"):
        if not 0.0 < (value := getattr(settings, name)) < 1.0:
            raise UserError(f"--{name}: expected a number between 0 and 1, got {value:g}")
    for name, lowest in (("rows", 2), ("batch", 1), ("seed", 0)):
        if (value := getattr(settings, name)) < lowest:
            raise UserError(f"--{name}: expected at least {lowest}, got {value}")
    if settings.max_new_tokens is not None and settings.max_new_tokens < 1:
        raise UserError(f"--max-new-tokens: expected at least 1, got {settings.max_new_tokens}")
    if not (math.isfinite(settings.tau) and settings.tau >= 0):
        raise UserError(f"--decay-tau: expected a number from 0 on, got {settings.tau:g}")
    if settings.grid is not None:
        _check_grid(settings.grid)
    for name in settings.engine:
        if name in OWN_OPTIONS:
            raise UserError(f"--option: '{name}' is not to be given: a calibration sets it itself")
    for name, measure, default in (
        ("heads", "softmax", exit_heads.ORIGINAL),
        ("classifier", "classifier", "auto"),
    ):
        if getattr(settings, name) != default and settings.measure != measure:
            raise UserError(f"--{name}: goes with --measure {measure}, not {settings.measure}")


def _check_grid(grid: tuple[float, ...]) -> None:
    if not grid:
        raise UserError("--grid: no threshold; expected numbers such as 0.9,0.8,0.7")
    for number, threshold in enumerate(grid):
        if not 0.0 <= threshold < 1.0:
            raise UserError(
                f"--grid: {threshold:g}: expected thresholds from 0 to below 1 (at 1 nothing exits)"
            )
        if threshold in grid[:number]:
            raise UserError(f"--grid: {threshold:g} is named twice")


def check_out(out: Path) -> None:
    """Raise `UserError` when the calibration could not be written in the end, and for a file that
    is something else."""
    if out.is_dir():
        raise UserError(f"--out: {out} is a folder; expected the name of a file")
    if not out.parent.is_dir():
        raise UserError(f"--out: no folder {out.parent}")
    if not os.access(out.parent, os.W_OK):
        raise UserError(f"--out: {out.parent} is not writable")
    if out.exists():
        try:
            ours = "statement" in json.loads(out.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            ours = False
        if not ours:
            raise UserError(f"--out: {out} exists and is no calibration; name another file")


def trained_folder(settings: Settings, model_dir: Path) -> Path | None:
    """The folder of the heads or of the classifier; None for a measure that needs nothing trained.
    Raises `UserError` where there is none for this model."""
    if settings.measure == "classifier":
        folder = find_classifier(settings.classifier, model_dir)
        open_classifier(folder, model_dir)
        return folder
    if settings.measure == "softmax":
        return exit_heads.find_folder(settings.heads, model_dir)
    return None


def training_report(settings: Settings, folder: Path | None) -> Path | None:
    """The file in a trained folder that says on which rows."""
    if folder is None:
        return None
    return folder / (ABOUT if settings.measure == "classifier" else exit_heads.ABOUT)


def parameters(folder: Path | None, measure: str) -> str | None:
    """sha256 of the trained tensors in `folder` that `measure` uses (`Calibration.parameters`)."""
    if folder is None:
        return None
    path = folder / (TENSORS if measure == "classifier" else exit_heads.TENSORS)
    try:
        return sha256(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
