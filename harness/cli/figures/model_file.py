"""A model on devices as a stated roofline, from a YAML file."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from backends.tetris.figures.roofline import Roofline, RooflineDevice, even_survival
from backends.tetris.profile import MOST_LAYERS
from harness.experiment.section import YamlSection
from harness.experiment.strict_yaml import read_yaml

TINY = 1e-9


@cache
def read_model(path: Path) -> Roofline:
    """The model of a file. Raises `UserError` naming the file and the key."""
    told = YamlSection(read_yaml(path), str(path))
    layers = told.integer("layers", least=1, most=MOST_LAYERS)
    gflop = _numbers(told, "gflop", layers)
    state_mb = _numbers(told, "state_mb", layers - 1)
    found = Roofline(
        flop=tuple(1e9 * one for one in gflop),
        state_bytes=tuple(1e6 * one for one in state_mb),
        link_bytes_per_s=1e9 * told.number("link_gb_per_s", above=0),
        devices=_devices(told.section("devices")),
        ramp=told.number("ramp", least=0),
        survival=_survival(told, layers),
        entropy=told.number("entropy", 0.4, above=0, most=0.69),
    )
    if not found.devices:
        raise told.wrong("devices", "at least one kind of device", {})
    told.finish()
    return found


def _devices(told: YamlSection) -> dict[str, RooflineDevice]:
    found = {}
    for kind in told.left():
        one = told.section(kind)
        found[kind] = RooflineDevice(
            1e12 * one.number("tflop_per_s", above=0),
            one.number("filled_by", least=TINY),
            one.number("price", least=0),
        )
        one.finish()
    return found


def _numbers(told: YamlSection, key: str, count: int) -> list[float]:
    """A number for all, or one for each."""
    value = told.take(key)
    if not isinstance(value, list):
        return [told.as_number(key, value, above=0)] * count
    if len(value) != count:
        raise told.wrong(key, f"a number or a list of {count}", f"{len(value)} values")
    return [told.as_number(f"{key}[{n}]", one, above=0) for n, one in enumerate(value)]


def _survival(told: YamlSection, layers: int) -> tuple[float, ...]:
    """Falls evenly to the number told, or the whole list."""
    value: Any = told.take("survival")
    if not isinstance(value, list):
        return even_survival(layers, told.as_number("survival", value, least=0, most=1))
    found = [told.as_number(f"survival[{n}]", one, least=0, most=1) for n, one in enumerate(value)]
    if len(found) != layers + 1 or found[0] != 1 or any(a < b for a, b in pairwise(found)):
        raise told.wrong("survival", f"{layers + 1} shares from 1 that never rise", value)
    return tuple(found)
