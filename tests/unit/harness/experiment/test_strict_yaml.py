"""Experiment files that would crash, hang or fill the memory: one line each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.experiment import strict_yaml
from harness.experiment.strict_yaml import MAX_DEPTH, MAX_NODES, read_yaml


def laugh(first: str, link: str, levels: int = 30) -> str:
    lines = [f"a0: &a0 {first}"]
    for n in range(1, levels):
        lines.append(f"a{n}: &a{n} {link.format(', '.join([f'*a{n - 1}'] * 9))}")
    return "\n".join(lines)


def refusal(tmp_path: Path, content: str | bytes) -> str:
    file = tmp_path / "e.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError) as caught:
        read_yaml(file)
    line = str(caught.value)
    assert line.startswith(str(file))
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: 1\nb: !!int ''", "e.yaml:2: the value does not fit its tag '!!int'"),
        ("a: !!float ''", "e.yaml:1: the value does not fit its tag '!!float'"),
        ("a: !!bool maybe", "does not fit its tag '!!bool'"),
        ("a: !!timestamp soon", "does not fit its tag '!!timestamp'"),
        ("a: 1\nb: !!map [x]", "e.yaml:2: expected a mapping, found a sequence"),
        ("a: !!set [x]", "e.yaml:1: expected a mapping, found a sequence"),
        ("a: !!omap x", "e.yaml:1: expected a sequence, found scalar"),
        ("a: !!str [x]", "e.yaml:1: expected a scalar node, found sequence"),
        ("a: 1" + ":59" * 500, "e.yaml:1: a number of 1,501 characters; at most 400"),
        ("a: 0x" + "f" * 9000, "e.yaml:1: a number of 9,002 characters; at most 400"),
        ("a: 1\nb: 010", "e.yaml:2: 010 would be read in base 8; leave the leading 0 out, or put"),
        ("a: [-0_7]", "e.yaml:1: -0_7 would be read in base 8"),
        ('a: "b" c', "expected the end of this block, found a text or number; is a quote, a comma"),
        ("a: [b, {c: d]", "expected ',' or '}', found ']'"),
        ("a: {b", "expected ',' or '}', found the end of the file"),
        ("a:\n  - b\n c: d", "e.yaml:3: expected the end of this block, found a mapping; is a"),
        ("a: b\x07", "e.yaml: the character 0x7 at position 4 is not allowed"),
        ("a: &a [*a]", "e.yaml:1: an alias inside the value that it stands for"),
        ("a: b\n---\nc: d", "e.yaml:2: found another document"),
        ("name: a\n".encode("utf-16"), "cannot be read: not utf-8 text"),
        ("{[a]: b}", "e.yaml:1: found unhashable key"),
    ],
)
def test_odd_content_is_one_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert message in refusal(tmp_path, content)


@pytest.mark.parametrize(
    "content",
    [
        laugh("[x]", "[{}]"),
        laugh("{x: y}", "{{<<: [{}]}}"),
        laugh("x", "{{k: [{}]}}"),
        laugh("[x]", "[{}]") + "\nname: *a29\n",
    ],
    ids=["lists", "merges", "mappings", "under a key"],
)
def test_aliases_that_double_without_end_are_counted_and_not_written_out(
    tmp_path: Path, content: str
) -> None:
    line = refusal(tmp_path, content)
    assert f"more than {MAX_NODES:,} values with every alias (*name) written out" in line


def test_aliases_that_stay_small_are_written_out(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(laugh("[x]", "[{}]", levels=4))
    assert read_yaml(file)["a3"] == [[[["x"]] * 9] * 9] * 9


def test_as_many_values_as_are_read_and_one_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_yaml, "MAX_NODES", 10)
    file = tmp_path / "e.yaml"
    file.write_text("a: [1, 2, 3, 4, 5, 6, 7]")
    assert read_yaml(file) == {"a": [1, 2, 3, 4, 5, 6, 7]}
    assert "more than 10 values" in refusal(tmp_path, "a: [1, 2, 3, 4, 5, 6, 7, 8]")
    assert "more than 10 values" in refusal(tmp_path, "a: &a [1, 2, 3]\nb: [*a, *a]")


@pytest.mark.parametrize(
    "content",
    [
        "[" * 20_000,
        "- " * 20_000,
        "a0: &a0 x\n" + "".join(f"b{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 900)),
    ],
    ids=["open lists", "dashes", "a chain of aliases"],
)
def test_deep_nesting_is_one_line(tmp_path: Path, content: str) -> None:
    assert f"nested too deeply; at most {MAX_DEPTH} levels" in refusal(tmp_path, content)


def test_levels_up_to_the_bound_are_read(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert str(read_yaml(file)).count("[") == MAX_DEPTH
    assert "nested too deeply" in refusal(tmp_path, "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2))


def test_only_plain_files_of_some_size_are_read(tmp_path: Path) -> None:
    for name, make, found in (
        ("pipe", os.mkfifo, "a named pipe"),
        ("folder", Path.mkdir, "a folder"),
        ("zero", lambda path: path.symlink_to("/dev/zero"), "a device"),
    ):
        make(tmp_path / name)
        with pytest.raises(UserError, match=f"{name}: expected a plain file, found {found}"):
            read_yaml(tmp_path / name)
    assert "larger than 2 MiB" in refusal(tmp_path, b"#" * (2 * 2**20 + 1))


def test_a_missing_file_names_the_nearest_few(tmp_path: Path) -> None:
    for n in range(47):
        (tmp_path / f"sweep_{n}.yaml").touch()
    with pytest.raises(UserError, match=r"no such file or directory; nearest are (\S+, ){2}\S+$"):
        read_yaml(tmp_path / "mine.yml")
    (tmp_path / "mine.yaml").touch()
    with pytest.raises(UserError, match=r"did you mean 'mine.yaml'\?$"):
        read_yaml(tmp_path / "mine.yml")


def test_powers_of_ten_are_numbers(tmp_path: Path) -> None:
    """As in YAML 1.2; what only looks like one, such as a commit, is a text."""
    file = tmp_path / "e.yaml"
    file.write_text("[1e1, 1E3, -2.5e+2, .5e1, 4e-3, 0, 0.5, '1e1', 1e10234, 1e1x, e1]")
    assert read_yaml(file) == [
        10.0, 1000.0, -250.0, 5.0, 0.004, 0, 0.5, "1e1", "1e10234", "1e1x", "e1"
    ]  # fmt: skip
    assert all(type(value) is float for value in read_yaml(file)[:5])
