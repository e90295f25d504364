"""What is written as YAML: a text is one for every reader, whatever it looks like."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.experiment.strict_yaml import read_yaml, yaml_text

TEXTS = [
    "1e3", "1.", ".5", "-1E+3", "0o17", "0x1F", "12", "1.5", "y", "N", "yes", "Off", "null", "~",
    "2024-01-02", "1:30", "a: b", "a #b", "*a", "&a", "!a", "- a", "? a", "@a", "%a", "'", '"', "",
    " a", "a ", "a\nb", "a\tb", "é😀", "\x85", "a\u2028b", "<<", "=",
    "[a]", "{a}", "a" * 200 + " " + "b" * 200,
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back(text: str, tmp_path: Path) -> None:
    data = {"key": text, "list": [text, 1, 1e3, True, None], "nested": {"key": text}}
    path = tmp_path / "x.yaml"
    path.write_text(yaml_text(data), encoding="utf-8")
    assert read_yaml(path) == data


@pytest.mark.parametrize("text", ["1e3", "1.", ".5", "-1E+3", "0o17", "0x1F", "y", "N"])
def test_what_other_readers_take_for_a_number_is_quoted(text: str) -> None:
    assert yaml_text({"key": text}) == f"key: '{text}'\n"


def test_plain_texts_stay_plain() -> None:
    data = {"name": "a/b-c.yaml", "count": 3, "e3": "e3", "x": "deadbeef", "list": ["1e3x", "0x"]}
    assert yaml_text(data) == yaml.safe_dump(data, sort_keys=False)
