"""Which numbers of a sound trial are void, because what they compare it with is not sound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.nouns import UNKNOWN_TOKEN, BackendInfo, Sampling, TrialRecord, Validity
from results import registry
from results.compare.validity import APART_LIMIT_S, NATIVE, REFERENCE
from results.rows import cells, summaries
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import answer, of, run_of

NOISY = Validity(False, ("machine-noisy: other processes used 30% of CPU time (limit 10%)",))
CLIPPED = Validity(False, ("output-clipped: 1 of 1 answers ended for length",))
FEW = Validity(True, ("too-few-samples: 6 answers say nothing about p95",))
BLOCK = {"block": 32}
POOLED = ["speedup_low", "speedup_high", "speedup_matched_low", "speedup_matched_high"]


def ran(backend: str, step_ms: float = 10, repeat: int = 0, **more: Any) -> TrialRecord:
    """A trial of one answer of three tokens."""
    options = BLOCK if backend == "vllm" else {}
    return record(
        trial(backend, options=options, repeat=repeat), [answer(step_ms, [1, 2, 3])], **more
    )


def fast(folder: Path, *records: TrialRecord, repeat: int = 0) -> dict[str, Any]:
    return of(summaries(run_of(folder, *records)), "fast", repeat)


def test_a_sound_trial_is_not_certified_against_an_unsound_reference(tmp_path: Path) -> None:
    """What it measured by itself stands: only what compares speed with the reference is void."""
    row = fast(tmp_path, ran("vllm", 20, validity=NOISY), ran("fast"))
    assert not row["valid"]
    assert row["invalid_reasons"] == [
        "reference-not-valid: vllm, repeat 0, is not valid (machine-noisy): what compares speed "
        "with it is void"
    ]
    assert set(row["void_metrics"]) == set(REFERENCE.speed)
    assert row["speedup"] == pytest.approx(2.0)


def test_a_reference_whose_answers_are_doubtful_makes_them_void_too(tmp_path: Path) -> None:
    row = fast(tmp_path, ran("vllm", validity=CLIPPED), ran("fast"))
    assert set(row["void_metrics"]) == {*REFERENCE.speed, *REFERENCE.answers}
    assert row["invalid_reasons"][0].endswith("what compares speed and answers with it is void")


@pytest.mark.parametrize("verdict", [Validity(valid=True), FEW], ids=["sound", "with a remark"])
def test_a_sound_reference_makes_nothing_void(tmp_path: Path, verdict: Validity) -> None:
    row = fast(tmp_path, ran("vllm", validity=verdict), ran("fast"))
    assert (row["valid"], row["invalid_reasons"], row["void_metrics"]) == (True, [], [])


def test_plain_decoding_that_is_not_valid_makes_its_own_comparison_void(tmp_path: Path) -> None:
    row = fast(tmp_path, ran("vllm"), ran("autoregressive", validity=NOISY), ran("fast"))
    assert not row["valid"]
    assert row["invalid_reasons"][0].startswith("native-not-valid: autoregressive, repeat 0,")
    assert set(row["void_metrics"]) == set(NATIVE.speed)


def test_noise_of_another_engine_leaves_a_trial_valid(tmp_path: Path) -> None:
    """Plain decoding on our engine, which names its kernels, beside a backend that has none."""
    kernels = {"kernels": "native"}
    plain = record(
        trial("autoregressive", options=kernels), [answer(10, [1, 2, 3])], validity=NOISY
    )
    own = record(trial("ours", options=kernels), [answer(10, [1, 2, 3])])
    backends = [
        {"name": name, "options": options}
        for name, options in (
            ("vllm", BLOCK), ("fast", {}), ("ours", kernels), ("autoregressive", kernels),
        )
    ]  # fmt: skip
    run = run_of(tmp_path, ran("vllm"), plain, ran("fast"), own, backends=backends)
    row = of(summaries(run), "fast")
    assert (row["valid"], row["invalid_reasons"]) == (True, [])
    assert set(row["void_metrics"]) == set(NATIVE.speed), "the ratio itself is not to be believed"
    row = of(summaries(run), "ours")
    assert not row["valid"]
    assert row["invalid_reasons"][0].startswith("native-not-valid: autoregressive")


def test_a_reference_that_is_plain_decoding_is_blamed_once(tmp_path: Path) -> None:
    plain = ran("autoregressive", validity=NOISY)
    run = run_of(tmp_path, plain, ran("fast"), reference="autoregressive")
    row = of(summaries(run), "fast")
    assert [reason.partition(":")[0] for reason in row["invalid_reasons"]] == [
        "reference-not-valid"
    ]
    assert set(row["void_metrics"]) == {*REFERENCE.speed, *NATIVE.speed}


def test_an_unsound_trial_has_no_number_that_holds(tmp_path: Path) -> None:
    row = fast(tmp_path, ran("vllm"), ran("fast", validity=NOISY))
    names = list(row)[list(row).index("started_at") + 1 :]
    assert row["void_metrics"] == names
    assert of(summaries(run_of(tmp_path, ran("vllm", validity=NOISY))), "vllm")["void_metrics"]


def test_a_reference_that_broke_its_promise_is_not_valid_either(tmp_path: Path) -> None:
    kernels = {"kernels": "native"}
    plain = record(trial("autoregressive", options=kernels), [answer(10, [1, 2, 4])])
    own = record(trial("ours", options=kernels), [answer(10, [1, 2, 3])])
    backends = [{"name": name, "options": kernels} for name in ("ours", "autoregressive")]
    run = run_of(tmp_path, plain, own, ran("fast"), reference="ours", backends=backends)
    row = of(summaries(run), "fast")
    assert "ours, repeat 0, is not valid (not-lossless)" in row["invalid_reasons"][0]
    assert "consistency_ratio" in row["void_metrics"]
    assert "consistency_native" not in row["void_metrics"]


def test_what_pools_an_unsound_repeat_is_void_in_the_rows_of_all(tmp_path: Path) -> None:
    """The interval of repeat 1 is drawn from repeat 0 too; its own speed-up is not."""
    records = [ran("vllm", 20, 0, validity=NOISY), ran("vllm", 20, 1)]
    records += [ran("fast", 10, repeat) for repeat in (0, 1)]
    for one in records:
        one.generations[0].request_id = "r0"
        second = generation("r1", [5, 9, 20])
        object.__setattr__(one, "generations", [*one.generations, second])
    run = run_of(tmp_path, *records)
    later = of(summaries(run), "fast", 1)
    assert later["valid"]
    assert later["void_metrics"] == POOLED
    assert later["invalid_reasons"] == [
        f"cell-not-valid: {', '.join(POOLED)} pool all repeats, and these do not hold in repeat 0"
    ]
    cell = of(cells(run), "fast")
    assert not cell["valid"]
    assert set(cell["void_metrics"]) == set(REFERENCE.speed)


def during(invocation: str | None, since_s: float = 0.0) -> dict[str, Any]:
    if invocation is None:
        return {}
    return {"invocation": invocation, "since_invocation_s": since_s}


@pytest.mark.parametrize(
    ("reference", "ours", "why"),
    [
        (during("a"), during("a", APART_LIMIT_S), None),
        (during("a", APART_LIMIT_S + 60), during("a"), "was run 6.0 h away (limit 6 h)"),
        (during("a", 5.0), during("b", 6.0), "was run by another invocation of 'run'"),
        (during(None), during("b"), "was run by another invocation of 'run'"),
        (during(None), during(None), None),
    ],
    ids=["interleaved", "hours apart", "resumed", "resumed by newer code", "older records"],
)
def test_pairs_are_of_one_time_or_say_why_not(
    tmp_path: Path, reference: dict[str, Any], ours: dict[str, Any], why: str | None
) -> None:
    row = fast(tmp_path, ran("vllm", environment=reference), ran("fast", environment=ours))
    if why is None:
        assert (row["valid"], row["invalid_reasons"]) == (True, [])
        return
    assert row["invalid_reasons"] == [
        f"pairs-apart: vllm, repeat 0, {why}: what compares speed with it is void"
    ]
    assert set(row["void_metrics"]) == set(REFERENCE.speed)


def test_older_records_a_month_apart_are_no_pair(tmp_path: Path) -> None:
    """They name no invocation: the text of the wall clock is all there is."""
    old = ran("vllm", started_at="2025-12-01T00:00:00+00:00")
    assert "was run 744.0 h away" in fast(tmp_path, old, ran("fast"))["invalid_reasons"][0]
    strange = ran("vllm", started_at="yesterday")
    assert fast(tmp_path, strange, ran("fast"))["valid"]


def test_a_resumed_sweep_loses_only_the_pairs_that_it_cut_in_two(tmp_path: Path) -> None:
    """Killed in repeat 1 after the reference: repeats 0 and 2 are whole."""
    by = {("vllm", 0): "a", ("fast", 0): "a", ("vllm", 1): "a", ("fast", 1): "b"}
    by |= {("vllm", 2): "b", ("fast", 2): "b"}
    records = [ran(name, 10, repeat, environment=during(i)) for (name, repeat), i in by.items()]
    rows = summaries(run_of(tmp_path, *records))
    assert [of(rows, "fast", repeat)["valid"] for repeat in range(3)] == [True, False, True]
    assert all(of(rows, "vllm", repeat)["valid"] for repeat in range(3))


def test_another_repeat_that_serves_for_answers_is_not_too_far_away(tmp_path: Path) -> None:
    """No speed is compared with it, and answers do not age."""
    stand_in = ran("vllm", repeat=1, environment=during("a"), validity=NOISY)
    row = fast(tmp_path, stand_in, ran("fast", environment=during("b")))
    assert (row["valid"], row["void_metrics"]) == (True, [])
    clipped = ran("vllm", repeat=1, validity=CLIPPED)
    row = fast(tmp_path, clipped, ran("fast"))
    assert set(row["void_metrics"]) == set(REFERENCE.answers)
    assert row["invalid_reasons"][0].endswith("what compares answers with it is void")


def counted(backend: str, count: int, **options: Any) -> TrialRecord:
    """A server's trial that told how many tokens an answer has, and not which."""
    answers = [generation("r0", [5 * (i + 1) for i in range(count)], ids=[UNKNOWN_TOKEN] * count)]
    return record(trial(backend, options={**options}), answers)


def test_lengths_are_compared_though_the_ids_are_not_known(tmp_path: Path) -> None:
    row = fast(tmp_path, ran("vllm"), counted("fast", 2))
    assert row["valid"]
    assert set(row["void_metrics"]) == set(registry.unequal_work())
    assert row["invalid_reasons"][0].startswith("length-mismatch: 1 of 1 answers differ")
    assert row["consistency_ratio"] is None
    row = fast(tmp_path / "equal", ran("vllm"), counted("fast", 3))
    assert (row["valid"], row["consistency_ratio"]) == (True, None)


def test_lengths_made_from_text_again_are_not_compared(tmp_path: Path) -> None:
    """Such a count misses the stop token: every answer would differ."""
    row = fast(tmp_path, ran("vllm"), counted("fast", 2, token_counting="tokenizer"))
    assert row["valid"]


def test_what_is_right_is_unknown_where_ids_are(tmp_path: Path) -> None:
    """Equal counts tell nothing; another length is another answer."""
    row = fast(tmp_path, ran("vllm"), counted("fast", 3))
    assert row["good_and_right_per_s"] is None
    row = fast(tmp_path / "shorter", ran("vllm"), counted("fast", 2))
    assert row["good_and_right_per_s"] == 0.0


def test_one_reason_that_concerns_answers_is_enough(tmp_path: Path) -> None:
    both = Validity(False, (*NOISY.reasons, *CLIPPED.reasons))
    row = fast(tmp_path, ran("vllm", validity=both), ran("fast"))
    assert set(row["void_metrics"]) == {*REFERENCE.speed, *REFERENCE.answers}


def test_a_repeat_that_is_unsound_by_itself_spoils_the_interval_of_the_others_only(
    tmp_path: Path,
) -> None:
    """Not what has no value (there is no plain decoding), and not the reference's noise floor."""
    records = [ran("vllm", 20, repeat) for repeat in (0, 1)]
    records += [ran("fast", 10, 0, validity=NOISY), ran("fast", 10, 1)]
    for one in records:
        more = [*one.generations, generation("r1", [5, 9, 20])]
        object.__setattr__(one, "generations", more)
    later = of(summaries(run_of(tmp_path, *records)), "fast", 1)
    assert (later["valid"], later["void_metrics"]) == (True, POOLED)


def test_the_noise_floor_is_of_repeats_whose_answers_may_be_believed(tmp_path: Path) -> None:
    """Repeats 0 and 2 agree; the clipped one differs from both. A noisy one answers as ever."""
    records = [ran("vllm", repeat=0), ran("vllm", repeat=2, validity=NOISY)]
    other = record(
        trial("vllm", options=BLOCK, repeat=1), [answer(10, [1, 9, 3])], validity=CLIPPED
    )
    rows = summaries(run_of(tmp_path, *records, other))
    assert {row["noise_floor"] for row in rows} == {1.0}


def drawn(backend: str, kernels: str | None, *capabilities: str) -> TrialRecord:
    """A sampled trial of an engine that names its kernels or none."""
    one = ran(backend)
    options = {} if kernels is None else {"kernels": kernels}
    info = BackendInfo(backend, "1", "official code", options, False, frozenset(capabilities))
    warm = replace(one.trial, sampling=Sampling(temperature=0.7))
    return replace(one, trial=warm, backend=info)


@pytest.mark.parametrize(
    ("ours", "void"),
    [
        (drawn("fast", None), ()),
        (drawn("fast", None, "rejection-sampling"), REFERENCE.answers),
        (drawn("fast", "native"), REFERENCE.answers),
    ],
    ids=["the same engine", "drafts drawn again", "another engine"],
)
def test_sampled_texts_of_other_random_numbers_are_not_compared(
    tmp_path: Path, ours: TrialRecord, void: tuple[str, ...]
) -> None:
    row = fast(tmp_path, drawn("vllm", None), ours)
    assert (row["valid"], set(row["void_metrics"])) == (True, set(void))
    assert [reason.partition(":")[0] for reason in row["invalid_reasons"]] == [
        "other-draws"
    ] * bool(void)


def test_greedy_texts_are_compared_whoever_draws(tmp_path: Path) -> None:
    ours = replace(drawn("fast", "native"), trial=ran("fast").trial)
    reference = replace(drawn("vllm", None), trial=ran("vllm").trial)
    assert fast(tmp_path, reference, ours)["void_metrics"] == []
