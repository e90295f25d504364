"""Damaged records, full disks and killed writers: one clear line, and nothing half is read."""

from __future__ import annotations

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

from harness.core.errors import UserError
from results.store.folder import Store
from tests.support.results.make_trials import a_record


def only_files(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


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
    with pytest.raises(UserError, match=r"\.parquet: .* names \(its digest is another one\)"):
        store.read(written.key)
    assert not store.has(written.key), "it is run again"


def test_a_stale_file_of_an_impossible_process_is_removed(tmp_path: Path) -> None:
    stale = tmp_path / ".experiment.yaml.99999999999999999999-0.tmp"
    stale.touch()
    Store(tmp_path).write_experiment("name: x")
    assert not stale.exists()


def test_what_another_users_process_is_writing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not be sent a signal, and so it lives."""
    writing = tmp_path / ".experiment.yaml.4711-0.tmp"
    writing.touch()

    def forbidden(process_id: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    Store(tmp_path).write_experiment("name: x")
    assert writing.exists()


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
from results.store.folder import Store
from tests.support.results.make_trials import a_record
store = Store(Path(sys.argv[1]))
store.write(a_record(0))
print("writing", flush=True)
for i in itertools.count():
    store.write(a_record(i % 7))
"""


def test_kill_at_any_moment_leaves_only_whole_records(tmp_path: Path) -> None:
    """The writer replaces records over and over, so that a kill hits every stage of a write."""
    root = Path(__file__).parents[4]
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
