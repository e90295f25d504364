"""The command line as a user's script calls it: real processes, the scripted backend."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.ceilings import ceilings_from_json
from tests.support.cli_errors import own_errors
from tests.support.harness.command import decodebench, here, printed, refused, rows_of
from tests.support.own_cache import own_cache

EXPERIMENT: dict[str, Any] = {
    "name": "tiny",
    "model": "demo",
    "reference": "scripted",
    "backends": [{"name": "scripted", "ttft_s": 0.01, "itl_s": 0.002, "tokens": 8}],
    "workloads": ["gsm8k"],
    "load": [{"kind": "closed", "concurrency": 4}],
    "requests": 6,
    "repeats": 2,
    "slo": {"ttft_ms": 500, "tpot_ms": 50},
}


def write(folder: Path, **changes: Any) -> Path:
    data = {key: value for key, value in {**EXPERIMENT, **changes}.items() if value is not None}
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the tiny experiment has been run."""
    folder = tmp_path_factory.mktemp("cli")
    done = decodebench("run", write(folder), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_show_json_has_a_line_for_every_trial_with_the_contract_s_keys(finished: Path) -> None:
    told = printed("show", "runs/tiny", "--json", cwd=finished)
    found = [json.loads(line) for line in told.splitlines()]
    assert [row["repeat"] for row in sorted(found, key=lambda r: r["repeat"])] == [0, 1]
    identity = (
        "backend options provenance model workload source load repeat status valid invalid_reasons"
    )
    metrics = (
        "ttft_s_p50 ttft_s_p95 ttft_s_p99 ttft_s_mean tpot_s_p50 itl_s_p99 e2e_s_mean "
        "inner_token_latency_s output_tok_per_s decode_tok_per_s_mean goodput_req_per_s "
        "goodput_tok_per_s good_and_right_per_s consistency_ratio first_divergence noise_floor "
        "early_exit_rate early_prediction_rate rejection_rate tokens_per_step acceptance_rate "
        "full_passes_per_token speedup speedup_native consistency_native rouge_l_to_full "
        "rouge_l_to_label pass_at_1 exact_match exact_match_flexible peak_memory_bytes energy_j"
    )
    for row in found:
        assert [key for key in (identity + " " + metrics).split() if key not in row] == []
        assert row["provenance"] == "simulation"
        assert row["status"] == "ok"
        assert row["consistency_ratio"] == 1.0
        assert 0.010 <= row["ttft_s_p50"] < 10, "in seconds"
        assert row["pass_at_1"] is None


def test_a_second_run_finds_nothing_left_to_do(finished: Path) -> None:
    before = sorted((finished / "runs/tiny/trials").iterdir())
    stamps = [path.stat().st_mtime_ns for path in before]
    done = decodebench("run", "tiny.yaml", cwd=finished)
    assert done.returncode == 0, done.stderr
    assert "2 stored" in done.stdout
    assert [path.stat().st_mtime_ns for path in before] == stamps


def test_show_prints_a_table_and_report_a_page(finished: Path) -> None:
    table = decodebench("show", "runs/tiny", cwd=finished)
    assert table.returncode == 0, table.stderr
    assert "scripted" in table.stdout
    assert "simulation" in table.stdout
    done = decodebench("report", "runs/tiny", cwd=finished)
    assert done.returncode == 0, done.stderr
    page = finished / "runs/tiny/report.html"
    assert str(page.relative_to(finished)) in done.stdout
    assert "</html>" in page.read_text()


def test_a_reader_that_goes_away_is_no_failed_gate(finished: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = decodebench("show", "runs/tiny", cwd=finished, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_output_that_takes_nothing_is_one_line(finished: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = decodebench("show", "runs/tiny", cwd=finished, stdout=full.fileno())
    assert (done.returncode, done.stderr) == (2, "decodebench: No space left on device\n")


def test_a_locale_without_the_table_s_characters(finished: Path) -> None:
    done = decodebench("show", "runs/tiny", cwd=finished, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "scripted" in done.stdout


def test_a_page_that_cannot_be_written_is_one_line(finished: Path) -> None:
    shutil.copytree(finished / "runs/tiny", finished / "runs/blocked")
    (finished / "runs/blocked/report.html").unlink(missing_ok=True)
    (finished / "runs/blocked/report.html").mkdir()
    done = here("report", "runs/blocked", cwd=finished)
    assert done.returncode == 2
    assert done.stderr.startswith("decodebench: runs/blocked/")
    assert done.stderr.count("\n") == 1


def test_dry_run_lists_the_trials_and_writes_nothing(tmp_path: Path) -> None:
    done = here("run", write(tmp_path), "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("scripted") == 2
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_marks_what_is_stored(finished: Path) -> None:
    done = decodebench("run", "tiny.yaml", "--dry-run", cwd=finished)
    assert done.stdout.count("  stored\n") == 2, done.stderr


def test_a_failing_engine_costs_its_own_trials_and_the_exit_code_says_so(tmp_path: Path) -> None:
    broken = {"name": "scripted", "fault": "kill", "fault_after": 3}
    done = decodebench(
        "run", write(tmp_path, backends=[*EXPERIMENT["backends"], broken]), cwd=tmp_path
    )
    assert done.returncode == 4, done.stderr
    status = {json.dumps(row["options"]): row["status"] for row in rows_of("runs/tiny", tmp_path)}
    assert sorted(status.values()) == ["failed", "ok"]
    assert "Traceback" not in done.stderr + done.stdout


def test_an_experiment_whose_only_server_is_down_is_bad_input(tmp_path: Path) -> None:
    nobody = {"name": "http", "base_url": "http://127.0.0.1:9/v1"}
    done = decodebench("run", write(tmp_path, backends=[nobody], reference="http"), cwd=tmp_path)
    assert done.returncode == 2
    assert "no server answers there" in done.stderr
    assert own_errors(done.stderr).count("\n") == 1
    both = write(tmp_path, backends=[nobody, *EXPERIMENT["backends"]])
    done = decodebench("run", both, cwd=tmp_path)
    assert done.returncode == 4
    assert "(2 trials failed)" in done.stderr
    assert own_errors(done.stderr).count("\n") == 1


def test_only_and_fresh(tmp_path: Path) -> None:
    write(tmp_path, backends=[{"name": "scripted", "tokens": 4}], repeats=1)
    assert decodebench("run", "tiny.yaml", "--only", "scripted", cwd=tmp_path).returncode == 0
    stored = next((tmp_path / "runs/tiny/trials").glob("*.json"))
    first = stored.stat().st_mtime_ns
    assert decodebench("run", "tiny.yaml", "--fresh", cwd=tmp_path).returncode == 0
    assert stored.stat().st_mtime_ns > first
    wrong = refused("run", "tiny.yaml", "--only", "scriptd", cwd=tmp_path)
    assert wrong == "decodebench: --only: no backend 'scriptd'; did you mean 'scripted'?\n"


def test_fresh_never_deletes_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/thesis.txt").write_text("years of work")
    refused("run", write(tmp_path), "--out", "precious", "--fresh", cwd=tmp_path)
    assert (tmp_path / "precious/thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nothing.yaml"], "nothing.yaml: cannot be read: no such file or directory"),
        (["run", "tiny.yaml", "--onyl", "x"], "No such option: --onyl"),
        (["show", "nowhere"], "nowhere"),
        (["report", "nowhere"], "nowhere"),
        (["list", "backend"], "list: unknown list 'backend'; did you mean 'backends'?"),
        (["rum"], "No such command 'rum'. Did you mean 'run'?"),
    ],
)
def test_a_bad_command_is_one_line_and_exit_code_2(
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    write(tmp_path)
    told = refused(*arguments, cwd=tmp_path)
    assert told.startswith("decodebench: ")
    assert message in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "demoo"}, "demoo"),
        ({"workloads": [{"name": "gsm8k", "source": "gone.jsonl"}]}, "gone.jsonl"),
        ({"workloads": [{"name": "gsm8k", "mixx": "80:20"}]}, "did you mean 'mix'?"),
        ({"workloads": [{"name": "gsm8k", "source": "bad.jsonl"}]}, "bad.jsonl"),
        ({"load": [{"kind": "trace", "trace": "gone.txt"}]}, "gone.txt"),
        ({"backends": [{"name": "vllm", "engine": {"gpu_memory_utilisation": 0.5}}]}, "did you"),
    ],
)
def test_what_an_experiment_names_is_checked_before_any_trial_runs(
    tmp_path: Path,
    changes: dict[str, Any],
    message: str,
) -> None:
    (tmp_path / "bad.jsonl").write_text('{"question": "q"}\n')
    reference = changes.get("backends", EXPERIMENT["backends"])[0]["name"]
    file = write(tmp_path, reference=reference, **changes)
    told = refused("run", file, cwd=tmp_path)
    assert message in told
    assert told.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("what", ["backends", "workloads", "models"])
def test_list_json_is_an_object_per_line(tmp_path: Path, what: str) -> None:
    done = here("list", what, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert rows.keys() & {"vllm", "gsm8k", "demo"}
    if what == "models":
        classifier = rows["demo-sentiment"]
        assert (classifier["layers"], classifier["width"]) == (8, 128)
        assert 1e6 < classifier["parameters"] < 2e6
        assert classifier["bytes_per_token"] is None, "it decodes none"
    assert here("list", what, cwd=tmp_path).returncode == 0


def test_doctor_says_what_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = decodebench("doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {row["subject"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert found["python"]["state"] == "ok"
    assert found["sandbox"]["state"] == "ok", found["sandbox"]["detail"]
    assert found["native kernels"]["detail"]
    monkeypatch.setenv("CXX", "/bin/false")
    done = decodebench("doctor", "--json", cwd=tmp_path)
    found = {row["subject"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert found["native kernels"]["state"] == "missing"
    assert "false: failed" in found["native kernels"]["detail"]


def test_doctor_measures_ceilings_and_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of small sizes; those of the command take 20 s."""
    own_cache(monkeypatch, tmp_path / "cache")
    monkeypatch.setattr("backends.kernels.ceilings.SIZES", (2**20, 2**24))
    monkeypatch.setattr("backends.kernels.ceilings.PRODUCT", 512)
    done = here("doctor", "--bandwidth", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {row["subject"]: row["detail"] for row in map(json.loads, done.stdout.splitlines())}
    assert "GB/s" in found["read bandwidth"]
    assert "TFLOP/s" in found["bf16 products"]
    kept = ceilings_from_json(
        json.loads(Path(found["ceilings"].removeprefix("kept in ")).read_text())
    )
    assert kept is not None
    assert kept.read_at(2**30) > 1e8


def test_selftest_prints_truth_measured_and_bias(tmp_path: Path) -> None:
    done = decodebench("selftest", "--seconds", 1, "--json", cwd=tmp_path)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"scenario", "metric", "truth", "measured", "bias", "bound"} <= set(found[0])
    # on a busy machine a bias may be too large, and then the exit code says so
    assert done.returncode == (0 if all(row["within"] for row in found) else 1), done.stderr
