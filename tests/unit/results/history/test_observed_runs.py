"""What a history takes of runs that share trials, and what it believes of a file of record."""

from __future__ import annotations

from pathlib import Path

from harness.core.names import STAND_IN
from harness.core.nouns import Status, TrialRecord, Validity
from results.compare.gate.extraction import reduce_run
from results.compare.gate.quantities import quantities
from results.compare.gate.record_file import write_record
from results.history.observed import observed_runs
from tests.support.results.history_runs import BUSY
from tests.support.results.make_trials import VALID, generation, record, trial
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


def test_a_file_of_record_of_stand_ins_is_a_copy_of_its_run(tmp_path: Path) -> None:
    noisy = measured("vllm", validity=BUSY)
    run = run_of(tmp_path / "run", noisy, measured("vllm", STAND_IN, day=2))
    write_record(tmp_path / "run.parquet", reduce_run(run, quantities()))
    assert kept(tmp_path)[1] == ["left out: run.parquet holds trials of run"]
