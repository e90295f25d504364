"""Columns of a stored trial are decoded when something needs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import results
from results.metrics.arrays import ON_DEMAND, from_file, from_record, from_table
from results.rows import summaries
from results.store.columns import TrialFile, to_table
from results.store.columns import from_table as generations_of
from tests.support.results.make_trials import generation, record, trial


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the columns that were decoded, in order."""
    names: list[str] = []
    read = TrialFile.read

    def spy(self: TrialFile, wanted: Sequence[str]) -> Any:
        names.extend(wanted)
        return read(self, wanted)

    monkeypatch.setattr(TrialFile, "read", spy)
    return names


def write_pair(folder: Path, ours: Sequence[int]) -> results.Run:
    store = results.Store(folder)
    store.write_experiment("{name: t, reference: vllm}")
    for backend, ids in (("vllm", (1, 2)), ("fast", ours)):
        generations = [generation("a", [1, 2], ids=ids)]
        store.write(record(trial(backend), generations, texts={"a": str(ids)}))
    return results.load(folder)


def test_texts_of_equal_answers_are_never_decoded(tmp_path: Path, decoded: list[str]) -> None:
    rows = summaries(write_pair(tmp_path, (1, 2)))
    assert [row["rouge_l_to_full"] for row in rows] == [1.0, 1.0]
    assert not set(decoded) & set(ON_DEMAND)


def test_texts_are_decoded_once_where_answers_differ(tmp_path: Path, decoded: list[str]) -> None:
    rows = summaries(write_pair(tmp_path, (1, 3)))
    assert sorted(row["rouge_l_to_full"] for row in rows) == [0.5, 1.0]
    assert decoded.count("text") == 2
    assert decoded.count("telemetry") == 1, "the reference's, for the margin there"


def test_a_missing_text_is_known_without_decoding(tmp_path: Path) -> None:
    store = results.Store(tmp_path)
    generations = [generation(name, [1]) for name in ("a", "b")]
    for texts, complete in (({"a": "x"}, False), ({"a": "x", "b": ""}, True)):
        written = record(trial(), generations, texts=texts)
        store.write(written)
        stored = store.read_stored(written.key)
        assert from_file(store.open_file(written.key, stored.payload)).has_texts == complete
        assert from_record(written).has_texts == complete


def test_a_stored_trial_is_the_same_columns_as_one_in_memory(tmp_path: Path) -> None:
    store = results.Store(tmp_path)
    generations = [generation("a", [1, 2, 5], telemetry={"steps": 2.0}), generation("b", [3])]
    written = record(trial(), generations, texts={"b": "x"}, scores={"a": {"exact_match": 1.0}})
    store.write(written)
    stored = store.read_stored(written.key)
    there, here = from_file(store.open_file(written.key, stored.payload)), from_record(written)
    for name in ("commit_ns", "commit_tokens", "token_ids", "tokens", "sampled", "finished"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
    for name in ("texts", "errors", "telemetry"):
        assert getattr(there, name).to_pylist() == getattr(here, name).to_pylist()
    np.testing.assert_array_equal(there.scores["exact_match"], [1.0, np.nan])
    assert there.telemetry_of(0) == {"steps": 2.0}


def test_a_part_of_a_table_has_the_lists_of_its_own_rows() -> None:
    """Arrow keeps the lists of all rows behind a slice and moves the offsets alone."""
    asked = [
        generation("a", [1, 2, 3], [2, 1, 1], ids=[9, 8, 7, 6]),
        generation("b", [4, 6], [1, 2], ids=[5, 4, 3]),
    ]
    whole = from_record(record(trial(), asked[1:]))
    part = from_table(to_table(record(trial(), asked)).slice(1))
    for name in ("commit_start", "commit_ns", "commit_tokens", "token_start", "token_ids"):
        assert getattr(part, name).tolist() == getattr(whole, name).tolist()


def test_margins_are_no_counts_that_add_up() -> None:
    told = {"steps": 3.0, "top2_margin@1": 0.5}
    table = to_table(record(trial(), [generation("a", [1, 2], telemetry=told)]))
    assert [name for name in table.column_names if name.startswith("count.")] == ["count.steps"]


def test_a_file_without_statistics_does_not_say_how_many_are_null() -> None:
    table = to_table(record(trial(), [generation("a", [1])], texts={"a": "x"}))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_statistics=False)
    file = TrialFile(Path("x.parquet"), sink.getvalue().to_pybytes())
    assert file.nulls("text") is None
    assert from_file(file).has_texts is False


def test_layers_of_tokens_are_kept_where_a_backend_tells_them() -> None:
    early, plain = generation("a", [10, 20, 30]), generation("b", [10, 20])
    early.token_layers = [0, 4]
    table = to_table(record(trial(), [plain, early]))
    found, _, _ = generations_of(table)
    assert [one.token_layers for one in found] == [[], [0, 4]]
    told = from_table(table).token_layers
    assert told is not None
    assert told.tolist() == [0, 0, 0, 4, 0]
    without = to_table(record(trial(), [plain]))
    assert "token_layers" not in without.column_names
    assert from_table(without).token_layers is None
