"""Tab-separated values, as GLUE has SST-2."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads.datasets import load_rows
from workloads.readers import read_records

DEV = "sentence\tlabel\n\"a 'fine' one , said \"he \t1\nit 's \"slow\t0\n"


def test_sst_2_is_read_as_glue_distributes_it(tmp_path: Path) -> None:
    """A quote opens nothing, and the folder's other splits are left alone."""
    (tmp_path / "dev.tsv").write_text(DEV)
    (tmp_path / "train.tsv").write_text("sentence\tlabel\ntrained on \t1\n")
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\twithout a label\n")
    rows = load_rows(Workload("sentiment", str(tmp_path)), 0, 2)
    assert {(row.data["sentence"], row.data["label"]) for row in rows} == {
        ("\"a 'fine' one , said \"he ", "positive"),
        ("it 's \"slow", "negative"),
    }


def test_it_may_be_packed(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv.gz"
    path.write_bytes(gzip.compress(DEV.encode()))
    assert [values["label"] for _, values in read_records(path)] == ["1", "0"]


def test_a_row_of_too_many_values_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("sentence\tlabel\na\t1\t2\n")
    with pytest.raises(UserError, match="line 2: more values than the 2 columns"):
        list(read_records(path))
