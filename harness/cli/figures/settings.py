"""The settings of one number of a figure: of the file, the figure and the series together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.tetris.figures.point import Devices, FigurePoint
from backends.tetris.figures.roofline import Roofline
from backends.tetris.profile import MOST_LAYERS
from backends.tetris.simulation.compare import MOST_REQUESTS
from harness.cli.figures.model_file import read_model
from harness.experiment.section import YamlSection

SETTINGS = (
    "model",
    "layers",
    "cluster",
    "batch",
    "copies",
    "slo_ms",
    "requests",
    "wrapper",
    "entropy",
    "patience",
)
MOST_BATCH, MOST_DEVICES = 4_096, 10_000
MOST_ENTROPY = 0.69
"""Just below log 2, the entropy of not knowing which of two labels."""


def point_from(told: YamlSection, folder: Path) -> FigurePoint:
    """The settings in `told`, taken out; model files are named from `folder`. Raises `UserError`
    naming the file and the key."""
    model = read_model(folder / told.text("model"))
    return FigurePoint(
        model=model,
        layers=_optional(told, "layers", 2, MOST_LAYERS),
        clusters=_clusters(told, model),
        batches=_counts(told, "batch", MOST_BATCH),
        copies=_counts(told, "copies", MOST_DEVICES, 1),
        slo_ms=told.number("slo_ms", above=0),
        requests=told.integer("requests", 10_000, least=100, most=MOST_REQUESTS),
        wrapper=told.flag("wrapper", True),
        entropy=_entropy(told),
        patience=_optional(told, "patience", 1, MOST_LAYERS),
    )


def _optional(told: YamlSection, key: str, least: int, most: int) -> int | None:
    value = told.take(key, None)
    return None if value is None else told.as_integer(key, value, least=least, most=most)


def _entropy(told: YamlSection) -> float | None:
    value = told.take("entropy", None)
    return None if value is None else told.as_number("entropy", value, above=0, most=MOST_ENTROPY)


def _counts(told: YamlSection, key: str, most: int, default: int | None = None) -> tuple[int, ...]:
    """A whole number, or several of which the best is taken."""
    value = told.take(key) if default is None else told.take(key, default)
    several = value if isinstance(value, list) else [value]
    if not several:
        raise told.wrong(key, "a whole number or a list of them", value)
    return tuple(told.as_integer(key, one, least=1, most=most) for one in several)


def _clusters(told: YamlSection, model: Roofline) -> tuple[Devices, ...]:
    """Numbers of devices by kind, or several such mappings of which the best is taken."""
    value = told.take("cluster")
    several = value if isinstance(value, list) else [value]
    if not several:
        raise told.wrong("cluster", "a mapping of devices or a list of them", value)
    return tuple(_devices(told, one, model) for one in several)


def _devices(told: YamlSection, value: Any, model: Roofline) -> Devices:
    if not isinstance(value, Mapping) or not value:
        raise told.wrong("cluster", "numbers of devices by kind", value)
    for kind in value:
        if kind not in model.devices:
            raise told.error("cluster", f"unknown device kind '{kind}'", str(kind), model.devices)
    return tuple(
        (kind, told.as_integer(f"cluster.{kind}", count, least=1, most=MOST_DEVICES))
        for kind, count in value.items()
    )
