"""Which files of a folder are a data set's, as the hub and people lay them out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads.datasets import load_rows
from workloads.files.folders import data_files

ROW = b'{"question": "q", "answer": "a"}\n'


def _folder(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(ROW)
    return root


def test_folder_gives_the_files_of_a_split(tmp_path: Path) -> None:
    names = (
        "test_first.jsonl",
        "test-2.csv",
        "train.jsonl",
        "latest.jsonl",
        "README.md",
        ".test.csv",
    )
    folder = _folder(tmp_path, *names)
    assert [p.name for p in data_files(folder, "test")] == ["test-2.csv", "test_first.jsonl"]
    assert [p.name for p in data_files(folder, "train")] == ["train.jsonl"]
    with pytest.raises(UserError, match="no file of split 'validation'; splits there: test, train"):
        data_files(folder, "validation")


def test_folder_without_split_names_gives_all_its_files(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "b.jsonl", "a.jsonl.gz")
    assert [p.name for p in data_files(folder, "test")] == ["a.jsonl.gz", "b.jsonl"]
    with pytest.raises(UserError, match="no file of split 'train'; splits there: none"):
        data_files(folder, "train", must_have_split=True)


def test_folder_as_the_hub_lays_it_out(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path, "data/val-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"
    )
    assert [p.name for p in data_files(folder, "validation")] == ["val-00000-of-00001.parquet"]


@pytest.mark.parametrize("name", ["dev.jsonl", "gsm8k-valid.csv", "Validation.json", "VAL_1.json"])
def test_a_split_has_several_names(tmp_path: Path, name: str) -> None:
    folder = _folder(tmp_path, name, "test.jsonl")
    assert [p.name for p in data_files(folder, "validation")] == [name]


def test_subfolders_count_where_the_folder_itself_has_no_data(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "test.jsonl", "old/test.jsonl")
    assert data_files(folder, "test") == [folder / "test.jsonl"]


def test_folder_without_data_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no data file in this folder"):
        data_files(_folder(tmp_path, "README.md"), "test")


def _named(folder: Path, *names: str) -> Path:
    """A file of one problem for each name, which says where it stands."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"question": name, "answer": "#### 1"}) + "\n")
    return folder


def _asked(folder: Path, **options: str) -> set[str]:
    rows = load_rows(Workload("gsm8k", str(folder), options=options), 0, 9)
    return {row.data["question"] for row in rows}


def test_of_several_configurations_the_data_sets_own_is_taken(tmp_path: Path) -> None:
    """As ``hf download openai/gsm8k --local-dir DIR`` leaves them."""
    folder = _named(
        tmp_path,
        *(f"{c}/{s}-00000-of-00001.jsonl" for c in ("main", "socratic") for s in ("test", "train")),
    )
    (folder / "README.md").touch()
    assert _asked(folder) == {"main/test-00000-of-00001.jsonl"}
    assert _asked(folder, split="train") == {"main/train-00000-of-00001.jsonl"}
    assert _asked(folder / "socratic") == {"socratic/test-00000-of-00001.jsonl"}


def test_a_configuration_is_found_below_other_folders(tmp_path: Path) -> None:
    """As the hub's client keeps them."""
    folder = _named(
        tmp_path, "snapshots/e53f/main/test.jsonl", "snapshots/e53f/socratic/test.jsonl"
    )
    assert _asked(folder) == {"snapshots/e53f/main/test.jsonl"}


def test_a_split_may_be_a_folder(tmp_path: Path) -> None:
    """As the hub's branch refs/convert/parquet has them."""
    folder = _named(
        tmp_path, *(f"main/{split}/{n:04}.jsonl" for split in ("train", "test") for n in (0, 1))
    )
    assert _asked(folder) == {"main/test/0000.jsonl", "main/test/0001.jsonl"}
    assert _asked(folder / "main", split="train") == {
        "main/train/0000.jsonl",
        "main/train/0001.jsonl",
    }


def test_a_files_own_name_goes_before_its_folders(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "test/train-0.jsonl", "test/0.jsonl")
    assert data_files(folder, "test") == [folder / "test/0.jsonl"]


@pytest.mark.parametrize(
    "names",
    [
        ("1.0/test.jsonl", "2.0/test.jsonl"),
        ("a/test/0.jsonl", "b/test/0.jsonl"),
        ("a/x.jsonl", "b/x.jsonl"),
    ],
)
def test_data_sets_that_cannot_be_told_apart_are_refused(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    with pytest.raises(
        UserError, match="several subfolders hold files of split 'test': "
    ) as raised:
        _asked(_named(tmp_path, *names))
    assert str(raised.value).endswith("; expected one of them as source")
    assert "\n" not in str(raised.value)


def test_an_empty_subfolder_of_the_configurations_name_is_no_place(tmp_path: Path) -> None:
    folder = _named(tmp_path, "test.jsonl")
    (folder / "main").mkdir()
    assert _asked(folder) == {"test.jsonl"}


@pytest.mark.parametrize(
    ("name", "split", "told"),
    [
        ("test.jsonl", "train", "of split 'test'"),
        ("train/0000.jsonl", "test", "of split 'train'"),
        ("rows.jsonl", "train", "that names no split"),
    ],
)
def test_a_split_that_a_single_file_does_not_have_is_refused(
    tmp_path: Path, name: str, split: str, told: str
) -> None:
    """All of it would be read, whatever the option says."""
    source = _named(tmp_path / "test_data", name) / name
    with pytest.raises(UserError) as raised:
        _asked(source, split=split)
    assert str(raised.value) == (
        f"workload gsm8k: option 'split': '{split}', and source '{source}' is one file {told}; "
        "expected a folder, or no 'split'"
    )


@pytest.mark.parametrize(
    ("name", "split"),
    [("train.jsonl", "train"), ("train/0.jsonl", "train"), ("rows.jsonl", "test")],
)
def test_a_split_that_a_single_file_has_is_taken(tmp_path: Path, name: str, split: str) -> None:
    assert _asked(_named(tmp_path / "test_data", name) / name, split=split) == {name}
