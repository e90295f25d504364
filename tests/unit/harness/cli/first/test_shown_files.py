"""Whole experiment files that README and docs show are ones that `run` takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli import wiring
from harness.experiment.config import parse_experiment

ROOT = Path(__file__).parents[5]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
KNOWN = wiring.known()


def shown() -> Iterator[Any]:
    for page in PAGES:
        for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
            data = yaml.safe_load(text)
            if isinstance(data, dict) and "name" in data:
                yield pytest.param(data, id=f"{page.name}-{data['name']}")


FILES = list(shown())


def test_a_user_of_a_large_model_is_shown_how() -> None:
    models = [file.values[0]["model"] for file in FILES]
    assert models.count("meta-llama/Llama-3.1-8B-Instruct") == 2


@pytest.mark.parametrize("data", FILES)
def test_it_is_taken(data: dict[str, Any]) -> None:
    assert parse_experiment(data, "shown.yaml", KNOWN).name == data["name"]
