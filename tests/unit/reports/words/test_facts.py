"""What the page says of where and by what a run was made."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.core.names import STAND_IN
from harness.core.nouns import Load, Model, Slo, TrialRecord, Workload, to_json
from reports.cells import overview
from reports.words.facts import alerts, environment, requests_finding, requests_note, summary
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of

SLO = Slo(tpot_ms=500)


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (["a", "a", "b", "c"], "the same in all trials of a backend on a workload"),
        (["a", "x", "b", "c"], "changed between calls of run, for 1 of 3 pairs of backend"),
    ],
)
def test_code_is_the_same_within_a_backend_on_a_workload(
    tmp_path: Path, codes: list[str], words: str
) -> None:
    """It is another for each of them, which is no change."""
    places = [("vllm", "gsm8k", 0), ("vllm", "gsm8k", 1), ("vllm", "humaneval", 0)]
    places.append(("fast", "gsm8k", 0))
    records = []
    for (backend, workload, repeat), code in zip(places, codes, strict=True):
        what = trial(backend, workload=Workload(workload, checksum=workload), repeat=repeat)
        one = record(what, [generation("r0", [10, 20])])
        told = {**one.environment, "code": code}
        records.append(dataclasses.replace(one, environment=told))
    listed: list[dict[str, object]] = [{"name": name, "options": {}} for name in ("vllm", "fast")]
    found = dict(environment(run_of(tmp_path, *records, backends=listed)))
    assert found["code"].startswith(words)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.64, 1.01, 10.2, 1.03], "1.64 (over all trials: 1.01 to 10.2)"),
        ([2, None, 2], "2"),
        ([None, 4, 30], "– (over all trials: 4 to 30)"),
        (["a", "e", "b", "d", "c"], "a (in other trials: b, c, d and 1 more)"),
        ([["x"], ["x"], []], "x (in other trials: none)"),
    ],
)
def test_numbers_of_the_environment_have_a_range(
    tmp_path: Path, values: list[object], words: str
) -> None:
    records = [
        record(trial(repeat=place), [generation("r0", [10, 20])], environment={"ratio": value})
        for place, value in enumerate(values)
    ]
    assert dict(environment(run_of(tmp_path, *records)))["ratio"] == words


def test_planned_trials_and_those_in_place_of_disturbed_ones_are_told_apart(tmp_path: Path) -> None:
    repeats = (0, 1, STAND_IN + 1)
    records = [record(trial(repeat=n), [generation("r0", [10, 20])]) for n in repeats]
    run = run_of(tmp_path, *records)
    told = summary(run, overview(run))
    assert "2 trials as planned and 1 more in place of disturbed ones, 3 in all. Machine" in told


@pytest.mark.parametrize(
    ("lengths", "exact", "words"),
    [
        ([48, 48], [True, True], " of 1 requests of 48 new tokens: "),
        ([64, 1384], [False, False], " of 1 requests of at most 64 or 1,384 new tokens: "),
        ([8, 16, 64], [False] * 3, " of 1 requests of at most 8 to 64 new tokens: "),
        ([8, 64], [True, False], " requests of 8 new tokens or of at most 64 new tokens: "),
        ([1, 1], [False, False], " of 1 requests: "),
    ],
    ids=["exact", "at most", "three", "both", "labels"],
)
def test_how_long_answers_are_is_said_at_the_top(
    tmp_path: Path, lengths: list[int], exact: list[bool], words: str
) -> None:
    records = [
        record(
            dataclasses.replace(trial(repeat=n), requests=1, max_new_tokens=most, ignore_eos=all_),
            [generation("r0", [10, 20])],
        )
        for n, (most, all_) in enumerate(zip(lengths, exact, strict=True))
    ]
    run = run_of(tmp_path, *records)
    assert words in summary(run, overview(run))


@pytest.mark.parametrize("reload", [True, None])
def test_it_is_said_that_each_repeat_had_engines_of_its_own(
    tmp_path: Path, reload: bool | None
) -> None:
    trials = [dataclasses.replace(trial(repeat=n), reload=reload) for n in range(2)]
    run = run_of(tmp_path, *(record(one, [generation("r0", [10, 20])]) for one in trials))
    told = summary(run, overview(run))
    assert ("2 repeats, each with engines loaded for it, of " in told) is bool(reload)
    assert ("2 repeats of " in told) is (reload is None)


def test_what_has_not_been_run_is_counted_by_settings_and_machine(tmp_path: Path) -> None:
    """Trials of an older objective, of copies and of another machine filled the others' places."""

    def made(
        repeat: int, key: str = "", slo: Slo = SLO, there: str = "here", day: int = 1
    ) -> TrialRecord:
        one = record(
            trial(repeat=repeat, slo=slo),
            [generation("r0", [10, 20])],
            environment={"fingerprint": there},
            started_at=f"2026-01-{day:02d}T00:00:00+00:00",
        )
        return dataclasses.replace(one, key=key) if key else one

    asked = {
        "model": to_json(Model("demo")),
        "backends": [{"name": "vllm", "options": {}}],
        "workloads": [{"workload": to_json(trial().workload), "max_new_tokens": 16}],
        "loads": [to_json(Load("closed", concurrency=8))],
        "requests": 2,
        "slo": to_json(SLO),
        "repeats": 3,
    }

    def told(name: str, *records: TrialRecord) -> list[str]:
        run = run_of(tmp_path / name, *records, **asked)
        return [one for one in alerts(run, overview(run)) if "not complete" in one]

    lost = ["The run is not complete: 2 of 3 trials have not been run. The same command runs them."]
    other = Slo(tpot_ms=9)
    assert told("whole", *map(made, range(3)), made(0, slo=other)) == []
    assert told("objective", made(0), *(made(n, slo=other) for n in range(3))) == lost
    assert told("copies", made(0), made(0, "copy"), made(0, "copy2"), made(STAND_IN)) == lost
    elsewhere = [made(n, f"there{n}", there="there") for n in range(3)]
    assert told("moved", *elsewhere, made(0, day=2)) == lost
    assert told("left", *elsewhere, made(0, day=2), made(1, day=2), made(2, day=2)) == []


def test_requests_that_nobody_answered_are_no_equal_answers() -> None:
    blocks = [{"total": 8, "differing": 0, "without": 8, "left_out": 0}]
    assert (
        requests_finding(blocks) == "0 of 8 requests have differing answers; 8 without an answer."
    )
    some = [*blocks, {"total": 4, "differing": 1, "without": 0, "left_out": 0}]
    assert requests_finding(some[1:]) == "1 of 4 requests have differing answers."
    assert requests_finding(some).startswith("1 of 12 requests have differing answers; 8 without")
    assert "the reference's, or the first where it has none, comes first." in requests_note(blocks)
