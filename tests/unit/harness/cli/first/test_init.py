"""The commented experiment: what it says as it is, and with every line of it in use."""

from __future__ import annotations

import re
import resource
import shlex
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


ODD = {
    "7": "7", "...": "mine", "ä": "ä", "yes": "yes", "Null": "Null", "1e3": "1e3", "1.5": "1.5",
    "2024-01-02": "2024-01-02", "2024-99-99": "2024-99-99", "0x1f": "0x1f", "*a": "a",
    "a: b #c": "a-b-c", "'q'": "q", '"q"': "q", "NAME": "NAME", "FILE": "FILE", "n": "n",
    "a\nname: b": "a-name-b", "x" * 130: "x" * 100, "&a !b": "a-b", "~": "mine",
}  # fmt: skip


@pytest.mark.parametrize(("stem", "name"), ODD.items())
@pytest.mark.parametrize("folder", ["", "FILE/NAME", "a # b: 'c'", "a\nname: c"])
def test_odd_names_become_names(folder: str, stem: str, name: str) -> None:
    text = commented(Path(folder) / f"{stem}.yaml")
    content = yaml.safe_load(text)
    plain = yaml.safe_load(commented(Path("plain.yaml")))
    assert content == plain | {"name": name}, "and nothing else is said"
    assert parse_experiment(content, "f", wiring.known()).name == name
    assert f"#   decodebench show runs/{name} " in text


@pytest.mark.parametrize("stem", ["1e3", "0o17", "y", "12", "1."])
def test_a_name_is_a_text_for_readers_of_other_versions(stem: str) -> None:
    (line,) = re.findall("^name: .*$", commented(Path(f"{stem}.yaml")), re.MULTILINE)
    assert line.split("  ")[0].removeprefix("name: ") == f"'{stem.strip('.')}'"


def test_the_next_command_is_one_for_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "it's mine.yaml"
    init(file)
    told = capsys.readouterr().out.strip().partition("next: ")[2]
    assert shlex.split(told) == ["decodebench", "run", str(file)]
    (line,) = re.findall("#   (decodebench run .*?)  +runs what", file.read_text())
    assert shlex.split(line) == ["decodebench", "run", str(file)]


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


def test_a_full_disk_leaves_nothing_that_the_next_start_refuses(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(UserError, match=r"x\.yaml: cannot be written: File too large"):
            init(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not file.exists()
    init(file)
