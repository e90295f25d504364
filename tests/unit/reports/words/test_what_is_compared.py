"""Sentences compare what may be compared: one machine, like settings, numbers that hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import results
from harness.core.nouns import REPLAYED, Load, Measured, Slo, TrialRecord, Validity, Workload
from reports.cells import Cell, Overview, overview
from reports.collect import Samples, collect
from reports.sections import sections
from reports.words import facts, techniques
from reports.words.ranking.scoped import ScopedVerdict, scoped_verdicts
from results.rows import text_verdicts
from results.store.folder import Store
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.report_runs import LOADS, MadeUpBackend, write_run
from tests.support.results.stored_runs import run_of
from tests.unit.reports.sections.test_stages import COUNTS

ONE, EIGHT = (Load("closed", concurrency=count) for count in (1, 8))
NO_SLO, SOUND = Slo(), Validity(True)
CLIPPED = Validity(False, ("output-clipped: 8 of 8 answers ended for length before the 9 asked",))
ENGINES = (
    MadeUpBackend("vllm", 0.010, provenance="official code"),
    MadeUpBackend("fast", 0.005),
    MadeUpBackend("next", 0.0052),
)


def page(run: results.Run) -> tuple[Overview, Samples]:
    seen = overview(run)
    return seen, collect(run, seen)


def verdict(run: results.Run, name: str = "") -> ScopedVerdict:
    seen, samples = page(run)
    return next(one for one in scoped_verdicts(seen, samples, 0.02) if one.name == name)


def finding(run: results.Run, section: str) -> str:
    found = sections(*page(run))
    return next(one.finding for one in found if one.id == section)


def cell_of(run: results.Run, backend: str) -> Cell:
    return next(cell for cell in overview(run).cells if cell.variant.backend == backend)


def test_a_system_is_held_against_another_on_its_own_machine(tmp_path: Path) -> None:
    """The folder has a second machine's trials, which is half as fast."""
    folders = tmp_path / "a", tmp_path / "b"
    asked: dict[str, Any] = {"workloads": ("gsm8k",), "loads": LOADS[:1], "repeats": 3}
    for folder, factor in zip(folders, (1, 2), strict=True):
        slower = [dataclasses.replace(one, step_s=factor * one.step_s) for one in ENGINES]
        write_run(folder, engines=tuple(slower), requests=8, slo=Slo(), **asked)
    alone = verdict(results.load(folders[0])).headline
    store, other = (Store(folder) for folder in folders)
    for key in list(other.keys()):
        found = other.read(key)
        machine = {**found.environment, "fingerprint": "beef", "cpu": "slower"}
        key = found.trial.key("beef")
        store.write(dataclasses.replace(found, key=key, environment=machine))
    both = verdict(results.load(folders[0]))
    assert " 1.05× [" in alone
    assert " 1.05× [" in both.headline, "not 1.5, of both machines"
    assert len(both.choices) == 2
    for _, (choice,) in both.choices:
        assert choice.rests_on == "1 of 1"
        assert 1.7 < float(choice.whole[0].rstrip("×")) < 2.1, "not 2.6"


def made(
    name: str,
    step_ms: float,
    repeat: int,
    load: Load = ONE,
    *,
    tokens: int = 9,
    options: Mapping[str, Any] | None = None,
    right: float | None = None,
    verdict: Validity = SOUND,
    counts: Mapping[str, float] | None = None,
    slo: Slo = NO_SLO,
    lossless: bool = True,
) -> TrialRecord:
    """Eight answers, each token `step_ms` behind the one before."""
    ends = [10 + (step_ms + 0.01 * repeat) * place for place in range(tokens)]
    asked = trial(
        name,
        options=dict(options or {}),
        workload=Workload("gsm8k", checksum="s"),
        load=load,
        repeat=repeat,
        slo=slo,
    )
    answers = [generation(f"r{n}", ends, telemetry=dict(counts or {})) for n in range(8)]
    scores = {} if right is None else {f"r{n}": {"exact_match": right} for n in range(8)}
    return record(asked, answers, scores=scores, validity=verdict, lossless=lossless)


def stored(folder: Path, found: Sequence[TrialRecord], reference: str = "vllm") -> results.Run:
    told = [(one.trial.backend, one.trial.options) for one in found]
    listed = [one for place, one in enumerate(told) if one not in told[:place]]
    backends = [{"name": name, "options": dict(options)} for name, options in listed]
    return run_of(folder, *found, backends=backends, reference=reference)


def test_plain_decoding_has_the_threads_of_what_is_held_against_it(tmp_path: Path) -> None:
    one, two = ({"kernels": "native", "threads": count} for count in (1, 2))
    found = []
    for repeat in range(3):
        found += [made("autoregressive", 20, repeat, options=one)]
        found += [made("autoregressive", 10, repeat, options=two)]
        found += [made("speculative", 8, repeat, options=two)]
        found += [made("tetris", 8, repeat, options={**two, "threads": 4})]
    run = stored(tmp_path, found, "autoregressive")
    assert cell_of(run, "speculative").value("speedup_native") is not None
    assert round(cell_of(run, "speculative").value("speedup_native") or 0.0, 2) == 1.25
    assert round(cell_of(run, "tetris").value("speedup_native") or 0.0, 2) == 2.5, "the first's"


def test_answers_that_were_cut_off_say_nothing_of_quality_or_text(tmp_path: Path) -> None:
    found = []
    for repeat in range(3):
        found += [made("vllm", 10, repeat, right=1.0), made("fast", 5, repeat, right=1.0)]
        found += [made("vllm", 10, repeat, EIGHT, right=0.0, tokens=4, verdict=CLIPPED)]
        found += [made("fast", 5, repeat, EIGHT, right=1.0)]
    run = stored(tmp_path / "reference", found)
    (text,) = [one for one in text_verdicts(run) if one.backend == "fast"]
    assert (text.verdict, text.pairs) == ("lossless", 24)
    found = []
    for repeat in range(3):
        found += [made("vllm", 10, repeat, right=1.0)]
        found += [made("fast", 5, repeat, right=0.5, lossless=False)]
        found += [made("vllm", 10, repeat, EIGHT, right=0.0, verdict=CLIPPED)]
        found += [made("fast", 5, repeat, EIGHT, right=0.5, lossless=False)]
    assert "1.00 → 0.500" in finding(stored(tmp_path / "lossy", found), "quality")


def test_where_nothing_was_compared_nobody_is_said_to_be_no_faster(tmp_path: Path) -> None:
    found = []
    for repeat in range(3):
        found += [made("vllm", 10, repeat), made("fast", 5, repeat), made("fast", 5, repeat, EIGHT)]
        failed = made("vllm", 10, repeat, EIGHT)
        found += [dataclasses.replace(failed, status="timeout", error="x", generations=())]
    told = verdict(stored(tmp_path / "a", found), "closed c=8").headline
    assert told == "No speed-up over vllm could be computed: every trial of it failed."
    found = [made(name, 10, repeat, tokens=1) for name in ("vllm", "fast") for repeat in range(3)]
    told = verdict(stored(tmp_path / "b", found)).headline
    assert told.endswith("no two answers have times between tokens that can be compared.")


def test_stages_are_held_against_what_holds_and_decided_likewise(tmp_path: Path) -> None:
    kernels = {"kernels": "native"}
    common: dict[str, Any] = {"slo": Slo(tpot_ms=50), "load": EIGHT}

    def run(folder: str, tokens: int, replay: bool) -> results.Run:
        options = {**kernels, **({"replay": "demo"} if replay else {})}
        found = []
        for repeat in range(3):
            found.append(made("autoregressive", 10, repeat, options=kernels, **common))
            one = made(
                "tetris", 5, repeat, options=options, counts=COUNTS, tokens=tokens,
                lossless=False, **common,
            )  # fmt: skip
            if replay and one.backend is not None:
                one = dataclasses.replace(
                    one, backend=dataclasses.replace(one.backend, provenance=REPLAYED)
                )
            found.append(one)
        return stored(tmp_path / folder, found, "autoregressive")

    def words(found: results.Run) -> str:
        stages = next(one for one in sections(*page(found)) if one.id == "stages")
        return " ".join(stages.words)

    assert "times autoregressive's" in words(run("alike", 9, replay=False))
    assert "meet the objective" not in words(run("shorter", 2, replay=False)), "other work"
    replayed = run("replayed", 9, replay=True)
    assert "times autoregressive's" not in words(replayed)
    assert [v.label for v in overview(replayed).variants] == [
        "autoregressive",
        "tetris (replayed)",
    ]
    assert "tetris" not in finding(replayed, "throughput")


def test_another_objective_or_sampling_is_another_setting(tmp_path: Path) -> None:
    found = [made(n, 10, 0, slo=Slo(tpot_ms=ms)) for n in ("vllm", "fast") for ms in (9, 500)]
    run = stored(tmp_path, found)
    assert any("trials of different settings" in told for told in facts.alerts(run, overview(run)))


def test_repeats_that_were_left_out_are_in_no_figure(tmp_path: Path) -> None:
    noisy = Validity(False, ("machine-noisy: others used 60%",))
    found = [made(name, 10, repeat) for name in ("vllm", "fast") for repeat in range(2)]
    found += [made("vllm", 10, 2), made("fast", 50, 2, verdict=noisy)]
    run = stored(tmp_path, found)
    seen, samples = page(run)
    cell = next(cell for cell in seen.cells if cell.variant.backend == "fast")
    times = [float(value) for some in samples.latencies["tpot_s"][cell] for value in some]
    assert cell.left_out == 1
    assert len(times) == 16
    assert max(times) < 0.011


def test_a_statement_on_greedy_answers_says_so_beside_sampled_ones(tmp_path: Path) -> None:
    found = [made(name, 10, repeat) for name in ("vllm", "fast") for repeat in range(2)]
    cell = dataclasses.replace(
        cell_of(stored(tmp_path, found), "fast"),
        measured=Measured(calibration="With 95% confidence."),
        effective={"measure": "softmax"},
    )
    assert "calibrated: With 95%" in techniques.statements([cell])[0]
    assert techniques.calibrated(cell) == "calibrated"
    sampled = dataclasses.replace(cell, sampled=True)
    assert (
        "most probable tokens, while answers here are sampled"
        in techniques.statements([sampled])[0]
    )
    assert techniques.calibrated(sampled) == "calibrated greedily"


def test_a_calibration_for_other_workloads_is_not_taken_for_the_cells(tmp_path: Path) -> None:
    found = [made(name, 10, repeat) for name in ("vllm", "fast") for repeat in range(2)]
    long = f"With 95% confidence {'and so on ' * 50}in bfloat16."
    cell = dataclasses.replace(
        cell_of(stored(tmp_path, found), "fast"),
        measured=Measured(calibration=long),
        effective={"measure": "softmax"},
    )
    assert techniques.technique(cell) == "full"
    other = dataclasses.replace(cell, reasons={"calibrated-otherwise": (2, "so it is")})
    assert techniques.calibrated(other) == "calibrated for others"
    assert techniques.statements([other]) == [
        f"Full, calibrated on other prompts or lengths of answers than here: {long}"
    ]
    assert techniques.statements([other, cell]) == [f"Full, calibrated: {long}"]
