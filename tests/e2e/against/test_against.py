"""`run --against`: a real other version of the code beside this one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.core.closure import PACKAGES, ROOT
from tests.e2e.test_cli import write
from tests.support.harness.command import decodebench, here, refused

SCRIPTED = [{"name": "scripted", "ttft_s": 0.002, "itl_s": 0.004, "tokens": 16}]
SLOWER = "self._gaps_ns = [round(gap * 1.5e9) for gap in gaps]"


def checkout(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """A copy of this version with (file, text, other text) changed; the demo model is not copied
    again."""
    skip = shutil.ignore_patterns("__pycache__", "demo", "reference")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=skip)
    (folder / "backends/demo").symlink_to(ROOT / "backends/demo")
    for file, text, other in changes:
        path = folder / file
        content = path.read_text()
        assert text in content
        path.write_text(content.replace(text, other, 1))
    return folder


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where an experiment ran against a version whose steps take half as long again."""
    folder = tmp_path_factory.mktemp("against")
    gaps = "self._gaps_ns = [round(gap * 1e9) for gap in gaps]"
    checkout(folder / "other", ("backends/scripted.py", gaps, SLOWER))
    write(folder, backends=SCRIPTED, repeats=4, requests=6)
    run_both(folder, "ab")
    return folder


def run_both(folder: Path, out: str) -> None:
    done = decodebench("run", "tiny.yaml", "--against", "other", "--out", out, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"next: decodebench compare {out}/base {out}/new"


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("trials/*.json"))]


def test_the_other_version_s_code_ran_and_the_gate_sees_the_step(slower: Path) -> None:
    """A machine that stands still inside one load makes that much slower: not in three runs."""
    (slower / "gate.yaml").write_text("margins: [{metric: tpot_s, margin: 5%}]")
    told = ("--gate", "gate.yaml", "--allow", "unsound", "--json")
    for out in ("ab", "ab2", "ab3"):
        if out != "ab":
            run_both(slower, out)
        done = decodebench("compare", f"{out}/new", f"{out}/base", *told, cwd=slower)
        assert done.returncode in (0, 1, 3), done.stderr
        decision = json.loads(done.stdout)
        assert decision["side_by_side"]
        (row,) = decision["rows"]
        if done.returncode == 1 and 0.35 < (row["worse_by"] or 0) < 0.65:
            break
    assert done.returncode == 1
    assert row["repeats"] >= 2  # without those that a busy machine disturbed
    assert 0.35 < row["worse_by"] < 0.65
    assert here("compare", f"{out}/base", f"{out}/new", *told, cwd=slower).returncode == 0


def test_both_sides_ran_in_turns_in_one_invocation(slower: Path) -> None:
    found = [
        (record["environment"]["since_invocation_s"], side, record["trial"]["repeat"])
        for side in ("base", "new")
        for record in records(slower / "ab" / side)
    ]
    order = [(side, repeat) for _, side, repeat in sorted(found)]
    assert [repeat for _, repeat in order] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [side for side, _ in order[::2]] in (["base", "new"] * 2, ["new", "base"] * 2)
    whole = [record for side in ("base", "new") for record in records(slower / "ab" / side)]
    assert len({record["environment"]["invocation"] for record in whole}) == 1


def test_running_it_again_runs_nothing_and_a_lost_half_its_pair(slower: Path) -> None:
    again = ("run", "tiny.yaml", "--against", "other", "--out", "ab")
    done = decodebench(*again, cwd=slower)
    assert done.returncode == 0, done.stderr
    assert "trials: 8 stored;" in done.stdout
    next((slower / "ab/base/trials").glob("*.json")).unlink()
    planned = decodebench(*again, "--dry-run", cwd=slower)
    assert planned.stdout.count("  stored") == 3
    done = decodebench(*again, cwd=slower)
    assert "trials: 6 stored, 2 ok;" in done.stdout
    assert len(records(slower / "ab/base")) == len(records(slower / "ab/new")) == 4


def test_confirm_runs_what_is_doubtful_again_by_both_versions(slower: Path) -> None:
    """Two equal runs under a margin that no machine holds; the version that stands in for BASE at
    the confirmation is slower, which shows that its numbers are the ones that count. A machine that
    stands still inside one load hides it: not in three confirmations."""
    file = write(slower, backends=SCRIPTED, repeats=3, requests=4)
    for name in ("before", "after"):
        assert decodebench("run", file, "--out", name, cwd=slower).returncode == 0
    (slower / "tight.yaml").write_text("margins: [{metric: tpot_s, margin: 0.000001}]")
    asked = ("compare", "before", "after", "--gate", "tight.yaml", "--allow", "unsound", "--json")
    assert here(*asked, cwd=slower).returncode in (1, 3)
    for _ in range(3):
        shutil.rmtree(slower / "after/confirm", ignore_errors=True)
        done = decodebench(*asked, "--confirm", "--against", "other", cwd=slower)
        assert done.returncode in (0, 1, 3), done.stderr
        decision = json.loads(done.stdout.splitlines()[-1])
        if done.returncode == 0 and decision["rows"][0]["worse_by"] < -0.2:
            break
    assert done.returncode == 0, done.stderr
    assert decision["rows"][0]["worse_by"] < -0.2
    assert decision["side_by_side"]
    assert decision["notes"][-1].startswith("run once more, side by side: 1 cell; before: 1 ")
    assert [len(records(slower / "after/confirm" / side)) for side in ("base", "new")] == [3, 3]
    again = decodebench(*asked, "--confirm", "--against", "other", cwd=slower)
    assert "trials: 6 stored;" in again.stderr
    assert len(refused(*asked, "--against", "other", cwd=slower).splitlines()) == 1


def test_confirm_runs_what_is_missing_again_one_set_of_cells_after_another(slower: Path) -> None:
    """A trial that crashed, and a cell that is not there, were not run again; and the folder of a
    former call, with other cells or with half of one, was refused."""
    backends = [
        {**SCRIPTED[0], "label": label, "ttft_s": s} for label, s in (("a", 0.002), ("b", 0.003))
    ]
    file = write(slower, backends=backends, repeats=2, requests=4)
    for name in ("whole", "part"):
        assert decodebench("run", file, "--out", name, cwd=slower).returncode == 0
    (slower / "answers.yaml").write_text("margins: [{metric: consistency, margin: 0.01}]")
    asked = ("compare", "whole", "part", "--gate", "answers.yaml", "--json", "--confirm")
    told = "run once more, side by side: 1 cell; before: 1 missing"

    def confirmed_without(seconds: float) -> None:
        kept = {path: path.read_bytes() for path in (slower / "part/trials").iterdir()}
        for path in (slower / "part/trials").glob("*.json"):
            if json.loads(path.read_text())["trial"]["options"]["ttft_s"] == seconds:
                for own in (slower / "part/trials").glob(f"{path.stem}*"):
                    own.unlink()
        done = decodebench(*asked, "--against", "other", cwd=slower)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["notes"][-1] == told
        for path, content in kept.items():
            path.write_bytes(content)

    confirmed_without(0.003)
    for side in ("base", "new"):
        path = next((slower / "part/confirm" / side / "trials").glob("*.json"))
        path.unlink()
    confirmed_without(0.002)
    one = write(slower, backends=backends[:1], repeats=2, requests=4)
    assert decodebench("run", one, "--out", "one", cwd=slower).returncode == 0
    done = decodebench("compare", "whole", "one", *asked[3:], cwd=slower)
    assert done.returncode == 1, "what its experiment does not have cannot be run again"
    assert not (slower / "one/confirm").exists()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git here to take a commit from")
def test_a_commit_of_this_checkout_is_unpacked_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = write(tmp_path, backends=SCRIPTED, repeats=1, requests=4)
    done = decodebench("run", file, "--against", "HEAD", cwd=tmp_path)
    if "has other fields than ours" in done.stderr:  # the commit under test changes the nouns
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    (root,) = (tmp_path / "cache/decodebench/versions").iterdir()
    assert (root / "harness/measure/child.py").is_file()
    (base,) = records(tmp_path / "runs/tiny-against/base")
    assert base["environment"]["commit"] == root.name[:12]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--against", "nowhere"), "'nowhere': no such commit in"),
        (("--against", "empty"), "expected a checkout of decodebench (harness/measure/child.py"),
        (("--against", "fields"), "its TrialJob has other fields than ours (limit_s, time_limit_s"),
        (("--against", "broken"), "cannot be asked what it is (SyntaxError"),
        (("--against", "same", "--executor", "ray"), "--against: expected --executor local"),
        (("--against", "same", "--out", "one"), "one: a run of one version"),
        (("--against", "same", "--only", "vlm"), "no backend 'vlm'"),
    ],
)
def test_bad_input_is_one_line(versions: Path, arguments: tuple[str, ...], words: str) -> None:
    done = here("run", "tiny.yaml", *arguments, cwd=versions)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (versions / "runs").exists()


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with versions that cannot be run beside this one."""
    folder = tmp_path_factory.mktemp("versions")
    (folder / "empty").mkdir()
    (folder / "one").mkdir()
    (folder / "one/experiment.yaml").write_text("name: one")
    checkout(folder / "same")
    messages = "harness/measure/messages.py"
    limit = ("    time_limit_s: float | None\n", "    limit_s: float | None\n")
    checkout(folder / "fields", (messages, *limit))
    checkout(folder / "broken", (messages, "class TrialJob:", "class TrialJob"))
    write(folder, backends=SCRIPTED)
    return folder


def test_a_bundled_model_that_is_another_one_there_is_refused(tmp_path: Path) -> None:
    other = checkout(tmp_path / "other")
    (other / "backends/demo").unlink()
    shutil.copytree(ROOT / "backends/demo", other / "backends/demo")
    config = next((other / "backends/demo").rglob("config.json"))
    config.write_text(config.read_text() + "\n")
    told = refused("run", write(tmp_path, backends=SCRIPTED), "--against", "other", cwd=tmp_path)
    assert "the bundled model 'demo' is another one in" in told
