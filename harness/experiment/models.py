"""The key ``model`` of an experiment file: one model, or several, each of which runs every cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.core.nouns import Model
from harness.experiment.grid import expand
from harness.experiment.limits import Limits
from harness.experiment.section import YamlSection

DTYPES = ("auto", "float32", "bfloat16", "float16")
SHAPE_KEYS = ("shape", "layers")


def take_models(top: YamlSection, limits: Limits) -> tuple[Model, ...]:
    """The models of an experiment file, taken out. Raises `UserError`."""
    dtype = top.text("dtype", "auto")
    if dtype not in DTYPES:
        raise top.error("dtype", f"unknown dtype '{dtype}'", dtype, DTYPES)
    value = top.take("model")
    if not isinstance(value, list):
        return tuple(_models(top, "model", value, dtype, limits))
    if not value:
        raise top.wrong("model", "a list with at least one entry", value)
    return tuple(
        model
        for index, item in enumerate(value)
        for model in _models(top, f"model[{index}]", item, dtype, limits)
    )


def _models(top: YamlSection, key: str, value: Any, dtype: str, limits: Limits) -> Iterator[Model]:
    if isinstance(value, Mapping):
        section = YamlSection(value, top.where, key)
        if "shape" in value:
            yield from _shapes(section, dtype, limits)
        else:
            revision, checksum = (
                section.optional_text("revision"),
                section.optional_text("checksum"),
            )
            yield Model(section.text("name"), revision, checksum, dtype)
        section.finish({"layers": "it belongs to a 'shape'"})
    elif isinstance(value, str) and value:
        yield Model(value, None, None, dtype)
    else:
        expected = "a bundled name, a hub id, a local path or {shape: NAME}"
        raise top.wrong(key, expected, value)


def _shapes(section: YamlSection, dtype: str, limits: Limits) -> Iterator[Model]:
    """A grid of shapes and layers."""
    checksum = section.optional_text("checksum")
    axes = {"shape": section.take("shape"), "layers": section.take("layers", None)}
    for chosen in expand(axes, {}, section, limits, "engines"):
        name, layers = chosen["shape"], chosen["layers"]
        if not isinstance(name, str) or not name:
            raise section.wrong("shape", "a name or the path of a config.json", name)
        if layers is not None:
            layers = section.as_integer("layers", layers, least=1)
        yield Model(name, None, checksum, dtype, shape=True, layers=layers)
