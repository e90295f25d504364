"""What the tests of the calibration's driver share: a small one and what is known of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.early_exit.calibration.calibrate import calibrate
from backends.early_exit.calibration.prompts import read_groups
from backends.early_exit.calibration.settings import Settings
from tests.support.exits.fake_exits import hardness

DEMO = models.BUNDLED["demo"]
GRID = (0.95, 0.9, 0.8, 0.7, 0.5, 0.2)
SETTINGS = Settings(
    model="demo",
    measure="state",
    workloads=("gsm8k", "xsum"),
    metric="consistency",
    target=0.6,
    rows=40,
    grid=GRID,
    per="mixture",
)


def prompts(settings: Settings = SETTINGS) -> list[tuple[int, ...]]:
    groups = read_groups(settings, DEMO, models.load_tokenizer(DEMO))
    return [prompt.ids for group in groups for prompt in group]


def wrong(threshold: float, settings: Settings = SETTINGS) -> list[float]:
    return [float(hardness(ids) > threshold) for ids in prompts(settings)]


def run(out: Path, settings: Settings = SETTINGS, **more: Any) -> Any:
    return calibrate(settings, out, **more)
