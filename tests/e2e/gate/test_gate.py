"""The gate as a CI calls it: real runs of the scripted backend, exit codes, bad input."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

import results
from tests.e2e.test_cli import EXPERIMENT, write
from tests.support.harness.command import decodebench, here, refused

(QUICK,) = EXPERIMENT["backends"]
HOW = ("--allow", "unsound")
"""The machine that runs the tests may be busy."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs `base` and `other`, whose answers differ in length."""
    folder = tmp_path_factory.mktemp("gate")
    for name, limit in (("base", None), ("same", None), ("other", 6)):
        backends = [{"name": "scripted", "ttft_s": 0.01, "itl_s": 0.002}]
        file = write(folder, backends=backends, repeats=3, max_new_tokens=limit or 8)
        done = decodebench("run", file, "--out", name, cwd=folder)
        assert done.returncode == 0, done.stderr
    (folder / "answers.yaml").write_text("margins: [{metric: consistency, margin: 0.01}]")
    return folder


def test_equal_answers_pass_and_every_output_says_so(runs: Path) -> None:
    where = ("--gate", "answers.yaml", "--markdown", "gate.md", "--junit", "gate.xml")
    done = decodebench("compare", "base", "same", *where, "--json", cwd=runs)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "pass"
    assert "decodebench compare: pass" in (runs / "gate.md").read_text()
    assert ElementTree.parse(runs / "gate.xml").getroot().attrib["failures"] == "0"


def test_other_answers_fail(runs: Path) -> None:
    allowed = ("--allow", "max_new_tokens")
    done = decodebench("compare", "base", "other", "--gate", "answers.yaml", *allowed, cwd=runs)
    assert done.returncode == 1, done.stderr
    assert "lossless, yet 18 of 18 answers are not BASE's" in done.stdout


def test_a_store_keeps_a_baseline_for_this_machine(runs: Path) -> None:
    compare = partial(here, "compare", "--baseline-store", "kept", cwd=runs)
    missing = compare("same")
    assert missing.returncode == 2
    assert "no baseline of this machine" in missing.stderr
    assert compare("--update", "base", *HOW).returncode == 0
    done = compare("same", "--gate", "answers.yaml")
    assert done.returncode == 0, done.stderr
    itself = compare("base", "--gate", "answers.yaml")
    assert itself.returncode == 2
    assert "base: NEW is BASE: these trials are those of kept/" in itself.stderr


def test_a_baseline_that_shows_nothing_does_not_replace_one(tmp_path: Path) -> None:
    """With one repeat every later comparison would be inconclusive."""
    for name, repeats in (("good", 3), ("one", 1)):
        file = write(tmp_path, repeats=repeats)
        assert decodebench("run", file, "--out", name, cwd=tmp_path).returncode == 0
    store = ("compare", "--baseline-store", "kept", "--update")
    update = partial(here, *store, cwd=tmp_path)
    assert update("good", *HOW).returncode == 0
    (record,) = (tmp_path / "kept").iterdir()
    before = record.read_bytes()
    turned_away = update("one")
    assert turned_away.returncode == 2
    assert "1 of 1 cells have fewer than 2 sound repeats (gsm8k" in turned_away.stderr
    assert record.read_bytes() == before
    assert update("one", *HOW).returncode == 0


def test_what_is_not_compared_is_in_the_files_of_a_ci_too(runs: Path) -> None:
    where = ("--markdown", "refused.md", "--junit", "refused.xml")
    done = here("compare", "base", "other", *where, cwd=runs)
    assert done.returncode == 2
    assert "decodebench compare: not compared" in (runs / "refused.md").read_text()
    assert ElementTree.parse(runs / "refused.xml").getroot().attrib["errors"] == "1"


def test_a_record_with_a_cell_that_failed_is_written_with_a_warning(tmp_path: Path) -> None:
    backends = [{**QUICK, "label": "ill", "fault": "start"}, QUICK]
    file = write(tmp_path, backends=backends, repeats=2)
    for name in ("ill", "again"):
        assert decodebench("run", file, "--out", name, cwd=tmp_path).returncode == 4
    compare = partial(here, "compare", cwd=tmp_path)
    done = compare("ill", "--record", "record")
    assert done.returncode == 0, done.stderr
    warning = "warning: 1 of 2 cells have no trial that ended well, and nothing will be shown of"
    assert warning in done.stderr
    compared = compare("record", "again", *HOW)
    assert compared.returncode == 3, "it failed in both: nothing is shown of it"
    assert "no trial of BASE ended well: " in compared.stdout


def test_a_record_of_a_part_of_its_experiment_is_written_with_a_warning(tmp_path: Path) -> None:
    """As of a run that was stopped before its second backend began."""
    backends = [{**QUICK, "ttft_s": seconds} for seconds in (0.01, 0.02)]
    file = write(tmp_path, backends=backends, repeats=2)
    assert decodebench("run", file, "--out", "part", cwd=tmp_path).returncode == 0
    for stored in results.load(tmp_path / "part").stored:
        if stored.record.trial.options["ttft_s"] == 0.02:
            for path in (tmp_path / "part/trials").glob(f"{stored.record.key}*"):
                path.unlink()
    done = here("compare", "part", "--record", "record", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = "1 of 2 cells of the experiment have no trial, and will not be gated"
    assert told in done.stderr
    update = partial(here, "compare", "part", "--baseline-store", "kept", "--update", cwd=tmp_path)
    refusal = update()
    assert (refusal.returncode, (tmp_path / "kept").exists()) == (2, False)
    assert f"part: {told}; not stored" in refusal.stderr
    assert update(*HOW).returncode == 0


def test_bad_input_is_one_line_and_exit_2(runs: Path) -> None:
    (runs / "bad.yaml").write_text("margins: [{metric: tpot, margin: 0.05}]")
    for arguments, words in (
        (("base", "nowhere"), "no such file or folder"),
        (("base",), "expected BASE and NEW"),
        (("base", "other"), "they differ in max_new_tokens (8 / 6)"),
        (("base", "same", "--allow", "cpus"), "unknown field 'cpus'; did you mean 'cpu'?"),
        (("base", "same", "--gate", "bad.yaml"), "unknown metric 'tpot'; did you mean 'tpot_s'?"),
        (("base", "./base"), "base and base are the same: expected two runs"),
        (("base", "--record", "r", "--allow", "cpu"), "--allow: means nothing beside --record"),
        (
            ("base", "--record", "r", "--baseline-store", "s"),
            "--baseline-store: means nothing beside --record, which compares nothing",
        ),
        (
            ("base", "--baseline-store", "s", "--update", "--gate", "answers.yaml"),
            "--gate: means nothing beside --update, which compares nothing",
        ),
    ):
        told = refused("compare", *arguments, cwd=runs)
        assert words in told
        assert len(told.splitlines()) == 1


def test_calibrated_margins_can_be_read_again(runs: Path) -> None:
    found = here("gate", "calibrate", "base", *HOW, "--json", cwd=runs)
    assert found.returncode == 0, found.stderr
    held = [json.loads(line) for line in found.stdout.splitlines()]
    assert [one["metric"] for one in held] == ["tpot_s", "ttft_s"]
    asked = ("compare", "base", "same", "--gate", "gate.yaml", *HOW)
    done = here(*asked, cwd=runs)
    assert done.returncode in (0, 3), done.stderr


def test_an_experiment_is_run_for_its_margins(runs: Path) -> None:
    experiment = next(path for path in runs.glob("*.yaml") if "backends" in path.read_text())
    asked = ("gate", "calibrate", experiment.name, "--repeats", "3", "--out", "held.yaml")
    found = decodebench(*asked, *HOW, cwd=runs)
    assert found.returncode == 0, found.stderr
    assert "margins: held.yaml" in found.stdout
    (folder,) = (runs / "runs").glob("*-calibration")
    assert len(list((folder / "trials").glob("*.json"))) >= 3, "a disturbed one is measured again"
    assert "tpot_s" in (runs / "held.yaml").read_text()
