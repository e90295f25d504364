from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from harness.core.nouns import BackendInfo, FinishReason, Generation, Load, Measured, Validity
from harness.measure.checks import check_trial, percentile
from harness.measure.machine.snapshots import Disturbance
from tests.support.harness.sessions import make_trial

MS = 1_000_000
NOT_SEEN = [
    "noise-not-checked: what else the server's machine did cannot be seen from here",
]
QUIET = Disturbance(0.0, 0.02, 1.03, 0, ())
INFO = BackendInfo("scripted", "1", "simulation", {}, True)


def generation(
    number: int,
    tokens: tuple[int, ...] = (1, 2, 3, 4),
    finished: FinishReason | None = "length",
    **more: Any,
) -> Generation:
    return Generation(f"r{number}", 0, 0, token_ids=list(tokens), finished=finished, **more)


def check(
    generations: list[Generation],
    disturbance: Disturbance | None = QUIET,
    info: BackendInfo = INFO,
    requests: int | None = None,
    **options: Any,
) -> tuple[bool, list[str]]:
    trial = make_trial(requests=requests or len(generations), **options)
    verdict = check_trial(trial, generations, info, disturbance)
    return verdict.valid, list(verdict.reasons)


def good(count: int) -> list[Generation]:
    return [generation(i) for i in range(count)]


def test_a_remark_leaves_a_trial_valid() -> None:
    verdict = check_trial(make_trial(requests=100), good(100), INFO, QUIET, remarks=["a: b"])
    assert (verdict.valid, verdict.reasons) == (True, ("a: b",))


def test_an_engine_whose_cache_was_too_small_is_remarked_on() -> None:
    info = dataclasses.replace(INFO, options={"kv_cache_tokens": 512})
    roomy = [generation(i, telemetry={"preemptions": 0}) for i in range(100)]
    assert check(roomy, info=info) == (True, [])
    tight = [generation(i, telemetry={"preemptions": i % 2}) for i in range(100)]
    valid, [reason] = check(tight, info=info)
    assert valid
    assert reason.startswith("kv-starved: 50 preemptions in a KV cache of 512 tokens")


def test_thresholds_calibrated_for_other_prompts_or_answers_are_remarked_on() -> None:
    name, most = (trial := make_trial(requests=100)).workload.name, trial.max_new_tokens
    said = "calibrated-otherwise: the thresholds' calibration is of"
    for limits, reasons in (
        ({name: None, "other": 1}, ()),
        ({name: most + 1}, (f"{said} answers of at most {most + 1} tokens, and not of {most}",)),
        ({"one": most, "two": None}, (f"{said} one, two, and not of {name}",)),
    ):
        info = dataclasses.replace(INFO, measured=Measured(calibration_limits=limits))
        for load in (trial.load, Load("quality", concurrency=1)):
            verdict = check_trial(dataclasses.replace(trial, load=load), good(100), info, QUIET)
            assert verdict == Validity(True, reasons)


def test_a_clean_trial_of_a_hundred_requests_is_valid_without_a_word() -> None:
    assert check(good(100)) == (True, [])
    assert check(good(100), disturbance=None) == (True, [])


@pytest.mark.parametrize(
    ("count", "valid", "reason"),
    [
        (99, True, "too-few-samples: 99 answers say nothing about p99 (p99 needs 100)"),
        (
            20,
            True,
            "too-few-samples: 20 answers say nothing about p99 (p99 needs 100)",
        ),
        (
            19,
            True,
            "too-few-samples: 19 answers say nothing about p95, p99 (p95 needs 20, p99 needs 100)",
        ),
        (
            5,
            True,
            "too-few-samples: 5 answers say nothing about p95, p99 (p95 needs 20, p99 needs 100)",
        ),
        (
            4,
            False,
            "too-few-samples: 4 answers say nothing about p50, p95, p99 "
            "(p50 needs 5, p95 needs 20, p99 needs 100)",
        ),
    ],
)
def test_small_trials_say_which_percentiles_mean_nothing(
    count: int, valid: bool, reason: str
) -> None:
    assert check(good(count)) == (valid, [reason])


def test_failures_and_unfinished_requests_invalidate() -> None:
    broken = generation(0, (1,), "error", error="connection closed")
    valid, reasons = check([broken, *good(100)[1:]])
    assert not valid
    assert reasons[0] == "failures: 1 of 100 requests failed (first: r0: connection closed)"
    assert check([generation(0, (1,), None), *good(101)[1:]]) == (
        False,
        ["failures: 1 of 101 requests did not finish"],
    )
    # a failed request is no answer
    few = check([broken, *good(99)[1:]])[1][1]
    assert few.startswith("too-few-samples: 98 answers say nothing about p99")
    # what was never submitted did not finish either
    assert check(good(100), requests=130)[1] == ["failures: 30 of 130 requests did not finish"]


def test_a_late_client_invalidates_at_the_99th_percentile() -> None:
    late = [generation(i, client_lag_ns=(6 * MS if i < 3 else 0)) for i in range(150)]
    valid, reasons = check(late)
    assert not valid
    assert reasons == [
        "client-late: the harness itself submitted up to 6.0 ms late (p99; limit 5 ms)"
    ]
    once = [generation(i, client_lag_ns=(900 * MS if i < 1 else 5 * MS)) for i in range(150)]
    assert check(once) == (True, [])


def test_late_stamps_invalidate_first_tokens_apart_from_all() -> None:
    """One in two hundred stamps is late: hidden among all, but not where it is each first one."""
    late = [generation(i, stamp_lag_ns=[6 * MS] + [0] * 199) for i in range(100)]
    valid, reasons = check(late)
    assert not valid
    assert reasons == [
        "client-late: the harness itself stamped first tokens up to 6.0 ms late (p99; limit 5 ms)"
    ]
    late = [generation(i, stamp_lag_ns=[5 * MS, 7 * MS, 0]) for i in range(100)]
    assert check(late)[1] == [
        "client-late: the harness itself stamped tokens up to 7.0 ms late (p99; limit 5 ms)"
    ]
    in_time = [generation(i, stamp_lag_ns=[5 * MS] * 3) for i in range(100)]
    assert check(in_time) == (True, [])


def test_cached_prompt_tokens_invalidate_unless_asked_for() -> None:
    warm = [generation(i, telemetry={"cached_tokens": 16}) for i in range(100)]
    valid, reasons = check(warm)
    assert not valid
    assert reasons == ["cache-not-cold: 1600 prompt tokens came from a cache nobody asked for"]
    assert check(warm, prefix_caching=True) == (True, [])
    assert not check(warm, prefix_caching=False)[0]
    cold = [generation(i, telemetry={"cached_tokens": 0}) for i in range(100)]
    assert check(cold) == (True, [])


@pytest.mark.parametrize(
    ("capabilities", "options", "known"),
    [
        (("server",), {}, False),
        (("server",), {"prefix_caching": False}, False),
        (("server",), {"prefix_caching": True}, True),
        (("server", "cold-reset"), {}, True),
        (("server", "keeps-prompts"), {}, False),
        (("server", "keeps-prompts", "cache-telemetry"), {}, True),
        (("server", "cache-telemetry"), {}, True),
        ((), {}, True),
    ],
)
def test_a_server_must_drop_its_cache_or_count_what_came_from_it(
    capabilities: tuple[str, ...], options: dict[str, Any], known: bool
) -> None:
    """Engines inside the process are reset by the harness itself."""
    info = dataclasses.replace(INFO, capabilities=frozenset(capabilities))
    valid, reasons = check(good(100), info=info, **options)
    assert valid == known
    slugs = ["cache-unknown"] * (not known) + ["noise-not-checked"] * ("server" in capabilities)
    assert [reason.partition(":")[0] for reason in reasons] == slugs
    if not known:
        assert ("a KV connector" in reasons[0]) is ("keeps-prompts" in capabilities)


def test_a_cache_known_to_be_warm_is_not_called_unknown() -> None:
    """As a server does that reports although it did not at the probe, or could be reset and was
    filled by somebody else."""
    warm = [generation(i, telemetry={"cached_tokens": 1}) for i in range(100)]
    for capabilities in ({"server"}, {"server", "cold-reset"}):
        info = dataclasses.replace(INFO, capabilities=frozenset(capabilities))
        _, [reason, *remarks] = check(warm, info=info)
        assert reason.startswith("cache-not-cold: 100 prompt tokens")
        assert remarks == NOT_SEEN


def test_answers_cut_short_by_the_engine_invalidate() -> None:
    clipped = [generation(i, (1, 2) if i == 3 else (1, 2, 3, 4)) for i in range(100)]
    valid, reasons = check(clipped)
    assert not valid
    assert reasons == [
        "output-clipped: 1 of 100 answers ended for length before the 4 tokens asked for "
        "(first: r3 with 2)"
    ]
    by_one = [generation(i, (1, 2, 3) if i == 3 else (1, 2, 3, 4)) for i in range(100)]
    assert check(by_one)[1][0].endswith("(first: r3 with 3)")
    stopped = [generation(i, (1, 2), "stop") for i in range(100)]
    assert check(stopped) == (True, [])


@pytest.mark.parametrize(
    ("change", "slug", "part"),
    [
        ({"stolen_share": 0.03}, "machine-noisy", "3.0% of CPU time went to other guests"),
        ({"others_share": 0.4}, "machine-noisy", "other processes used 40% of CPU time"),
        ({"held_share": 0.25}, "machine-noisy", "held its threads back for 25.0% of the time"),
        ({"probe_ratio": 1.6}, "machine-noisy", "1.60 times as long"),
        ({"gpu_others": 1}, "machine-noisy", "1 other process computed on the same GPU"),
        ({"gpu_others": 2}, "machine-noisy", "2 other processes computed on the same GPU"),
        ({"asleep_s": 3600.0}, "machine-noisy", "slept for 3600 s during the trial"),
        ({"throttle_events": 4}, "clocks-throttled", "4 CPU thermal events"),
        ({"gpu_throttled": ("hardware slowdown",)}, "clocks-throttled", "GPU: hardware slowdown"),
    ],
)
def test_a_disturbed_machine_invalidates(change: dict[str, Any], slug: str, part: str) -> None:
    valid, [reason] = check(good(100), dataclasses.replace(QUIET, **change))
    assert not valid
    assert reason.startswith(f"{slug}: ")
    assert part in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("field", "bearable", "too_much"),
    [
        ("stolen_share", 0.01, 0.0101),
        ("others_share", 0.10, 0.101),
        ("held_share", 0.01, 0.0101),
        ("probe_ratio", 1.2, 1.21),
        ("throttle_events", 0, 1),
        ("asleep_s", 1.0, 1.1),
    ],
)
def test_the_limits_of_noise_are_those_that_are_written(
    field: str, bearable: float, too_much: float
) -> None:
    """One percent stolen, ten used by others, a probe a fifth slower: docs/metrics.md."""
    bound: dict[str, Any] = {field: bearable}
    assert check(good(100), dataclasses.replace(QUIET, **bound)) == (True, [])
    beyond: dict[str, Any] = {field: too_much}
    valid, [reason] = check(good(100), dataclasses.replace(QUIET, **beyond))
    assert not valid
    assert reason.startswith(("machine-noisy", "clocks-throttled"))


@pytest.mark.parametrize(("busy", "sound"), [(0, False), (0.74, False), (0.76, True), (1, True)])
def test_a_host_that_wanders_is_noise_where_no_gpu_computes(busy: float, sound: bool) -> None:
    """A pace that halves and doubles is 1.8 times slower in the host's part of the time alone."""
    wandering = dataclasses.replace(QUIET, probe_ratio=1.8, gpu_busy=busy)
    valid, reasons = check(good(100), wandering)
    assert valid is sound
    assert len(reasons) == (not sound)
    if busy and not sound:
        assert "1.80 times as long at one end of the trial as at the other, a GPU" in reasons[0]
        assert "computing in 74% of it (limit 1.2)" in reasons[0]


def test_a_servers_own_work_is_not_noise() -> None:
    server = dataclasses.replace(INFO, capabilities=frozenset({"server", "cold-reset"}))
    busy = dataclasses.replace(QUIET, others_share=0.9, gpu_others=1)
    assert check(good(100), busy, server) == (True, NOT_SEEN)
    stolen = dataclasses.replace(QUIET, stolen_share=0.9)
    assert not check(good(100), stolen, server)[0]
    cluster = dataclasses.replace(INFO, capabilities=frozenset({"other-machines"}))
    unseen = "noise-not-checked: what else the cluster's machines did cannot be seen from here"
    assert check(good(100), busy, cluster) == (True, [unseen])
    assert not check(good(100), stolen, cluster)[0]


def test_where_the_gpus_users_cannot_be_seen_nobody_says_it_was_quiet() -> None:
    unknown = dataclasses.replace(QUIET, gpu_others=None)
    valid, [reason] = check(good(100), unknown)
    assert valid
    assert reason.startswith("noise-not-checked: whether others computed on the same GPU")
    server = dataclasses.replace(INFO, capabilities=frozenset({"server", "cold-reset"}))
    assert check(good(100), unknown, server) == (True, NOT_SEEN)


def test_percentile_is_the_one_that_is_published() -> None:
    for values in ([5.0, 1.0, 3.0], [1.0], [float(n) for n in range(60)], [0.0, 10.0]):
        for share in (0.0, 0.5, 0.95, 0.99, 1.0):
            assert percentile(values, share) == pytest.approx(np.percentile(values, share * 100))
