"""Repeats that something passing disturbed are left out of their cell, and said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.core.names import STAND_IN
from harness.core.nouns import TrialRecord, Validity
from results.compare.reasons import NO_MEDIAN, REMARKS, slug
from results.compare.validity import REFERENCE
from results.rows import cells, summaries
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import of, run_of

NOISY = Validity(False, ("machine-noisy: other processes used 30% of CPU time (limit 10%)",))
CLIPPED = Validity(False, ("output-clipped: 1 of 1 answers ended for length",))
BOTH = Validity(False, (*NOISY.reasons, *CLIPPED.reasons))
OPTIONS = {"vllm": {"block": 32}}


def ran(backend: str, repeat: int, step_ms: float = 10.0, **more: Any) -> TrialRecord:
    """Two answers of three tokens."""
    answers = [
        generation(f"r{n}", [10 + factor * step_ms * i for i in range(3)])
        for n, factor in enumerate((1, 2))
    ]
    asked = trial(backend, options=OPTIONS.get(backend, {}), repeat=repeat)
    return record(asked, answers, **more)


def cell_of(folder: Path, *records: TrialRecord, backend: str = "fast") -> dict[str, Any]:
    found = cells(run_of(folder, *records))
    return next(cell for cell in found if cell["backend"] == backend)


REFERENCES = [ran("vllm", repeat, 20) for repeat in range(3)]


def test_a_noisy_repeat_is_left_out_and_said(tmp_path: Path) -> None:
    noisy = ran("fast", 1, 40, validity=NOISY)
    cell = cell_of(tmp_path, *REFERENCES, ran("fast", 0), noisy, ran("fast", 2))
    assert cell["valid"]
    assert (cell["repeats"], cell["repeats_used"], cell["speedup_repeats"]) == (3, 2, 2)
    assert cell["speedup"] == pytest.approx(2.0)
    assert cell["spread"]["speedup"] == pytest.approx([2.0, 2.0])
    assert cell["tpot_s_p50"] == pytest.approx(0.015)
    assert cell["void_metrics"] == []
    assert cell["invalid_reasons"] == [
        "repeats-left-out: 2 of 3 repeats used, without repeat 1 (machine-noisy)"
    ]


def test_the_rows_keep_their_own_verdict_and_have_the_cells_interval(tmp_path: Path) -> None:
    noisy = ran("fast", 1, 40, validity=NOISY)
    rows = summaries(run_of(tmp_path, *REFERENCES, ran("fast", 0), noisy, ran("fast", 2)))
    left_out, sound = of(rows, "fast", 1), of(rows, "fast", 2)
    assert (left_out["valid"], sound["valid"]) == (False, True)
    assert (left_out["left_out"], sound["left_out"]) == (True, False)
    assert (sound["void_metrics"], sound["invalid_reasons"]) == ([], [])
    assert "tpot_s_p50" in left_out["void_metrics"]
    assert "speedup_low" not in left_out["void_metrics"]
    assert left_out["speedup_low"] == sound["speedup_low"]


def test_a_left_out_repeat_of_another_length_costs_the_others_nothing(tmp_path: Path) -> None:
    """Nothing of it enters the cell, nor does what may not be compared in it."""
    longer = [generation("r0", [10, 50, 90, 130]), generation("r1", [10, 90, 170])]
    noisy = record(trial("fast", repeat=1), longer, validity=NOISY)
    cell = cell_of(tmp_path, *REFERENCES, ran("fast", 0), noisy, ran("fast", 2))
    assert cell["repeats_used"] == 2
    assert cell["void_metrics"] == []
    assert cell["spread"]["e2e_s_p50"] == pytest.approx([0.04, 0.04])
    assert cell["spread"]["throughput_ratio"][1] < 2.5


def test_a_sound_repeat_of_another_length_is_not_left_out_for_a_noisy_reference(
    tmp_path: Path,
) -> None:
    references = [ran("vllm", 0, 20), ran("vllm", 1, 20, validity=NOISY), ran("vllm", 2, 20)]
    longer = record(trial("fast", repeat=1), [generation("r0", [10, 20, 30, 40])])
    cell = cell_of(tmp_path, *references, ran("fast", 0), longer, ran("fast", 2))
    assert "request_per_s" in cell["void_metrics"]
    assert not {"throughput_ratio", "speedup"} & set(cell["void_metrics"])


def test_what_another_engines_noise_spoils_is_pooled_without_it(tmp_path: Path) -> None:
    kernels = {"kernels": "native"}
    answers = [generation("r0", [10, 20, 30]), generation("r1", [10, 30, 50])]
    plain = [
        record(trial("autoregressive", options=kernels, repeat=n), answers, validity=verdict)
        for n, verdict in enumerate((NOISY, Validity(valid=True), Validity(valid=True)))
    ]
    backends = [
        {"name": name, "options": options}
        for name, options in (("vllm", OPTIONS["vllm"]), ("fast", {}), ("autoregressive", kernels))
    ]
    ours = [ran("fast", repeat) for repeat in range(3)]
    run = run_of(tmp_path, *REFERENCES, *plain, *ours, backends=backends)
    cell = next(one for one in cells(run) if one["backend"] == "fast")
    assert (cell["valid"], cell["void_metrics"], cell["speedup_native_repeats"]) == (True, [], 2)
    for row in (of(summaries(run), "fast", repeat) for repeat in range(3)):
        assert (row["valid"], row["invalid_reasons"]) == (True, [])


def test_one_sound_repeat_is_no_repeat(tmp_path: Path) -> None:
    noisy = [ran("fast", repeat, validity=NOISY) for repeat in (0, 1)]
    cell = cell_of(tmp_path, *REFERENCES, *noisy, ran("fast", 2))
    assert not cell["valid"]
    assert cell["repeats_used"] == 3
    assert {"speedup", "tpot_s_p50", "speedup_low"} <= set(cell["void_metrics"])
    assert cell["invalid_reasons"] == list(NOISY.reasons)


def test_a_single_repeat_that_is_sound_stays_so(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, ran("vllm", 0), ran("fast", 0))
    assert (cell["valid"], cell["repeats_used"], cell["speedup_repeats"]) == (True, 1, 1)


@pytest.mark.parametrize("verdict", [CLIPPED, BOTH], ids=["clipped", "clipped and noisy"])
def test_what_does_not_pass_is_never_left_out(tmp_path: Path, verdict: Validity) -> None:
    broken = ran("fast", 1, validity=verdict)
    cell = cell_of(tmp_path, *REFERENCES, ran("fast", 0), broken, ran("fast", 2))
    assert not cell["valid"]
    assert "output-clipped" in cell["invalid_reasons"][-1]
    assert {"speedup", "tpot_s_p50"} <= set(cell["void_metrics"])


def test_a_failed_repeat_is_never_left_out(tmp_path: Path) -> None:
    failed = ran("fast", 1, status="failed", validity=Validity(False, ("failures: it crashed",)))
    cell = cell_of(tmp_path, *REFERENCES, ran("fast", 0), failed, ran("fast", 2))
    assert not cell["valid"]
    assert "tpot_s_p50" in cell["void_metrics"]


def test_a_noisy_reference_costs_its_pairs_only(tmp_path: Path) -> None:
    """The trial's own times of that repeat stand and are used."""
    references = [REFERENCES[0], ran("vllm", 1, 90, validity=NOISY), REFERENCES[2]]
    ours = [ran("fast", 0), ran("fast", 1, 30), ran("fast", 2)]
    cell = cell_of(tmp_path, *references, *ours)
    assert cell["valid"]
    assert (cell["speedup_repeats"], cell["speedup"]) == (2, pytest.approx(2.0))
    assert cell["spread"]["tpot_s_p50"] == pytest.approx([0.015, 0.045])
    assert cell["spread"]["throughput_ratio"][1] < 2.5
    (told,) = cell["invalid_reasons"]
    assert told == "repeats-left-out: 2 of 3 repeats used, without repeat 1 (reference-not-valid)"


def test_an_unsound_reference_makes_what_is_compared_with_it_unsound(tmp_path: Path) -> None:
    references = [*(ran("vllm", n, 20, validity=NOISY) for n in (0, 1)), REFERENCES[2]]
    ours = [ran("fast", repeat) for repeat in range(3)]
    cell = cell_of(tmp_path, *references, *ours)
    assert not cell["valid"]
    assert set(cell["void_metrics"]) == set(REFERENCE.speed)


def test_what_stands_in_is_a_repeat_of_its_own(tmp_path: Path) -> None:
    again = STAND_IN + 1
    ours = [ran("fast", 0), ran("fast", 1, 40, validity=NOISY), ran("fast", again, 10)]
    run = run_of(tmp_path, *REFERENCES, ran("vllm", again, 30), *ours)
    cell = next(cell for cell in cells(run) if cell["backend"] == "fast")
    assert (cell["repeats"], cell["repeats_used"]) == (3, 2)
    assert cell["spread"]["speedup"] == pytest.approx([2.0, 3.0])
    assert cell["invalid_reasons"] == [
        "repeats-left-out: 2 of 3 repeats used, without repeat 1 (machine-noisy; measured again)"
    ]
    rows = summaries(run)
    assert of(rows, "fast", again)["stands_in_for"] == 1
    assert of(rows, "fast", 1)["stands_in_for"] is None


def test_a_servers_noise_is_not_checked(tmp_path: Path) -> None:
    seen = Validity(True, ("noise-not-checked: nobody can see the server's machine",))
    cell = cell_of(tmp_path, ran("vllm", 0), ran("fast", 0, validity=seen))
    assert (cell["valid"], cell["noise_checked"]) == (True, False)
    assert cell_of(tmp_path, ran("vllm", 0), backend="vllm")["noise_checked"]


def test_too_few_answers_for_a_median_do_not_pass(tmp_path: Path) -> None:
    """Measured again there are as few."""
    few = "too-few-samples: 4 answers say nothing about p50, p95, p99 (p50 needs 5, p95 needs 20)"
    tiny = ran("fast", 1, 40, validity=Validity(False, (*NOISY.reasons, few)))
    assert slug(few) == NO_MEDIAN
    assert slug("too-few-samples: 5 answers say nothing about p95, p99") in REMARKS
    cell = cell_of(tmp_path, *REFERENCES, ran("fast", 0), tiny, ran("fast", 2))
    assert not cell["valid"]
    assert cell["repeats_used"] == 3
