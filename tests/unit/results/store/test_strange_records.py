"""Records that are JSON and no records: one line, and never advice to delete what is newer."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core import files
from harness.core.errors import UserError
from harness.core.nouns import Generation
from results.store.folder import Store
from results.store.records import BrokenRecordError
from results.store.typed import UnknownDataError, typed
from tests.support.results.make_trials import a_record


def spoiled(folder: Path, place: str, value: object) -> tuple[Store, str]:
    """A folder with a record that has `value` at `place`, as ``trial.slo.ttft_ms``."""
    store, written = Store(folder), a_record()
    store.write(written)
    path = store.trials_folder / f"{written.key}.json"
    data = json.loads(path.read_text())
    *way, last = place.split(".")
    at: Any = data
    for name in way:
        at = at[name]
    at[last] = value
    path.write_text(json.dumps(data))
    return store, written.key


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("environment", None),
        ("environment.fingerprint", [1]),
        ("environment.cores", "x"),
        ("environment.gpus", ["H200"]),
        ("environment.packages", "torch"),
        ("environment.since_invocation_s", "x"),
        ("environment.workers", ["core"]),
        ("validity.reasons", [1]),
        ("validity.valid", "yes"),
        ("trial", []),
        ("trial.repeat", "0"),
        ("trial.repeat", True),
        ("trial.seed", math.nan),
        ("trial.slo.ttft_ms", "fast"),
        ("trial.slo.ttft_ms", math.nan),
        ("trial.duration_s", math.inf),
        ("trial.load.concurrency", "x"),
        ("trial.options", [1]),
        ("trial.options", {"gamma": [math.nan]}),
        ("trial.workload.options", None),
        ("trial.model.shape", 1),
        ("backend.options", [1]),
        ("backend", [1]),
        ("backend.capabilities", "logprobs"),
        ("backend.measured.pass_bytes", {"layer": 1}),
        ("parquet.bytes", "5"),
        ("started_at", None),
        ("status", 1),
    ],
)
def test_a_mistyped_field_is_named_and_its_trial_run_again(
    tmp_path: Path, place: str, value: object
) -> None:
    store, key = spoiled(tmp_path, place, value)
    with pytest.raises(BrokenRecordError) as caught:
        store.read_stored(key)
    message = str(caught.value)
    assert message.startswith(f"{store.trials_folder / key}.json: a field is missing or strange (")
    assert message.endswith("); delete it and run the experiment again")
    assert not store.has(key)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        ("newfield", 1, "field 'newfield'"),
        ("trial.load.jitter", 1, "field 'trial.load.jitter'"),
        ("trial.model.a\nb", 1, r"field 'trial.model.a\nb'"),
        ("backend.measured.newer", 1, "field 'backend.measured.newer'"),
        ("parquet.sha256", "", "field 'parquet.sha256'"),
        ("status", "bogus", "'bogus' as status"),
        ("trial.load.kind", "burst", "'burst' as trial.load.kind"),
    ],
)
def test_what_a_newer_version_wrote_is_foreign_and_not_broken(
    tmp_path: Path, place: str, value: object, told: str
) -> None:
    store, key = spoiled(tmp_path, place, value)
    for read in (store.read_stored, store.has):
        with pytest.raises(UserError) as caught:
            read(key)
        assert not isinstance(caught.value, BrokenRecordError)
        message = str(caught.value)
        assert f"written by a newer decodebench ({told} is not known); read it with" in message
        assert "delete" not in message


def test_endless_brackets_are_broken(tmp_path: Path) -> None:
    store, key = spoiled(tmp_path, "error", None)
    (store.trials_folder / f"{key}.json").write_text("[" * 100_000)
    with pytest.raises(BrokenRecordError, match="broken trial record"):
        store.read_stored(key)


def test_words_beside_none_are_words() -> None:
    found = {"request_id": "r", "scheduled_ns": 1, "submitted_ns": 2, "finished": "late"}
    with pytest.raises(UnknownDataError, match="'late' as finished"):
        typed(Generation, found)
    assert typed(Generation, found | {"finished": None}) == Generation("r", 1, 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("workloads: 5", "workloads: expected a list, found 5"),
        ("workloads: [{workload: x}]", "workloads[0].workload: expected an object, found 'x'"),
        ("backends: [{options: {}}]", "no 'backends[0].name'"),
        ("backends: [{name: x, options: [1]}]", "backends[0].options: expected an object"),
        ("backends: [{name: 2026-01-01}]", "date is not JSON serializable"),
        ("name: 2026-01-01", "date is not JSON serializable"),
        ("limits: {longest: .nan}", "not JSON compliant"),
        ("loads: &a [*a]", "Circular reference"),
        ("quality_margin: wide", "quality_margin: expected float, found 'wide'"),
        ("repeats: three", "repeats: expected int, found 'three'"),
        ("published: 5", "published: expected an object, found 5"),
        ("backends: [{name: x, kind: 1}]", "newer decodebench (field 'backends[0].kind' is not"),
        ("[" * 10_000, "not readable as YAML"),
    ],
)
def test_an_experiment_of_another_shape_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        Store(tmp_path).read_experiment()
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert told in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["experiment.yaml", "json", "parquet", "prompts", "code"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    store, written = Store(tmp_path), a_record()
    store.write(written)
    reads: dict[str, tuple[Path, Callable[[], object]]] = {
        "experiment.yaml": (tmp_path / "experiment.yaml", store.read_experiment),
        "json": (store.trials_folder / f"{written.key}.json", lambda: store.has(written.key)),
        "parquet": (store.trials_folder / f"{written.key}.parquet", lambda: store.has(written.key)),
        "prompts": (tmp_path / "prompts" / "x.parquet", lambda: store.read_prompts("x")),
        "code": (tmp_path / "code" / "x.json", lambda: store.read_code("x")),
    }
    path, read = reads[name]
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    if name == "code":
        assert read() is None
        return
    with pytest.raises(UserError, match="expected a plain file, found a named pipe"):
        read()


def test_what_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, written = Store(tmp_path), a_record()
    store.write(written)

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files, "check_plain", refused)
    with pytest.raises(UserError, match=r"\.json: cannot be read: Permission denied"):
        store.has(written.key)
