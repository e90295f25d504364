"""Calibration files: thresholds that `decodebench calibrate` chose, and the statement behind them.

A file belongs to one checkpoint, by checksum, and to one measure; another pair is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.bound_files import read_bound
from backends.early_exit.policy import CONFIDENT, DECAYS, TAU
from harness.core.errors import UserError, nearest
from harness.core.files import user_path

BUNDLED = models.DEMO / "early_exit"
FORMAT = 1
AUTO, NONE = "auto", "none"
METRICS = ("rouge_l", "consistency", "score")
ROUGE = "rouge"
CACHING = "prefix_caching"
"""Option of the backend that decodes."""


@dataclass(frozen=True, slots=True)
class Point:
    """One threshold on the calibration prompts."""

    threshold: float
    quality: float
    """By the file's metric; with `per` "worst" that of the workload where it is lowest."""
    quality_at_least: float
    """Its lower bound at the file's confidence, for this threshold alone."""
    p_value: float
    tested: bool
    """False after the first threshold that was not accepted: measured for the curve only."""
    early_exit_rate: float
    """Share of the decode steps' layer passes that were skipped."""
    mean_exit_layer: float
    """Layers run per decoded token."""
    checks: float = 0.0
    """Checks of confidence per decoded token. Older files do not say."""

    def cost_layers(self, check: float) -> float:
        """What a decoded token costs, in layers, where a check costs as much as `check` layers."""
        return self.mean_exit_layer + self.checks * check


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibration file's content. `risk` and `bound` are mean losses: 1 - quality."""

    checkpoint: str
    measure: str
    layers: tuple[int, ...]
    """Checked, ascending."""
    thresholds: tuple[float, ...]
    """One per checked layer."""
    decay: str
    tau: float
    heads: str | None
    """Name of the trained exit heads; None for the model's own head."""
    parameters: str | None
    """sha256 of the files of those heads or of the classifier; None where the measure has none."""
    metric: str
    target: float
    """The mean quality wanted."""
    confidence: float
    risk: float
    """Observed mean loss at the chosen threshold."""
    bound: float
    """Upper confidence bound of the mean loss at this threshold, not corrected for the choice."""
    p_value: float
    test: str
    """"Hoeffding-Bentkus" or "exact binomial"."""
    prompts: Mapping[str, int]
    """Number of calibration prompts of each workload."""
    prompts_checksum: str
    source: str
    seed: int
    """Of the rows drawn from the train split."""
    batch: int
    """Prompts decoded together."""
    dtype: str
    backend: str
    """Name and version of what ran."""
    statement: str
    curve: tuple[Point, ...]
    """By falling threshold."""
    earlier_choices: int = 0
    """Other choices that were made on any of these prompts: by another grid, target, metric or
    confidence, by other sets of layers, or with other heads, as far as their answers lay in the
    same folder. The confidence is not corrected for them."""
    per: str = "mixture"
    """Over what the quality is held: all prompts together, or ("worst") each workload's."""
    candidates: tuple[Mapping[str, Any], ...] = ()
    """Where sets of layers were tried out: the `layers` of each, its `threshold` (None where none
    held), `mean_exit_layer` and `cost_layers`, by which the best was chosen: with what its checks
    read. The level is shared out among them. Older files have no costs."""
    workloads: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By workload: `max_new_tokens` of an answer, the share of the full model's answers that this
    `cut`, and their mean `score` where that is the metric. Older files have none."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Options of the backend that were given beside the calibration's own."""
    prompt_marks: str = ""
    """`seen.joined_marks` of the calibration prompts. Older files have none."""
    data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By workload where its rows are from: `exits.data.told_rows`. Older files have none."""
    revision: str | None = None
    """Of the model, where one was named."""

    def rows_told(self) -> dict[str, Mapping[str, Any]]:
        """`data`, and of an older file what it says: where the rows of each workload are from."""
        return {name: self.data.get(name, {"source": self.source}) for name in self.prompts}

    @property
    def chosen(self) -> Point:
        """The curve's point at the chosen threshold."""
        return next(point for point in self.curve if point.threshold == self.thresholds[0])

    def differs_from(
        self,
        *,
        layers: Sequence[int],
        decay: str = "none",
        tau: float = TAU,
        parameters: str | None = None,
        dtype: str | None = None,
    ) -> str | None:
        """The first thing in which a backend's settings differ from those calibrated, in words;
        None where the statement holds for them. `tau` counts with a decay only, and `dtype` where
        it is given: the name of what "auto" stands for."""
        pairs: list[tuple[str, Any, Any]] = [
            ("layers", list(self.layers), list(layers)),
            ("decay", self.decay, decay),
            ("parameters", self.parameters, parameters),
        ]
        if dtype is not None:
            pairs.append(("dtype", self.dtype, dtype))
        if self.decay != "none":
            pairs.append(("decay_tau", self.tau, tau))
        for name, calibrated, own in pairs:
            if calibrated != own:
                return f"calibrated with {name} {_shown(calibrated)}, not {_shown(own)}"
        return None

    def unlike(self, dtype: str, options: Mapping[str, Any]) -> str | None:
        """What of a backend's dtype and options is such that the statement does not hold, in words;
        None where it does. With a cache of prompt beginnings requests read what earlier ones' exits
        filled, which decides texts."""
        if self.dtype != dtype:
            return f"calibrated in {self.dtype}, not {dtype}"
        there, here = bool(self.engine.get(CACHING)), bool(options.get(CACHING))
        if there != here:
            return f"calibrated {'with' if there else 'without'} {CACHING}"
        return None

    def to_json(self) -> str:
        """The file's text: a line per field and per point of the curve."""
        content = {"format": FORMAT} | asdict(self)
        curve = content.pop("curve")
        lines = [f" {json.dumps(key)}: {json.dumps(own)}" for key, own in content.items()]
        points = ",\n".join(f"  {json.dumps(point)}" for point in curve)
        lines.append(f' "curve": [\n{points}\n ]')
        return "{\n" + ",\n".join(lines) + "\n}\n"


def find_calibration(name: str, measure: str, model_dir: Path) -> Path | None:
    """The file that `name` means for a model: "none", a path, or "auto", the bundled one of the
    demo model and `measure` (None elsewhere), "rouge" likewise, for ROUGE-L to the full model's
    answers. Raises `UserError`."""
    if name == NONE:
        return None
    if name in (AUTO, ROUGE):
        bundled = BUNDLED / f"calibration-{measure}{'' if name == AUTO else f'-{ROUGE}'}.json"
        if models.is_demo(model_dir) and bundled.is_file():
            return bundled
        if name == ROUGE:
            raise UserError(f"calibration: '{ROUGE}' is bundled for the demo model alone")
        return None
    path = user_path(name, "calibration")
    if path.is_file():
        return path
    if path.exists():
        raise UserError(f"calibration: '{name}' is no file")
    raise UserError(f"calibration: no file '{name}'; {nearest(name, [AUTO, ROUGE, NONE])}")


def open_calibration(path: Path, model_dir: Path) -> Calibration:
    """Read a calibration file. Raises `UserError` when it is broken or was made for another
    checkpoint than the one in `model_dir`."""
    known = fields(Calibration)
    needed = [one.name for one in known if one.default is one.default_factory is MISSING]
    content = read_bound(path, model_dir, FORMAT, *needed)
    content.pop("format")
    try:
        return _read(content)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: not readable as a calibration: {models.one_line(error)}"
        ) from None


def _read(content: dict[str, Any]) -> Calibration:
    """Raise `KeyError`, `TypeError` or `ValueError` for what no calibration writes."""
    lists = {
        "layers": tuple(content["layers"]),
        "thresholds": tuple(content["thresholds"]),
        "prompts": dict(content["prompts"]),
        "curve": tuple(Point(**point) for point in content["curve"]),
        "candidates": tuple(dict(one) for one in content.get("candidates", ())),
        **{key: _dicts(content.get(key, {})) for key in ("workloads", "data")},
    }
    found = Calibration(**content | lists)
    for name, known in (("measure", CONFIDENT), ("metric", METRICS), ("decay", DECAYS)):
        if (value := getattr(found, name)) not in known:
            raise ValueError(f"{name} {value!r}: {nearest(str(value), known)}")
    layers = found.layers
    if not layers or list(layers) != sorted({x for x in layers if type(x) is int and x > 0}):
        raise ValueError(f"layers {list(layers)} are not ascending numbers of layers")
    if len(found.thresholds) != len(layers):
        raise ValueError(f"{len(found.thresholds)} thresholds for {len(layers)} layers")
    shares = {"target": found.target, "confidence": found.confidence, "risk": found.risk}
    shares |= {f"thresholds[{i}]": value for i, value in enumerate(found.thresholds)}
    for name, value in shares.items():
        if not is_number(value) or not 0.0 <= value <= 1.0:
            raise ValueError(f"{name}: expected a number between 0 and 1, got {value!r}")
    if not is_number(found.tau) or found.tau < 0:
        raise ValueError(f"tau: expected a number that is not negative, got {found.tau!r}")
    if type(found.earlier_choices) is not int or found.earlier_choices < 0:
        raise ValueError(f"earlier_choices: expected a count, got {found.earlier_choices!r}")
    if type(found.batch) is not int or found.batch < 1:
        raise ValueError(f"batch: expected a number from 1, got {found.batch!r}")
    for name, told in found.workloads.items():
        if type(told["max_new_tokens"]) is not int or not all(map(is_number, told.values())):
            raise ValueError(f"workloads: {name}: expected numbers, got {told!r}")
    for name, rows in found.data.items():
        if not isinstance(rows["source"], str) or not isinstance(rows.get("options", {}), dict):
            raise TypeError(f"data: {name}: expected a source and options, got {rows!r}")
    for name in ("statement", "dtype", "backend", "source"):
        if not isinstance(getattr(found, name), str):
            raise TypeError(f"{name}: expected text, got {getattr(found, name)!r}")
    return found


def _dicts(content: Any) -> dict[str, dict[str, Any]]:
    return {name: dict(own) for name, own in dict(content).items()}


def is_number(value: Any) -> bool:
    """Whether a value of JSON is one, and finite."""
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)[:12] if isinstance(value, str) else str(value)
