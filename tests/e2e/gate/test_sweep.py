"""The load kind ``sweep``: real processes, a scripted server that serves one at a time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from results.metrics.arrays import from_file
from results.store.folder import Store
from tests.e2e.test_cli import write
from tests.support.harness.command import decodebench, here, refused

SERVICE_S = 0.02
SERVER = {"name": "scripted", "capacity": 1, "itl_s": 0.0, "tokens": 1}
TWO = [
    {**SERVER, "label": "slow", "ttft_s": SERVICE_S},
    {**SERVER, "label": "quick", "ttft_s": SERVICE_S / 4},
]
SWEEP = {"kind": "sweep", "points": 5}


def experiment(folder: Path, **changes: Any) -> Path:
    asked = {"backends": TWO, "load": [SWEEP], "requests": 8, "repeats": 1, "slo": None, **changes}
    return write(folder, **asked)


def run_in_time(file: Path) -> str:
    """What the sweep into the folder `s` beside the file printed. A client that is late ends a
    curve, and shows nothing of a system: five such runs are told as a skip."""
    folder = file.parent
    for _ in range(5):
        shutil.rmtree(folder / "s", ignore_errors=True)
        done = decodebench("run", file, "--out", "s", cwd=folder, ahead=True)
        assert done.returncode == 0, done.stderr
        if not any("the client was late" in one["ended"] for one in systems(folder)):
            return done.stdout
    pytest.skip("this machine stalled the client in each of five sweeps")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run of two systems, `tiny.yaml` and the output beside it."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "output").write_text(run_in_time(experiment(folder)))
    return folder


def systems(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "s/sweep.json").read_text())["systems"]
    return found


def trials(folder: Path) -> int:
    return sum(len(one["points"]) for one in systems(folder))


def test_each_system_goes_from_idle_to_its_own_saturation(swept: Path) -> None:
    slow, quick = systems(swept)
    for one, service_s in ((slow, SERVICE_S), (quick, SERVICE_S / 4)):
        idle, *loaded = one["points"]
        assert idle["rate"] is None
        assert 2 <= len(loaded) <= 5, "fewer where a busy machine was late"
        # nearly idle first, and a capacity of 1 / service that a busy machine may blur
        assert 0.2 / service_s < loaded[0]["rate"] < 0.65 / service_s
        assert one["high_per_s"] is None or 0.2 / service_s < one["high_per_s"] < 2.5 / service_s
        if one["low_per_s"] and one["high_per_s"]:
            assert one["low_per_s"] < one["high_per_s"]
    lines = (swept / "output").read_text().splitlines()
    assert any(line.startswith("slow, gsm8k: saturated ") for line in lines)
    assert f"trials: {trials(swept)} ok; results in s" in lines


def test_the_same_command_measures_nothing_again(swept: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in (swept / "s/trials").iterdir()}
    kept = (swept / "s/sweep.json").read_bytes()
    done = decodebench("run", "s/experiment.yaml", "--out", "s", cwd=swept, ahead=True)
    assert done.returncode == 0, done.stderr
    assert f"trials: {trials(swept)} stored" in done.stdout
    assert before == {p.name: p.stat().st_mtime_ns for p in (swept / "s/trials").iterdir()}
    assert kept == (swept / "s/sweep.json").read_bytes()


def test_sweeping_one_backend_keeps_the_others(swept: Path) -> None:
    answer = json.loads((swept / "s/sweep.json").read_text())
    other = {**answer["systems"][0], "backend": "gone"}
    changed = {**answer, "systems": [other, *answer["systems"]]}
    (swept / "s/sweep.json").write_text(json.dumps(changed))
    done = decodebench(
        "run", "tiny.yaml", "--out", "s", "--only", "scripted", cwd=swept, ahead=True
    )
    assert done.returncode == 0, done.stderr
    assert [one["backend"] for one in systems(swept)] == ["gone", "scripted", "scripted"]
    assert decodebench("run", "tiny.yaml", "--out", "s", cwd=swept, ahead=True).returncode == 0
    assert [one["backend"] for one in systems(swept)] == ["scripted", "scripted"]


def test_the_page_has_its_curve_and_what_it_says_as_its_verdict(swept: Path) -> None:
    assert here("report", "s", cwd=swept).returncode == 0
    text = (swept / "s/report.html").read_text()
    section = text.partition('<section id="swept">')[2].partition("</section>")[0]
    assert section.count("<svg") >= 4
    assert "Time to first token (ms) over requests per second" in section
    assert "no less than what saturated slow" in section
    verdict = text.partition('<section id="verdict">')[2].partition("</section>")[0]
    assert "no less than what saturated slow" in verdict
    assert "took each system from idle to saturation" in verdict
    assert '<details class="section" open>' in section
    assert '<section id="results">' not in text


@pytest.mark.parametrize("redraw", [False, True])
def test_repeats_measure_the_same_rates_again(tmp_path: Path, redraw: bool) -> None:
    sweep = SWEEP | {"points": 3, "redraw": redraw}
    file = experiment(tmp_path, backends=TWO[1:], load=[sweep], repeats=2, requests=4)
    plan = here("run", file, "--dry-run", cwd=tmp_path)
    assert "of each system a sweep of 3 rates" in plan.stdout, plan.stderr
    run_in_time(file)
    (one,) = systems(tmp_path)
    assert {len(point["keys"]) for point in one["points"]} == {2}
    assert 3 <= len(one["points"]) <= 4, "one less where a busy machine was late"
    store = Store(tmp_path / "s")
    for point in one["points"][1:]:
        first, again = (gaps_ns(store, key) for key in point["keys"])
        assert (first == again) is not redraw


def gaps_ns(store: Store, key: str) -> list[int]:
    """Between the arrivals."""
    file = store.open_file(key, store.read_stored(key).payload)
    due_ns = from_file(file).scheduled_ns
    return [int(at - due_ns[0]) for at in due_ns]


def test_a_server_that_fails_is_failed_trials(tmp_path: Path) -> None:
    broken = {**TWO[0], "fault": "raise", "label": "broken"}
    file = experiment(tmp_path, backends=[broken], load=[SWEEP])
    done = decodebench("run", file, "--out", "s", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert "a trial failed" in done.stdout


@pytest.mark.parametrize(
    ("load", "asked", "words"),
    [
        ([{"kind": "sweep", "points": 2}], [], "points: expected a whole number of at least 3"),
        (
            [{"kind": "sweep", "rate": 2}],
            [],
            "load[0].rate: unknown key; expected one of: kind, points",
        ),
        ([{"kind": "sweep"}, "sweep"], [], "load[1]: a second 'sweep'"),
        (["sweeps"], [], "unknown load 'sweeps'; did you mean 'sweep'"),
        (["sweep"], ["--executor", "ray"], "expected --executor local"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path,
    load: list[Any],
    asked: list[str],
    words: str,
) -> None:
    told = refused("run", experiment(tmp_path, load=load), *asked, cwd=tmp_path)
    assert words in told
    assert len([line for line in told.splitlines() if "warning" not in line]) == 1
    assert not (tmp_path / "runs").exists()


def test_quick_sweeps_without_a_file(tmp_path: Path) -> None:
    done = here(
        "quick", "--model", "demo", "--workload", "synthetic", "--backend", "scripted", "--sweep",
        "--dry-run", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "0 trials; nothing was run" in done.stdout
    stored = yaml.safe_load(experiment(tmp_path).read_text())
    assert stored["load"] == [SWEEP]
