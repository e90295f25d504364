"""Defaults that the command line shows are those of the work behind it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import pytest

from backends.early_exit.calibration.settings import Settings
from backends.training.exits.recipe import ExitRecipe
from harness.cli.calibrate import calibrate
from harness.cli.training.exits import train_heads

OTHER_WORDS = {"rate": "lr"}
RESOLVED = {"dtype"}
"""What the command line works out of its own default."""


@pytest.mark.parametrize(("command", "chosen"), [(calibrate, Settings), (train_heads, ExitRecipe)])
def test_the_command_line_s_defaults(command: Callable[..., Any], chosen: type) -> None:
    """None leaves the default to the work, and the help says it in words."""
    shown = inspect.signature(command).parameters
    compared = 0
    for field in fields(chosen):
        name = OTHER_WORDS.get(field.name, field.name)
        default = shown[name].default if name in shown else None
        if (
            default not in (None, inspect.Parameter.empty)
            and field.default is not MISSING
            and name not in RESOLVED
        ):
            assert default == field.default, field.name
            compared += 1
    assert compared >= 5
