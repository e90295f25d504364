"""The commented experiment: what it says as it is, and with every line of it in use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from harness.cli import wiring
from harness.cli.first.init import TEMPLATE, commented, init
from harness.cli.first.schema import experiment_schema
from harness.core.errors import UserError
from harness.experiment.config import load_experiment, parse_experiment

USED = re.compile(r"^(\s*)#(?=- |[a-z_]+:)", re.MULTILINE)


def test_it_is_an_experiment_named_after_its_file(tmp_path: Path) -> None:
    file = tmp_path / "my first.yaml"
    init(file)
    experiment = load_experiment(file, wiring.known())
    assert experiment.name == "my-first"
    wiring.resolve(experiment)
    assert str(file) in file.read_text()


@pytest.mark.parametrize(("stem", "name"), [("7", "7"), ("...", "mine"), ("ä", "ä")])
def test_odd_names_become_names(stem: str, name: str) -> None:
    content = yaml.safe_load(commented(Path(f"{stem}.yaml")))
    assert parse_experiment(content, "f", wiring.known()).name == name


def test_every_line_of_it_can_be_used(tmp_path: Path) -> None:
    """Lines that set a key again take the place of the one above."""
    content: dict[str, Any] = {}
    text = USED.sub(r"\1", TEMPLATE.read_text())
    text = text.replace("    gamma: auto\n", "")
    content = yaml.safe_load(text)
    jsonschema.Draft7Validator(experiment_schema()).validate(content)
    parse_experiment(content, "f", wiring.known())
    assert len(USED.findall(TEMPLATE.read_text())) > 12


def test_it_speaks_of_every_key_that_people_set() -> None:
    named = set(re.findall(r"^#?([a-z_]+):", TEMPLATE.read_text(), re.MULTILINE))
    rare = {"rates", "published", "max_new_tokens"}
    assert named == set(experiment_schema()["properties"]) - rare


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("mine")
    with pytest.raises(UserError, match=r"x\.yaml: it is there already"):
        init(file)
    assert file.read_text() == "mine"
    for name, message in (("x.txt", "ends in .yaml or .yml"), ("no/x.yaml", "cannot be written")):
        with pytest.raises(UserError, match=message):
            init(tmp_path / name)
