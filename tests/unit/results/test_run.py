"""The run as a whole: frames, and a cache that is never trusted when stale."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import results
from harness.core.closure import ROOT, Sources
from harness.core.errors import UserError
from harness.core.nouns import Slo
from results import frame
from results import rows as metrics
from results.store import cache
from tests.support.results.make_trials import a_record, generation, record, trial


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = results.Store(tmp_path / "run")
    store.write_experiment("{name: t, reference: vllm}")
    store.write(a_record())
    texts = {"r0": "other"}
    fast = [generation("r0", [10, 15, 22.5], [1, 2, 1], ids=[0, 1, 2, 9]), generation("x", [30])]
    store.write(record(trial("fast"), fast, texts=texts))
    store.write(record(trial("dead"), [], status="out_of_memory", error="killed"))
    store.write_prompts("c0ffee", [{"request_id": "r0", "prompt_text": "?", "answer": "!"}])
    return tmp_path / "run"


def fresh_rows(folder: Path) -> object:
    """Computed anew, past the cache."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    return results.load(folder).evaluated


def test_frames_are_tidy(folder: Path) -> None:
    run = results.load(folder)
    assert sorted(run.trials["backend"]) == ["dead", "fast", "vllm"]
    assert len(run.trials) == len(metrics.summaries(run))
    requests: Any = run.requests.set_index(["backend", "request_id"])
    assert list(run.requests.columns) == list(frame.request_columns())
    assert len(requests) == 5
    ours = requests.loc[("fast", "r0")]
    assert (ours["ttft_s"], ours["e2e_s"], ours["n_tokens"]) == (0.010, 0.0225, 4)
    assert ours["tpot_s"] == pytest.approx(0.0125 / 3)
    assert (ours["equal_to_reference"], ours["first_divergence"]) == (0.0, 3.0)
    assert ours["speedup"] == pytest.approx(25 / 12.5)
    assert ours["text"] == "other"
    broken = requests.loc[("vllm", "r1")]
    assert (broken["finished"], broken["error"]) == ("error", "connection dropped")
    assert np.isnan(broken["ttft_s"])
    assert broken["meets_slo"] is pd.NA, "no objective"
    assert json.loads(requests.loc[("vllm", "r0"), "telemetry"]) == {"accepted": 2, "drafted": 4}
    assert np.isnan(requests.loc[("fast", "x"), "equal_to_reference"])


def test_columns_can_be_added_without_a_warning(folder: Path) -> None:
    """Warnings are errors here."""
    assert "new" in results.load(folder).trials.assign(new=1)


def test_times_count_from_the_first_arrival_and_equal_answers_have_no_divergence(
    tmp_path: Path,
) -> None:
    store = results.Store(tmp_path)
    store.write_experiment("{name: t, reference: vllm}")
    asked = [generation(f"r{t}", [t + 10, t + 30], scheduled_ms=t) for t in (500, 700)]
    told = {"top2_margin@1": 0.25}
    known = generation("r700", [710, 730], ids=[0, 9], scheduled_ms=700, telemetry=told)
    store.write(record(trial("vllm"), [asked[0], known]))
    store.write(record(trial("fast"), asked))
    store.write(record(trial("other"), [asked[0], generation("r700", [710, 730], ids=[8, 9])]))
    found: Any = results.load(tmp_path).requests.set_index(["backend", "request_id"])
    assert found.loc["fast", "scheduled_s"].tolist() == pytest.approx([0.0, 0.2])
    assert np.isnan(found.loc[("fast", "r500"), "first_divergence"])
    assert found.loc[("fast", "r700"), "first_divergence"] == 1.0
    assert found.loc[("fast", "r700"), "first_divergence_margin"] == 0.25
    assert np.isnan(found.loc[("fast", "r500"), "first_divergence_margin"])
    assert np.isnan(found.loc[("other", "r700"), "first_divergence_margin"]), "not told at 0"
    assert found.loc[("fast", "r500"), "speedup"] == pytest.approx(1.0)
    store.write(record(trial("fast", repeat=1), asked))
    requests = results.load(tmp_path).requests
    later = requests[requests["repeat"] == 1]
    assert later["speedup"].isna().all(), "speed is not compared across repeats"
    assert later["equal_to_reference"].tolist() == [1.0, 0.0]
    commits = results.load(tmp_path).commits
    assert commits["t_s"].min() == pytest.approx(0.010)


def test_commits_are_one_row_each(folder: Path) -> None:
    run = results.load(folder)
    commits = run.commits
    assert list(commits.columns) == list(frame.COMMIT_COLUMNS)
    (key,) = run.trials.loc[run.trials["backend"] == "fast", "key"]
    own = commits[(commits["key"] == key) & (commits["request_id"] == "r0")]
    assert own["index"].tolist() == [0, 1, 2]
    assert own["t_s"].tolist() == pytest.approx([0.010, 0.015, 0.0225])
    assert own["tokens"].tolist() == [1, 2, 1]
    assert len(commits) == 3 + 1 + 3 + 1
    assert commits["tokens"].sum() == run.requests["n_tokens"].sum()


def test_prompts(folder: Path) -> None:
    prompts = results.load(folder).prompts
    assert prompts.to_dict("records") == [
        {
            "workload": "gsm8k",
            "workload_checksum": "c0ffee",
            "request_id": "r0",
            "prompt_text": "?",
            "answer": "!",
        }
    ]


def test_frames_of_a_run_where_everything_failed_have_their_columns(tmp_path: Path) -> None:
    results.Store(tmp_path).write(record(trial(), [], status="failed", error="boom"))
    run = results.load(tmp_path)
    assert run.trials["ttft_s_p50"].isna().all()
    assert list(run.requests.columns) == list(frame.request_columns())
    assert list(run.commits.columns) == list(frame.COMMIT_COLUMNS)
    assert "prompt_text" in run.prompts.columns


FRAMES = ("trials", "requests", "commits", "texts")


@pytest.mark.parametrize("name", FRAMES)
def test_dtypes_are_those_of_any_other_run(folder: Path, tmp_path: Path, name: str) -> None:
    """One where all failed, one where nothing did and nobody has text in a column."""
    failed = results.Store(tmp_path / "failed")
    failed.write(record(trial(), [], status="failed", error="boom"))
    clean = results.Store(tmp_path / "clean")
    clean.write_experiment("{name: t, reference: vllm}")
    for backend in ("vllm", "fast"):
        clean.write(record(trial(backend), [generation("r0", [10, 15])]))
    found = [results.load(path) for path in (folder, failed.path, clean.path)]
    expected, *others = (getattr(run, name).dtypes.astype(str).to_dict() for run in found)
    assert others == [expected] * 2
    trials = found[2].trials
    assert not trials["error"].str.contains("boom").any()
    assert trials["first_divergence_request"].str.len().isna().all()


def test_whether_an_objective_is_met_is_undefined_without_one(tmp_path: Path) -> None:
    store = results.Store(tmp_path)
    asked = [generation("r0", [10, 15]), generation("r1", [300, 310])]
    store.write(record(trial("vllm"), asked))
    store.write(record(trial("fast", slo=Slo(ttft_ms=200)), asked))
    met = results.load(tmp_path).requests.groupby("backend")["meets_slo"].agg(list)
    assert met["fast"] == [True, False]
    assert met["vllm"] == [pd.NA, pd.NA]


def test_the_cache_gives_what_computing_gives(folder: Path) -> None:
    computed = results.load(folder).evaluated
    assert len(list((folder / "cache").iterdir())) == 1
    assert results.load(folder).evaluated == computed
    assert fresh_rows(folder) == computed


def test_the_cache_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = results.load(folder).evaluated
    monkeypatch.setattr(results.Run, "groups", lambda self: pytest.fail("computed again"))
    assert results.load(folder).evaluated == computed


def test_a_changed_run_is_computed_again(folder: Path) -> None:
    before = results.load(folder).evaluated
    results.Store(folder).write(record(trial("new"), [generation("r0", [1, 2])]))
    after = results.load(folder).evaluated
    assert len(after["trials"]) == len(before["trials"]) + 1
    assert after == fresh_rows(folder)
    (folder / "experiment.yaml").write_text("{name: t, reference: fast}")
    assert results.load(folder).evaluated != after
    assert len(list((folder / "cache").iterdir())) == 1


def test_a_damaged_payload_is_noticed_though_the_cache_knows_the_numbers(folder: Path) -> None:
    run = results.load(folder)
    assert run.evaluated
    key = next(s.record.key for s in run.stored if s.record.status == "ok")
    path = folder / "trials" / f"{key}.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=f"{key}.parquet"):
        _ = results.load(folder).evaluated


@pytest.mark.parametrize("damage", [b"", b"{}", b"0\n{}", b"\xff\xff"])
def test_a_damaged_cache_is_computed_again(folder: Path, damage: bytes) -> None:
    computed = results.load(folder).evaluated
    (entry,) = (folder / "cache").iterdir()
    entry.write_bytes(damage)
    assert results.load(folder).evaluated == computed


def test_other_code_does_not_use_the_cache_of_this(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = cache.digest(["x"])
    monkeypatch.setattr(cache, "_code", lambda: b"other source")
    assert cache.digest(["x"]) != name
    assert cache.digest(["a", "b"]) != cache.digest(["ab"])


def test_the_code_of_the_cache_is_all_that_results_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [folder.relative_to(ROOT).as_posix() for folder in cache.CODE]
    reached = Sources().closure(["results.run", "results.frame", "results.rows"])
    packages = {"harness/__init__.py"}
    assert [p for p in reached.keys() - packages if not p.startswith(tuple(folders))] == []
    monkeypatch.setattr(cache, "CODE", (tmp_path,))
    digests = set()
    for content in ("a", "b"):
        (tmp_path / "nouns.py").write_text(content)
        digests.add(cache._code.__wrapped__())
    assert len(digests) == 2


def test_a_cache_that_cannot_be_written_is_no_error(folder: Path) -> None:
    """A file where the folder should be: holds for root too, who may write anywhere."""
    (folder / "cache").write_text("in the way")
    assert results.load(folder).evaluated["trials"]


def test_numbers_do_not_need_pandas(folder: Path) -> None:
    """`show` must start fast: no pandas, and no library for scores that are not needed."""
    code = (
        "import sys, results\n"
        "from results.rows import cells\n"
        f"cells(results.load({str(folder)!r}))\n"
        "assert 'pandas' not in sys.modules\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_a_record_that_a_run_is_replacing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, written = results.Store(tmp_path), a_record()
    store.write(written)
    listed = store.keys
    monkeypatch.setattr(results.Store, "keys", lambda self: [*listed(), "replaced-just-now"])
    assert [stored.record.key for stored in results.load(tmp_path).stored] == [written.key]


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a results folder"):
        results.load(tmp_path)
    (tmp_path / "kept.parquet").write_bytes(b"PAR1")
    told = r"kept\.parquet: a file; .* \(one of record is for 'compare' and 'history'\)"
    with pytest.raises(UserError, match=told):
        results.load(tmp_path / "kept.parquet")
