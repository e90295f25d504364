"""The systems under test. `BACKENDS` is the whole registry; modules load when a backend is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from harness.core.backend import Backend
from harness.core.errors import UserError, nearest
from harness.core.nouns import Model

BACKENDS: dict[str, str] = {
    "adadecode": "backends.own.adadecode:AdaDecode",
    "autoregressive": "backends.own.autoregressive:Autoregressive",
    "http": "backends.http.backend:HttpBackend",
    "scripted": "backends.scripted:ScriptedBackend",
    "vllm": "backends.vllm.backend:VllmBackend",
    "vllm-early-exit": "backends.early_exit.backend:VllmEarlyExit",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a backend: for `decodebench list backends` and for checking experiments."""

    type: type
    """A list in an experiment file is this option's value where `type` is list, else a grid."""
    default: Any
    help: str
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    """Smallest number allowed; for a list it holds for each number in it."""
    maximum: float | None = None
    words: tuple[str, ...] = ()
    """Words that stand for a value of the type, such as "auto"."""


class BackendClass(Protocol):
    """What a class named in `BACKENDS` offers before and for opening it."""

    OPTIONS: dict[str, Option]
    needs_model: bool

    def open(self, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Backend:
        """Load the backend. Raises `UserError` for options or a model that it cannot take."""


def load_class(name: str) -> BackendClass:
    """The class behind `name`, its module imported. Raises `UserError` for an unknown name."""
    if name not in BACKENDS:
        raise UserError(f"unknown backend '{name}': {nearest(name, BACKENDS)}")
    module, _, attribute = BACKENDS[name].partition(":")
    return cast(BackendClass, getattr(importlib.import_module(module), attribute))


def options(name: str) -> dict[str, Option]:
    """The options of backend `name`. Raises `UserError` for an unknown name."""
    return load_class(name).OPTIONS


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise `UserError` for an option that `name` does not have or a value that it cannot take.

    A class may offer `check(options)` for what types and bounds cannot say.
    """
    cls = load_class(name)
    for key, value in options.items():
        if key not in cls.OPTIONS:
            raise UserError(
                f"backend '{name}': unknown option '{key}': {nearest(key, cls.OPTIONS)}"
            )
        _check_value(f"backend '{name}': option '{key}'", cls.OPTIONS[key], value)
    check = getattr(cls, "check", None)
    if check is not None:
        check(options)


def warnings(name: str, model: Model, options: Mapping[str, Any]) -> list[str]:
    """What the user probably did not mean by these options of backend `name`, one line each.

    A class may offer `warnings(model_dir, options)`. Raises `UserError` for what it cannot run.
    """
    told = getattr(load_class(name), "warnings", None)
    if told is None:
        return []
    from backends.checkpoints import models

    found: list[str] = told(models.resolve(model, weights=False), options)
    return found


def open_backend(
    name: str, model_dir: Path | None, model: Model, options: Mapping[str, Any]
) -> Backend:
    """Check `options`, then load the backend. Raises `UserError` for bad input."""
    check_options(name, options)
    cls = load_class(name)
    if cls.needs_model and model_dir is None:
        raise UserError(f"backend '{name}' needs a model, and '{model.name}' has no local copy")
    return cls.open(model_dir, model, options)


def _check_value(where: str, option: Option, value: Any) -> None:
    if value is None and option.default is None:
        return
    if isinstance(value, str) and value in option.words:
        return
    if not _fits(option.type, value):
        expected = " or ".join([option.type.__name__, *option.words])
        raise UserError(f"{where}: expected {expected}, got {value!r}")
    if option.choices and value not in option.choices:
        raise UserError(f"{where}: {value!r}: {nearest(str(value), map(str, option.choices))}")
    for number in value if isinstance(value, list) else [value]:
        _check_bounds(where, option, number)


def _check_bounds(where: str, option: Option, number: Any) -> None:
    low, high = option.minimum, option.maximum
    if (low, high) != (None, None) and not _fits(float, number):
        raise UserError(f"{where}: expected a number, got {number!r}")
    if low is not None and not number >= low:
        raise UserError(f"{where}: expected at least {low:g}, got {number!r}")
    if high is not None and not number <= high:
        raise UserError(f"{where}: expected at most {high:g}, got {number!r}")


def _fits(expected: type, value: Any) -> bool:
    """Like isinstance, but an int is a float and a bool is no number."""
    if isinstance(value, bool):
        return expected is bool
    if isinstance(value, int) and expected is float:
        return True
    return isinstance(value, expected)
