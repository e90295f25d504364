"""What the command `run` does to a folder before and between trials."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness import cli, running
from harness.core import TrialRecord, UserError
from harness.sweep import SweepResult
from results.store import Store
from tests.unit.harness.sessions import make_trial


def record(key: str, backend: str = "scripted") -> TrialRecord:
    trial = replace(make_trial(), backend=backend)
    return TrialRecord(key=key, trial=trial, environment={}, status="failed")


def test_a_run_killed_before_its_first_file_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / ".experiment.yaml.4711-0.tmp").write_text("name: x")
    running._check_folder(tmp_path)
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(UserError, match="not a run folder"):
        running._check_folder(tmp_path)


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    second = running._only_writer(tmp_path)
    with (
        running._only_writer(tmp_path),
        pytest.raises(UserError, match="another run is writing into it"),
    ):
        second.__enter__()
    with running._only_writer(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Not a directory; name another --out"):
        running._only_writer(tmp_path / "file" / "run").__enter__()


def test_input_that_an_engine_refused_is_bad_input_unless_something_ran(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = SweepResult(Counter({"failed": 4}), refusals=Counter({"vllm: block_size: 7": 4}))
    with pytest.raises(UserError, match=r"^vllm: block_size: 7$"):
        running._raise_refusal(refused)
    running._raise_refusal(replace(refused, statuses=Counter({"failed": 4, "ok": 1})))
    running._raise_refusal(replace(refused, stored=1))
    line = "vllm: block_size: 7 (4 trials failed)\n"
    assert capsys.readouterr().err == line * 2


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(130)], ids=["raw", "by typer"])
def test_an_interrupt_is_told_in_one_line(
    stop: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**_: object) -> None:
        raise stop

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "decodebench: interrupted; what was finished is stored\n"


def test_fresh_with_only_forgets_that_backend_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for key, backend in (("a", "scripted"), ("b", "vllm"), ("c", "scripted")):
        store.write(record(key, backend))
    (store.trials_folder / "damaged.json").write_text("{")
    running._forget(store, "scripted")
    assert store.keys() == ["b", "damaged"]
    running._forget(store, None)
    assert not store.trials_folder.exists()
    running._forget(store, None)
    running._forget(store, "scripted")


def test_fresh_that_cannot_delete_is_an_error_and_not_a_run_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "trials").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="--fresh: "):
        running._forget(Store(tmp_path / "run"), None)


def test_a_foreign_record_is_found_before_anything_is_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record("a"))
    path = store.trials_folder / "a.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 7'))
    with pytest.raises(UserError, match="schema version 7"):
        list(running._records(store))
