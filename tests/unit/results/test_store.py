from __future__ import annotations

import dataclasses
import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core import Generation, UserError
from results.store import Store
from tests.unit.results.make import a_record, generation, record, trial


def only_files(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    written = a_record()
    store.write(written)
    assert store.keys() == [written.key]
    assert store.read(written.key) == written
    assert only_files(store.trials_folder) == {f"{written.key}.json", f"{written.key}.parquet"}


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


def damage_truncate_json(json_file: Path, parquet: Path) -> None:
    json_file.write_bytes(json_file.read_bytes()[:200])


def damage_empty_json(json_file: Path, parquet: Path) -> None:
    json_file.write_bytes(b"")


def damage_binary_json(json_file: Path, parquet: Path) -> None:
    json_file.write_bytes(b"\xff\xfe\x00")


def damage_drop_field(json_file: Path, parquet: Path) -> None:
    data = json.loads(json_file.read_text())
    del data["trial"]["load"]
    json_file.write_text(json.dumps(data))


def damage_other_key(json_file: Path, parquet: Path) -> None:
    json_file.write_text(json_file.read_text().replace(json_file.stem, "0" * 20))


def damage_missing_parquet(json_file: Path, parquet: Path) -> None:
    parquet.unlink()


def damage_truncate_parquet(json_file: Path, parquet: Path) -> None:
    parquet.write_bytes(parquet.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        (damage_truncate_json, "json"),
        (damage_empty_json, "json"),
        (damage_binary_json, "json"),
        (damage_drop_field, "json"),
        (damage_other_key, "json"),
        (damage_missing_parquet, "parquet"),
        (damage_truncate_parquet, "parquet"),
    ],
)
def test_damage_is_one_clear_line_and_is_run_again(
    tmp_path: Path, damage: Callable[[Path, Path], None], names: str
) -> None:
    store = Store(tmp_path)
    written = a_record()
    store.write(written)
    files = [store.trials_folder / f"{written.key}.{end}" for end in ("json", "parquet")]
    damage(*files)
    with pytest.raises(UserError) as caught:
        store.read(written.key)
    message = str(caught.value)
    assert "\n" not in message
    assert f"{written.key}.{names}" in message
    assert "run the experiment again" in message
    assert not store.has(written.key)
    store.write(written)
    assert store.read(written.key) == written


def test_a_flipped_bit_in_the_parquet_is_noticed(tmp_path: Path) -> None:
    """Size and footer stay right, so that only the digest can tell."""
    store = Store(tmp_path)
    written = a_record()
    store.write(written)
    path = store.trials_folder / f"{written.key}.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"\.parquet: .* names"):
        store.read(written.key)


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


def test_a_stale_file_of_an_impossible_process_is_removed(tmp_path: Path) -> None:
    stale = tmp_path / ".experiment.yaml.99999999999999999999-0.tmp"
    stale.touch()
    Store(tmp_path).write_experiment("name: x")
    assert not stale.exists()


def test_a_resolved_experiment_with_a_strange_value_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("name: 2024-13-01")
    with pytest.raises(UserError, match="not readable as YAML"):
        Store(tmp_path).read_experiment()


def test_temporary_files_are_ignored_and_removed_when_their_writer_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "trials"
    folder.mkdir()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    stale = folder / f".abc.json.{gone.pid}-0.tmp"
    old = folder / f".old.json.{os.getpid()}-0.tmp"
    live = folder / f".new.json.{os.getpid()}-1.tmp"
    for path in (stale, old, live):
        path.write_text("{")
    os.utime(old, (time.time() - 7200,) * 2)
    store = Store(tmp_path)
    assert store.keys() == []
    written = a_record()
    store.write(written)
    assert only_files(folder) == {live.name, f"{written.key}.json", f"{written.key}.parquet"}


def test_a_failing_disk_leaves_no_trace_and_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    failed = a_record(status="failed")
    store.write(failed)
    before = only_files(store.trials_folder)
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write(a_record())
    assert only_files(store.trials_folder) == before
    assert store.read(failed.key) == failed


def test_a_write_cut_short_by_the_kernel_leaves_no_trace(tmp_path: Path) -> None:
    """A real limit on file size, as a full disk: the write fails half way."""
    store = Store(tmp_path)
    store.write(a_record(0))
    before = only_files(store.trials_folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            store.write(a_record(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert only_files(store.trials_folder) == before


WRITER = """
import itertools, sys
from pathlib import Path
from results.store import Store
from tests.unit.results.make import a_record
store = Store(Path(sys.argv[1]))
store.write(a_record(0))
print("writing", flush=True)
for i in itertools.count():
    store.write(a_record(i % 7))
"""


def test_kill_at_any_moment_leaves_only_whole_records(tmp_path: Path) -> None:
    """The writer replaces records over and over, so that a kill hits every stage of a write."""
    root = Path(__file__).parents[3]
    chance = random.Random(1)
    store = Store(tmp_path)
    for _ in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], cwd=root, stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        time.sleep(chance.uniform(0, 0.05))
        writer.kill()
        writer.wait()
        writer.stdout.close()
        keys = store.keys()
        for key in keys:
            assert store.read(key).key == key
    final = a_record(0)
    Store(tmp_path).write(final)
    assert not list(store.trials_folder.glob(".*.tmp"))


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
