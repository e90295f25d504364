"""What a store writes it reads back; foreign folders are refused."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core.errors import UserError
from harness.core.nouns import Generation
from results.store.folder import Store
from tests.support.results.make_trials import a_record, generation, record, trial


def only_files(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    written = a_record()
    store.write(written)
    assert store.keys() == [written.key]
    assert store.read(written.key) == written
    assert only_files(store.trials_folder) == {f"{written.key}.json", f"{written.key}.parquet"}


def test_a_record_of_before_there_were_shapes_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    ran = record(trial(), [])
    store.write(ran)
    path = store.trials_folder / f"{ran.key}.json"
    data = json.loads(path.read_text())
    del data["trial"]["model"]["shape"], data["trial"]["model"]["layers"]
    path.write_text(json.dumps(data))
    assert store.read(ran.key).trial == ran.trial


SETTINGS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


ints = st.integers(0, 2**31 - 1)


commit_lists = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 5)), max_size=5)


@SETTINGS
@given(
    rows=st.lists(
        st.tuples(
            commit_lists,
            st.lists(ints, max_size=6),
            st.sampled_from([None, "stop", "length", "error"]),
            st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False)),
            st.one_of(st.none(), st.text(alphabet=st.characters(exclude_categories=["Cs"]))),
        ),
        max_size=6,
    )
)
def test_any_record_survives_the_round_trip(tmp_path: Path, rows: list[tuple]) -> None:  # type: ignore[type-arg]
    generations = [
        Generation(f"r{i}", 5, 6, 7, [c[0] for c in cs], [c[1] for c in cs], ids, end, None, counts)
        for i, (cs, ids, end, counts, _) in enumerate(rows)
    ]
    texts = {f"r{i}": row[4] for i, row in enumerate(rows) if row[4] is not None}
    written = record(trial(), generations, texts=texts)
    store = Store(tmp_path)
    store.write(written)
    assert store.read(written.key) == written


def test_half_a_surrogate_pair_does_not_lose_the_trial(tmp_path: Path) -> None:
    written = record(trial(), [generation("a", [1])], texts={"a": "x\ud800y"})
    Store(tmp_path).write(written)
    assert Store(tmp_path).read(written.key).texts == {"a": "x?y"}


def test_only_ok_counts_as_stored(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ok, failed = a_record(0), a_record(1, status="failed", error="boom")
    assert not store.has(ok.key)
    store.write(ok)
    store.write(failed)
    assert store.has(ok.key)
    assert not store.has(failed.key)
    assert store.keys() == sorted([ok.key, failed.key])
    store.write(dataclasses.replace(failed, status="ok", error=None))
    assert store.has(failed.key)


def test_an_id_without_generation_is_refused_not_dropped(tmp_path: Path) -> None:
    stray = record(trial(), [generation("a", [1])], texts={"b": "text"})
    with pytest.raises(ValueError, match="unknown request 'b'"):
        Store(tmp_path).write(stray)
    twice = record(trial(), [generation("a", [1]), generation("a", [1])])
    with pytest.raises(ValueError, match="not unique"):
        Store(tmp_path).write(twice)


def test_a_key_cannot_leave_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trial key"):
        Store(tmp_path).read("../../etc/passwd")


def test_another_schema_version_is_refused_and_never_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path)
    written = a_record()
    store.write(written)
    path = store.trials_folder / f"{written.key}.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 7'))
    for call in (store.read, store.has):
        with pytest.raises(UserError, match="schema version 7, expected 1"):
            call(written.key)


def test_foreign_and_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        Store(tmp_path / "nowhere").keys()
    with pytest.raises(UserError, match="not a results folder"):
        Store(tmp_path).keys()
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "package.json").write_text('{"name": "left-pad"}')
    store = Store(tmp_path)
    with pytest.raises(UserError, match="not a trial record"):
        store.read(store.keys()[0])


def test_a_run_that_has_only_begun_has_no_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_experiment("name: x")
    assert store.keys() == []


@pytest.mark.parametrize("name", ["abc (copy).json", "a" * 65 + ".json", "é.json"])
def test_a_strange_file_among_the_records_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / name).write_text("{}")
    with pytest.raises(UserError, match="not a trial record; move it elsewhere"):
        Store(tmp_path).keys()


def test_a_resolved_experiment_with_a_strange_value_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("name: 2024-13-01")
    with pytest.raises(UserError, match="not readable as YAML"):
        Store(tmp_path).read_experiment()


def test_experiment_and_prompts(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    assert store.read_experiment() == {}
    assert store.read_prompts("sha256:ab") == []
    store.write_experiment("name: demo\nreference: vllm\n")
    rows = [{"request_id": "r0", "prompt_text": "1+1?", "prompt_tokens": 4, "answer": "2"}]
    store.write_prompts("sha256:ab", rows)
    assert store.read_experiment() == {"name": "demo", "reference": "vllm"}
    assert store.read_prompts("sha256:ab") == rows
    (tmp_path / "run" / "experiment.yaml").write_text("a: [")
    with pytest.raises(UserError, match=r"experiment\.yaml: not readable as YAML"):
        store.read_experiment()
    (tmp_path / "run" / "prompts" / "sha256-ab.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"sha256-ab\.parquet: broken Parquet"):
        store.read_prompts("sha256:ab")


def test_a_folder_whose_name_is_no_utf_8_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / os.fsdecode(b"run\xff"))
    store.write_prompts("c0ffee", [{"request_id": "a", "prompt_tokens": 7}])
    assert store.read_prompt_lengths("c0ffee") == {"a": 7}
