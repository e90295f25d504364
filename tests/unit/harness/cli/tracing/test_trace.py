"""The command `trace`: which trials a trace is made of, and what it says is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cli.main import app
from harness.core.decisions import Decisions
from harness.core.errors import UserError
from harness.core.nouns import REPLAYED, BackendInfo, FinishReason, Generation, Load, TrialRecord
from results.store.columns import from_table, to_table
from results.store.folder import Store
from results.traces.file import read_trace
from tests.support.results.label_runs import label_run
from tests.support.results.make_trials import generation, trial

EXITS = {"exit_layers": [2, 4], "gamma": [0.5, 0.7]}


def decided(count: int) -> Decisions:
    """At each token the first exit is sure and right, the second is not asked."""
    nan = float("nan")
    return Decisions(
        positions=list(range(count)),
        confidence=[0.75, nan] * count,
        agrees=[1, -1] * count,
        drafted=[count - 1],
        accepted=[count - 1],
        batch=[3],
    )


def answers(recorded: bool) -> list[Generation]:
    found = []
    cases: list[tuple[str, int, FinishReason]] = [("r1", 4, "stop"), ("r2", 5, "length")]
    for name, tokens, finished in [*cases, ("r3", 1, "error")]:
        one = generation(name, [10, 20], [1, tokens - 1], finished=finished)
        one.telemetry = {"layers_total": 8.0 * (tokens - 1), "drafted": 2.0}
        if recorded and finished != "error":
            one.decisions = decided(tokens - 1)
        found.append(one)
    return found


def record(name: str, *, recorded: bool = False, repeat: int = 0, **options: object) -> TrialRecord:
    asked = trial(name, options=options, repeat=repeat, load=Load("closed", concurrency=1))
    info = BackendInfo(name, "1", "re-implementation", {**options, **EXITS}, lossless=True)
    generations = answers(recorded)
    return TrialRecord(asked.key("x"), asked, {}, "ok", info, generations=generations)


def stored(folder: Path, *records: TrialRecord) -> Path:
    store = Store(folder)
    store.write_experiment("name: x")
    store.write_prompts(
        "c0ffee", [{"request_id": "r1", "prompt_text": "", "prompt_tokens": 9, "answer": ""}]
    )
    for one in records:
        store.write(one)
    return folder


def traced(folder: Path, *arguments: str) -> tuple[str, str]:
    """What the command says, and where it complains."""
    asked = ["trace", str(folder), "--out", str(folder / "t"), *arguments]
    done = CliRunner().invoke(app, asked)
    if done.exception is not None:
        raise done.exception
    return done.stdout, done.stderr


def test_recorded_decisions_become_a_trace(tmp_path: Path) -> None:
    stored(
        tmp_path, record("adadecode", recorded=True), record("adadecode", repeat=1, recorded=True)
    )
    told, complaints = traced(tmp_path)
    assert told == f"trace: {tmp_path / 't'}: 2 requests of adadecode\n"
    assert complaints == "1 requests that did not end well are left out\n"
    found = read_trace(tmp_path / "t")
    assert (found.method, found.depth, found.exits) == ("adadecode", 8, (2, 4))
    assert found.thresholds == (0.5, 0.7)
    assert (found.model, found.workloads) == ("demo", ("gsm8k",))
    row = found.row_for("r2", 9, ignore_eos=False)
    assert (row.answer_tokens, row.finished, row.prompt_tokens) == (5, "length", -1)
    assert found.rows[0].prompt_tokens == 9
    assert row.positions.tolist() == [0, 1, 2, 3]
    assert row.confidence[0, 0] == 0.75
    assert row.agrees.tolist() == [[1, -1]] * 4
    assert (row.drafted.tolist(), row.accepted.tolist(), row.batch.tolist()) == ([3], [3], [3])


def test_a_run_without_them_tells_lengths_and_passes(tmp_path: Path) -> None:
    stored(tmp_path, record("adadecode"))
    _, complaints = traced(tmp_path)
    assert complaints.splitlines()[1] == (
        "no decisions were recorded: lengths and passes alone, no confidences; run adadecode with "
        "'record: true' for them"
    )
    found = read_trace(tmp_path / "t")
    assert (found.exits, found.depth) == ((), 8)
    row = found.rows[1]
    assert (row.drafted.tolist(), row.accepted.tolist(), row.batch.tolist()) == ([-1], [3], [-1])


@pytest.mark.parametrize("name", ["adadecode", "own-early-exit", "tetris", "speculative"])
def test_a_run_in_which_nothing_could_be_decided_is_not_told_to_record(
    name: str, tmp_path: Path
) -> None:
    """It was told to set what was set."""
    one = record(name, record=True)
    alone = generation("r1", [10], [1], finished="length")
    stored(tmp_path, replace(one, generations=[alone]))
    assert traced(tmp_path)[1] == (
        "no decisions were recorded: lengths and passes alone, no confidences; no answer has a "
        "second token, the first that could leave early or be drafted\n"
    )
    stored(tmp_path, one)
    assert traced(tmp_path)[1].endswith("no confidences\n"), "nobody knows why"


def test_what_a_pipeline_that_verifies_replays_is_recorded_by_adadecode(tmp_path: Path) -> None:
    stored(tmp_path, record("tetris", verify=True))
    assert "run adadecode with 'record: true'" in traced(tmp_path)[1]


def test_several_of_a_kind_have_to_be_told_apart(tmp_path: Path) -> None:
    records = [record("adadecode", gamma=gamma, recorded=True) for gamma in (0.5, 0.7)]
    stored(tmp_path, record("vllm"), *records)
    with pytest.raises(UserError, match="several backends; give --backend: "):
        traced(tmp_path)
    with pytest.raises(UserError, match=r"--backend: 'vlm' is not in .*; did you mean 'vllm'\?"):
        traced(tmp_path, "--backend", "vlm")
    ours = ("--backend", "adadecode")
    with pytest.raises(UserError, match=r"several variants; give --option NAME=VALUE: gamma=0"):
        traced(tmp_path, *ours)
    with pytest.raises(UserError, match=r"no variant with gamma=0.6; gamma is 0.[57] or 0.[57]"):
        traced(tmp_path, *ours, "--option", "gamma=0.6")
    with pytest.raises(UserError, match=r"no option 'gama'; did you mean 'gamma'\?"):
        traced(tmp_path, *ours, "--option", "gama=0.7")
    with pytest.raises(UserError, match=r"no variant with max_drafts=3; max_drafts is null"):
        traced(tmp_path, *ours, "--option", "max_drafts=3")
    with pytest.raises(UserError, match="expected NAME=VALUE, got 'gamma'"):
        traced(tmp_path, *ours, "--option", "gamma")
    traced(tmp_path, *ours, "--option", "gamma=0.7")
    assert read_trace(tmp_path / "t").settings["gamma"] == [0.5, 0.7]


def test_variants_that_recorded_nothing_are_marked(tmp_path: Path) -> None:
    stored(
        tmp_path,
        record("adadecode", gamma=0.5),
        record("adadecode", gamma=0.7, record=True, recorded=True),
    )
    with pytest.raises(UserError, match="several variants") as raised:
        traced(tmp_path)
    told = str(raised.value).partition("NAME=VALUE: ")[2].split("; ")
    assert sorted(told) == ["gamma=0.5 record=null (not recorded)", "gamma=0.7 record=true"]


def test_what_ran_before_the_experiment_was_changed_is_left_out(tmp_path: Path) -> None:
    """The store keeps it, and it has the same repeats."""
    now = record("adadecode", recorded=True)
    records = [replace(now, started_at="2026-11-02T00:00:00+00:00")]
    other = replace(now.trial.model, checksum="another")
    for changes in ({"max_new_tokens": 3}, {"seed": 7}, {"model": other}):
        asked = replace(now.trial, **changes)
        old = replace(now, key=asked.key("x"), trial=asked, started_at="2026-11-01T00:00:00+00:00")
        records.append(replace(old, generations=answers(True)[:1]))
    stored(tmp_path, *records)
    told, complaints = traced(tmp_path)
    assert "2 requests of adadecode" in told
    assert complaints.splitlines()[0] == (
        "3 of 4 trials left out: asked otherwise than the latest (model, seed, max_new_tokens)"
    )
    assert read_trace(tmp_path / "t").checksum == now.trial.model.checksum


def test_a_replay_is_never_traced(tmp_path: Path) -> None:
    one = record("vllm", replay="demo")
    assert one.backend is not None
    stored(tmp_path, replace(one, backend=replace(one.backend, provenance=REPLAYED)))
    with pytest.raises(UserError, match="no trial in it that ended well and decided for itself"):
        traced(tmp_path)


def test_labels_are_no_answers_to_trace(tmp_path: Path) -> None:
    """All of its requests ended well, though none has a token."""
    label_run(tmp_path)
    with pytest.raises(UserError, match="answers to sentiment are labels; expected a run of text"):
        traced(tmp_path, "--backend", "classifier")


def test_decisions_are_stored_and_read(tmp_path: Path) -> None:
    """A file without any is as it always was."""
    told, silent = record("adadecode", recorded=True), record("vllm")
    store = Store(stored(tmp_path, told, silent))
    found = [g.decisions for g in store.read(told.key).generations]
    wanted = [g.decisions for g in told.generations]
    assert repr(found) == repr(wanted), "NaN equals nothing"
    assert found[2] is None
    names = store.open_file(silent.key, store.read_stored(silent.key).payload).names
    assert not [name for name in names if name.startswith("decided.")]
    names = store.open_file(told.key, store.read_stored(told.key).payload).names
    assert len([name for name in names if name.startswith("decided.")]) == 8


def test_a_file_of_before_chains_were_recorded_has_none(tmp_path: Path) -> None:
    told = record("speculative", recorded=True)
    told.generations[0].decisions = Decisions(drafted=[3], accepted=[2], batch=[1], asked=[4])
    table = to_table(told)
    assert from_table(table)[0][0].decisions == told.generations[0].decisions
    older = from_table(table.drop_columns(["decided.asked"]))[0][0].decisions
    assert older == Decisions(drafted=[3], accepted=[2], batch=[1])
