"""What the command `run` does to a folder before and between trials."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends import pins as backend_pins
from harness.cli import doctor, wiring
from harness.cli import main as cli
from harness.cli import run as running
from harness.cli.cells.outcome import raise_refusal
from harness.cli.folders import run_folder
from harness.cli.pins import whole_records
from harness.cli.progress import SweepDisplay
from harness.core.errors import UserError
from harness.core.files import only_writer
from harness.core.nouns import Model, Trial, TrialRecord
from harness.measure.fleet import Fleet
from harness.measure.machine.environment import environment, fingerprint
from harness.measure.sweep import SweepResult
from results.store.folder import Store
from tests.support.harness.sessions import make_trial, open_session


def record(key: str, backend: str = "scripted") -> TrialRecord:
    trial = replace(make_trial(), backend=backend)
    return TrialRecord(key=key, trial=trial, environment={}, status="failed")


def test_a_run_killed_before_its_first_file_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / ".experiment.yaml.4711-0.tmp").write_text("name: x")
    run_folder.check_folder(tmp_path)
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(UserError, match="not a run folder"):
        run_folder.check_folder(tmp_path)


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    second = only_writer(tmp_path)
    with (
        only_writer(tmp_path),
        pytest.raises(UserError, match="another run is writing into it"),
    ):
        second.__enter__()
    with only_writer(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Not a directory; name another --out"):
        only_writer(tmp_path / "file" / "run").__enter__()


def test_input_that_an_engine_refused_is_bad_input_unless_something_ran(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = SweepResult(Counter({"failed": 4}), refusals=Counter({"vllm: block_size: 7": 4}))
    with pytest.raises(UserError, match=r"^vllm: block_size: 7$"):
        raise_refusal(refused)
    raise_refusal(replace(refused, statuses=Counter({"failed": 4, "ok": 1})))
    raise_refusal(replace(refused, stored=1))
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


def test_a_message_as_long_as_the_file_that_it_quotes_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise UserError("f.yaml: unknown key " + "x" * 10**6)

    monkeypatch.setattr(cli, "app", refuse)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    line = capsys.readouterr().err
    assert (ended.value.code, line.count("\n")) == (2, 1)
    assert line.endswith("xxx ... (1,000,020 characters)\n")
    assert len(line) < 2100


def test_a_foreign_record_is_found_before_anything_is_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record("a"))
    path = store.trials_folder / "a.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 7'))
    with pytest.raises(UserError, match="schema version 7"):
        list(whole_records(store))


def sweep(folder: Path, code: str, *trials: Trial) -> tuple[SweepResult, set[str]]:
    """Run trials as the command does, by a backend whose source has this digest; its result and the
    keys stored afterwards."""
    with as_made_up(code):
        store = Store(folder)
        return swept(store, trials), set(store.keys())


def swept(store: Store, trials: Sequence[Trial]) -> SweepResult:
    """Run trials as the command does, on engines of their own."""
    with Fleet(open_session, None) as fleet:
        return running._sweep(store, trials, 60, fleet)


@contextlib.contextmanager
def as_made_up(code: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "open_session", open_session)
        patch.setattr(backend_pins, "code", lambda name, sources: {"backends/made_up.py": code})
        yield


def pinned(folder: Path) -> dict[str, str]:
    """What the key of the only trial that is stored pins."""
    store = Store(folder)
    ((_, stored),) = whole_records(store)
    return store.read_code(stored.record.environment["code"]) or {}


def test_other_code_runs_the_trial_again_and_takes_its_place(tmp_path: Path) -> None:
    first, kept = sweep(tmp_path, "one", make_trial())
    again, same = sweep(tmp_path, "one", make_trial())
    assert (first.statuses["ok"], again.stored, again.statuses.total()) == (1, 1, 0)
    assert same == kept
    assert pinned(tmp_path)["backends/made_up.py"] == "one"
    changed, now = sweep(tmp_path, "two", make_trial())
    assert (changed.stored, changed.statuses["ok"]) == (0, 1)
    assert len(now) == 1, "counted once, not as one repeat more"
    assert now.isdisjoint(kept)
    back, restored = sweep(tmp_path, "one", make_trial())
    assert (back.statuses["ok"], restored) == (1, kept)
    sweep(tmp_path, "one", make_trial())
    assert len(list((tmp_path / "code").iterdir())) == 1, "what no stored trial names goes"


def test_what_another_machine_or_backend_measured_stays(tmp_path: Path) -> None:
    """Its trial is the same, but nothing of this run takes its place."""
    store = Store(tmp_path)
    here = fingerprint(environment())
    for key, machine, backend in (("a", "elsewhere", "scripted"), ("b", here, "http")):
        foreign = replace(record(key, backend), environment={"fingerprint": machine})
        store.write(replace(foreign, trial=replace(make_trial(), backend=backend)))
    _, now = sweep(tmp_path, "one", make_trial())
    assert {"a", "b"} < now
    assert len(now) == 3


def test_an_older_record_left_beside_the_new_one_goes(tmp_path: Path) -> None:
    """As a kill between the two leaves it."""
    _, kept = sweep(tmp_path, "one", make_trial())
    older = Store(tmp_path).read(next(iter(kept)))
    Store(tmp_path).write(replace(older, key="older"))
    again, now = sweep(tmp_path, "one", make_trial())
    assert (again.stored, again.statuses.total()) == (1, 0)
    assert now == kept


def test_results_of_other_code_stay_until_the_new_ones_are_stored(tmp_path: Path) -> None:
    other, same = make_trial(seed=1), make_trial(seed=2)
    _, kept = sweep(tmp_path, "one", other, same)
    _, now = sweep(tmp_path, "two", same)
    assert len(now) == 2
    assert len(now & kept) == 1, "that of the trial which was not run again"


def test_other_exit_heads_run_the_trial_again_and_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads trained again in the same folder: the options are equal, the numbers are not."""
    for heads in ("first", "second"):
        named = {"mixed/heads.safetensors": heads}
        monkeypatch.setattr(backend_pins, "files", lambda *_, named=named: named)
        found, kept = sweep(tmp_path, "code", make_trial())
        assert (found.statuses["ok"], len(kept)) == (1, 1)
        assert pinned(tmp_path)["mixed/heads.safetensors"] == heads


def test_a_failure_takes_no_good_result_away(tmp_path: Path) -> None:
    _, kept = sweep(tmp_path, "one", make_trial())

    def failing(*_: Any, events: Callable[[Any], None], **__: Any) -> SweepResult:
        failed = replace(Store(tmp_path).read(min(kept)), status="failed")
        events(SimpleNamespace(record=failed))
        return SweepResult()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "run_sweep", failing)
        patch.setattr(SweepDisplay, "show", lambda *_: None)
        assert sweep(tmp_path, "two", make_trial())[1] == kept


@pytest.mark.parametrize(
    ("ceilings", "weights", "shape", "measured"),
    [
        (None, 2**30, False, ["once"]),
        (None, 2**20, True, []),
        ({"device": "cpu"}, 2**30, False, []),
        ({"device": "cpu"}, 2**30, True, ["once"]),
    ],
)
def test_what_a_step_can_take_at_least_is_known_before_a_model_of_some_size(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ceilings: Any,
    weights: int,
    shape: bool,
    measured: Any,
) -> None:
    """Of made-up weights each time: the best of all is kept."""
    machine = {**environment(), "ceilings": ceilings}
    asked: list[str] = []
    monkeypatch.setattr(running, "environment", lambda: machine)
    monkeypatch.setattr(wiring, "weight_bytes", lambda trial: weights)
    monkeypatch.setattr(doctor, "measure_apart", lambda: asked.append("once"))
    found, _ = sweep(tmp_path, "one", replace(make_trial(), model=Model("x", shape=shape)))
    assert (found.statuses["ok"], asked) == (1, measured)
