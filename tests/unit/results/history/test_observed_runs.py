"""What a history takes of runs that share trials, and what it believes of a file of record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.names import STAND_IN
from harness.core.nouns import Status, TrialRecord, Validity, to_json
from results.compare.gate.extraction import reduce_run
from results.compare.gate.quantities import quantities
from results.compare.gate.record_file import write_record
from results.history.observed import observed_runs
from results.history.series import history
from tests.support.results.history_runs import BUSY
from tests.support.results.make_trials import VALID, generation, record, trial
from tests.support.results.reduced_runs import a_run, everywhere
from tests.support.results.stored_runs import run_of

TPOT = ["tpot_s_p50"]
LOST = Validity(False, ("failures: 1 of 24",))


def measured(
    backend: str,
    repeat: int = 0,
    *,
    day: int = 1,
    step: float = 10,
    status: Status = "ok",
    validity: Validity = VALID,
) -> TrialRecord:
    answers = [generation(f"r{i}", [step * k for k in range(2, 12)]) for i in range(24)]
    return record(
        trial(backend, repeat=repeat),
        answers if status == "ok" else [],
        started_at=f"2026-01-{day:02d}T00:00:00+00:00",
        status=status,
        validity=validity,
        environment={"commit": f"c{day}"},
    )


def kept(folder: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Folder -> backends, the oldest folder first, and what is said of what was left out."""
    found, left_out = observed_runs([folder], [], TPOT)
    backends = {one.mark.folder.name: [c.cell.backend for c in one.cells] for one in found}
    return backends, [told.replace(f"{folder}/", "") for told in left_out]


def test_of_a_part_of_a_run_and_the_run_the_run_is_kept(tmp_path: Path) -> None:
    """The part's name came first, and the other backend and repeats were lost."""
    whole = [measured(name, n) for name in ("vllm", "fast") for n in range(2)]
    run_of(tmp_path / "a", whole[0])
    run_of(tmp_path / "b", *whole)
    run_of(tmp_path / "c", *whole[:2])
    assert kept(tmp_path) == (
        {"b": ["vllm", "fast"]},
        ["left out: c holds trials of b", "left out: a holds trials of b"],
    )


def test_runs_that_share_a_cell_lose_no_other(tmp_path: Path) -> None:
    shared = measured("vllm", day=2)
    run_of(tmp_path / "first", measured("fast"), shared)
    run_of(tmp_path / "second", shared, measured("slow", day=3))
    assert kept(tmp_path) == (
        {"first": ["vllm", "fast"], "second": ["slow"]},
        ["left out: 1 of 2 cells of second holds trials of first"],
    )


def test_nights_that_keep_a_former_nights_trials_stand_where_their_own_were(tmp_path: Path) -> None:
    """They were all dated by what they kept, and so in the order of their names, and had its
    commit. One that has more than the former ones took their trials, and stood first."""
    shared = measured("vllm")
    for name, day in (("c", 1), ("d", 2), ("b", 3)):
        run_of(tmp_path / name, shared, measured("fast", day=day))
    run_of(tmp_path / "a", shared, measured("fast", day=4), measured("slow", day=4))
    found, _ = observed_runs([tmp_path], [], TPOT)
    assert [(one.mark.folder.name, one.mark.started[:10], one.mark.commit) for one in found] == [
        (name, f"2026-01-0{day}", f"c{day}") for day, name in enumerate("cdba", 1)
    ]
    assert [len(one.cells) for one in found] == [2, 1, 1, 2]


def test_a_file_of_record_of_stand_ins_is_a_copy_of_its_run(tmp_path: Path) -> None:
    noisy = measured("vllm", validity=BUSY)
    run = run_of(tmp_path / "run", noisy, measured("vllm", STAND_IN, day=2))
    write_record(tmp_path / "run.parquet", reduce_run(run, quantities()))
    assert kept(tmp_path)[1] == ["left out: run.parquet holds trials of run"]


def test_a_file_of_record_is_a_copy_of_its_run_whose_experiment_has_grown(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", measured("vllm"))
    write_record(tmp_path / "run.parquet", reduce_run(run, quantities()))
    entries = [
        {"workload": to_json(trial().workload), "max_new_tokens": limit}
        for limit in (trial().max_new_tokens, 99)
    ]
    run_of(tmp_path / "run", workloads=entries)
    assert kept(tmp_path)[1] == ["left out: run.parquet holds trials of run"]


@pytest.mark.parametrize(
    ("verdicts", "lost"),
    [
        ([VALID, VALID, VALID], 0),
        ([VALID], 0),
        ([VALID, VALID, BUSY], 0),
        ([VALID, BUSY, BUSY], 0),
        ([BUSY, BUSY, BUSY], 0),
        ([VALID, VALID, LOST], 0),
        ([VALID, VALID], 1),
        ([VALID, VALID, BUSY], 1),
    ],
)
def test_a_file_of_record_is_believed_as_its_run_is(
    tmp_path: Path, verdicts: Sequence[Validity], lost: int
) -> None:
    """One sound repeat was enough for it, and a failed one cast no doubt."""
    for day in (1, 2):
        repeats = [
            measured("vllm", n, day=day, step=10 + n, validity=verdict)
            for n, verdict in enumerate(verdicts)
        ]
        repeats += [measured("vllm", 10 + n, day=day, status="failed") for n in range(lost)]
        run = run_of(tmp_path / "runs" / str(day), *repeats)
        write_record(tmp_path / "kept" / f"{day}.parquet", reduce_run(run, quantities()))
    (told,), (whole,) = (history([tmp_path / name], TPOT).series for name in ("kept", "runs"))
    for mine, theirs in ((told.points, whole.points), (told.doubted, whole.doubted)):
        assert [p.value for p in mine] == pytest.approx([p.value for p in theirs])
    assert len(whole.points) + len(whole.doubted) == 2


def test_a_folder_of_probes_alone_is_named_with_the_reason(tmp_path: Path) -> None:
    """It was not told which folder was no run, nor why."""
    run = run_of(tmp_path / "a", measured("vllm"))
    probed = run_of(tmp_path / "searched", measured("fast", day=2))
    keys = [one.record.key for one in probed.stored]
    answer = {"share": 0.99, "confidence": 0.95, "systems": [], "trials": keys}
    (probed.path / "goodput.json").write_text(json.dumps(answer))
    assert len(run.stored) == len(keys) == 1
    told = "searched has only probes of a search or a sweep, whose rates differ from run to run"
    assert kept(tmp_path) == ({"a": ["vllm"]}, [f"left out: {told}"])
    with pytest.raises(UserError, match=f"^history: no run with trials; .*left out: .*{told}"):
        history([probed.path], TPOT)


def test_a_file_of_record_that_broke_a_promise_is_doubted_as_its_run_is() -> None:
    told = {"numbers": {"tpot_s_p50": 0.01}, "broken_promise": "not-lossless: 1 of 30"}
    records = [everywhere(a_run(f"2026-01-0{day}"), **told) for day in (1, 2)]
    (series,) = history([], TPOT, records=records).series
    assert (series.points, len(series.doubted)) == ([], 2)
