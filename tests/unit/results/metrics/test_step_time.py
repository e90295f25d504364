"""Where the time of a step goes, on trials whose times were chosen by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import results
from harness.core.ceilings import Ceilings, ceilings_from_json
from harness.core.names import ATTENDED, PASS_US, attended
from harness.core.nouns import Generation, Measured, TrialRecord
from results import Store, load
from results.metrics import step_time
from results.metrics.arrays import from_record
from tests.support.results.make_trials import generation, record, told, trial

REFERENCE = Path(results.__file__).parent / "reference"
BYTES = {"layer": 1_000, "layers": 4, "head": 2_000, "kv": 10}
READS = Ceilings("cpu", "test", {1: {1: 1e6}, 2: {1: 2e6}}, {1: 1e9}, {})
"""Bytes per second, whatever the size."""


def answer(name: str = "r0", begin_ms: float = 0.0, **counts: float) -> Generation:
    """11 tokens, one each 10 ms: 10 steps in 100 ms, the passes of which took 40 ms."""
    known = {"steps": 10.0, "layers_run": 40.0, ATTENDED: 300.0, PASS_US: 40_000.0} | counts
    return generation(name, [begin_ms + 10 * i for i in range(11)], telemetry=known)


def made(
    *generations: Generation,
    known: Mapping[str, int] | None = BYTES,
    ceilings: Ceilings | None = READS,
    options: Mapping[str, Any] = {},
) -> TrialRecord:
    backend = dataclasses.replace(told("vllm", options), measured=Measured(pass_bytes=known))
    environment = {"ceilings": None if ceilings is None else ceilings.to_json()}
    found = record(trial(), generations)
    model = dataclasses.replace(found.trial.model, dtype="bfloat16")
    return dataclasses.replace(
        found,
        trial=dataclasses.replace(found.trial, model=model),
        backend=backend,
        environment=environment,
    )


def shares(found: TrialRecord) -> dict[str, float | None]:
    known = ceilings_from_json(found.environment.get("ceilings"))
    return step_time.shares(from_record(found), found, known)


def test_a_step_is_floor_passes_and_overhead() -> None:
    found = shares(made(answer()))
    assert found["step_s"] == pytest.approx(0.010)
    assert found["overhead_share"] == pytest.approx(0.6)
    read = 40 * 1_000 + 10 * 2_000 + 300 * 10
    assert found["floor_share"] == pytest.approx(read / 2e6 / 0.1)


def test_waiting_for_anothers_prompt_is_no_step() -> None:
    """The second request begins 35 ms after the first one, whose steps take 10 ms, and whose prompt
    took 60 ms."""
    own = [0.0, 10.0, 20.0, 30.0, 100.0, 110.0]
    counts = {"steps": 5.0, "layers_run": 20.0, ATTENDED: 50.0, PASS_US: 80_000.0}
    first = generation("r0", own, telemetry=counts)
    second = generation("r1", [95.0], telemetry={"steps": 0.0, **dict.fromkeys([ATTENDED], 0.0)})
    found = shares(made(first, second))
    assert found["prompts_share"] == pytest.approx(60 / 110)
    assert found["step_s"] == pytest.approx(0.010)
    alone = shares(made(generation("r0", [10.0 * n for n in range(6)], telemetry=counts)))
    assert found["floor_share"] == pytest.approx(alone["floor_share"], rel=0.05)
    # both trials' engines took what the passes did not
    told = shares(made(first))
    assert told["prompts_share"] == 0.0
    assert told["step_s"] == pytest.approx(0.022)


def test_making_drafts_is_neither_the_models_time_nor_overhead() -> None:
    found = shares(made(answer(draft_us=25_000.0)))
    assert found["draft_share"] == pytest.approx(0.25)
    assert found["overhead_share"] == pytest.approx(0.35)
    assert shares(made(answer()))["draft_share"] is None


def test_many_rows_are_bound_by_arithmetic() -> None:
    slow = dataclasses.replace(READS, bf16_flop_per_s={2: 1.5e6})
    found = shares(made(answer(), ceilings=slow))
    assert found["floor_share"] == pytest.approx(60_000 / 1.5e6 / 0.1)
    both = shares(made(answer("r0"), answer("r1"), ceilings=slow))
    assert both["floor_share"] == pytest.approx(2 * 60_000 / 1.5e6 / 0.1)
    verified = shares(made(answer(judged_at_1=2.0, judged_at_2=1.0), ceilings=slow))
    assert verified["floor_share"] == pytest.approx((10 + 3) * 6_000 / 1.5e6 / 0.1)
    staged: dict[str, Any] = {"stage_passes_1": 10.0, "stage_layers_1": 20.0, "stage_rows_1": 10.0}
    apart = shares(made(answer(**staged, judged_at_1=2.0), ceilings=slow))
    assert apart["floor_share"] == pytest.approx(60_000 / 1.5e6 / 0.1), "others multiply meanwhile"
    single = made(answer(), ceilings=slow)
    model = dataclasses.replace(single.trial.model, dtype="float32")
    single = dataclasses.replace(single, trial=dataclasses.replace(single.trial, model=model))
    assert shares(single)["floor_share"] == pytest.approx(63_000 / 2e6 / 0.1)


def test_the_threads_that_the_backend_had_decide_the_bandwidth() -> None:
    one, two = shares(made(answer(), options={"threads": 1})), shares(made(answer()))
    assert one["floor_share"] == pytest.approx(2 * (two["floor_share"] or 0))


def test_each_row_of_a_step_reads_a_cache_of_its_own_and_the_weights_are_read_once() -> None:
    side_by_side = shares(made(answer("r0"), answer("r1")))
    one_by_one = shares(made(answer("r0"), answer("r1", begin_ms=100)))
    read = 40 * 1_000 + 10 * 2_000
    assert side_by_side["floor_share"] == pytest.approx((read + 2 * 3_000) / 2e6 / 0.1)
    assert one_by_one["floor_share"] == pytest.approx((read + 3_000) / 2e6 / 0.1)


def test_layers_that_did_not_run_were_not_read() -> None:
    half = shares(made(answer(layers_run=20.0)))
    assert half["floor_share"] == pytest.approx((20_000 + 20_000 + 1_500) / 2e6 / 0.1)


CACHED = dataclasses.replace(READS, read_bytes_per_s={1: {3_000: 4e6, 6_000: 2e6}})
"""Twice as fast where a small cache holds what is read."""
FIRST = {"stage_rows_1": 10.0, "stage_layers_1": 10.0, "stage_passes_1": 10.0}
SECOND = {"stage_rows_2": 10.0, "stage_layers_2": 30.0, "stage_passes_2": 10.0}


@pytest.mark.parametrize(
    ("counts", "rate"),
    [
        ({}, 2e6),
        # who leaves behind the first layer reads it and a head again and again
        ({"layers_run": 10.0}, 4e6),
        (FIRST | SECOND, 4e6),
        (SECOND, 2e6 + 2e6 * (1 - math.log(5 / 3) / math.log(2))),
        # a verification's layers with those of its drafts are no more than the model's
        ({"layers_run": 80.0}, 2e6),
    ],
)
def test_what_a_process_reads_again_decides_how_fast(
    counts: Mapping[str, Any], rate: float
) -> None:
    found = shares(made(answer(**counts), ceilings=CACHED))
    layers = counts.get("layers_run", 40.0)
    read = layers * 1_000 + 10 * 2_000 + 300 * 10 * layers / 40
    assert found["floor_share"] == pytest.approx(read / rate / 0.1)


@pytest.mark.parametrize("record", ["cpu/sizes", "h200/sizes"])
def test_no_stored_step_is_faster_than_its_floor(record: str) -> None:
    """By over 5%: an error of counting, or of the machine's rates."""
    trials = load(REFERENCE / record).trials
    valid = trials[trials.valid & trials.full_passes_per_token.notna()]
    assert len(valid) > 10
    assert valid.floor_share.notna().all(), "it would be unknown"


def test_all_trials_of_a_machine_have_its_best_rates(tmp_path: Path) -> None:
    """One was measured while the machine was slow, another machine is another one; who is faster
    than the rates allow has no floor."""
    slow = Ceilings("cpu", "test", {1: {1: 1e5}, 2: {1: 1e6}}, {1: 1e9}, {})
    store = Store(tmp_path)
    store.write_experiment(yaml.safe_dump({"name": "one", "reference": "vllm"}))
    for repeat, (ceilings, machine) in enumerate([(slow, "a"), (READS, "a"), (slow, "b")]):
        one = made(answer(), ceilings=ceilings)
        asked = dataclasses.replace(one.trial, repeat=repeat)
        where = {**one.environment, "fingerprint": machine}
        store.write(dataclasses.replace(one, key=f"{repeat:020d}", trial=asked, environment=where))
    read = 40 * 1_000 + 10 * 2_000 + 300 * 10
    found = load(tmp_path).trials.sort_values("repeat").floor_share
    assert found.tolist() == pytest.approx([read / 2e6 / 0.1] * 2 + [read / 1e6 / 0.1])
    for rate, share in ((1.02, 1 / 1.02), (0.98, 1.0), (0.94, None)):
        reads = Ceilings("cpu", "test", {1: {1: rate * read / 0.1}}, {1: 1e9}, {})
        reached = shares(made(answer(), ceilings=reads))["floor_share"]
        assert reached == pytest.approx(share), "so little above as rates differ by"


def test_a_verification_reads_the_cache_once_for_all_its_tokens() -> None:
    """Of 11 tokens 10 were verified in 4 passes, each of which reads what one of plain decoding's
    does: 30 positions."""
    found = shares(made(answer(steps=4.0, layers_run=16.0)))
    assert found["floor_share"] == pytest.approx((16_000 + 8_000 + 4 * 300) / 2e6 / 0.1)


CHECKED: dict[str, Any] = {"checks_layer_1": 10.0, "checks_layer_2": 6.0, "exits_layer_1": 4.0}


@pytest.mark.parametrize(
    ("options", "counts", "read"),
    [
        ({"heads": "original"}, {}, 16 * 2_000),
        ({"measure": "softmax"}, {}, 16 * 2_000),
        # at an exit the logits of the check are the step's own
        ({"measure": "softmax"}, {"batch_rows": 10.0}, 12 * 2_000),
        ({"measure": "classifier"}, {"batch_rows": 10.0}, 0),
        ({"measure": "state"}, {}, 0),
        ({"shortlist": 40}, {}, 16 * 40 * 20),
        ({"shortlist": 40, "head_dtype": "fp8"}, {}, 16 * 40 * 10),
        ({"head_dtype": "fp8"}, {}, 16 * 1_000),
    ],
)
def test_exit_heads_that_ran_were_read(
    options: Mapping[str, Any], counts: Mapping[str, Any], read: int
) -> None:
    known = {**BYTES, "head_row": 20}
    found = shares(made(answer(**CHECKED, **counts), options=options, known=known))
    assert found["floor_share"] == pytest.approx((63_000 + read) / 2e6 / 0.1)


def test_a_shortlist_of_unknown_size_is_left_out_of_the_floor() -> None:
    found = shares(made(answer(**CHECKED), options={"shortlist": 40}))
    assert found["floor_share"] == pytest.approx(63_000 / 2e6 / 0.1)


def test_one_token_has_no_steps_and_failures_do_not_count() -> None:
    short = generation("r1", [5.0], telemetry={"cached_tokens": 0.0})
    lost = dataclasses.replace(answer("r2", steps=1000.0), finished="error", error="gone")
    assert shares(made(answer(), short, lost)) == shares(made(answer()))


def test_what_is_not_known_is_none() -> None:
    assert shares(made(answer(), known=None))["floor_share"] is None
    assert shares(made(answer(), ceilings=None))["floor_share"] is None
    untold = generation("r0", [0.0, 10.0], telemetry={"steps": 1.0})
    assert shares(made(untold)) == {
        "step_s": pytest.approx(0.01),
        "prompts_share": 0.0,
        "overhead_share": None,
        "draft_share": None,
        "floor_share": None,
    }
    partly = shares(made(answer(), generation("r1", [0.0, 10.0], telemetry={"steps": 1.0})))
    assert partly["overhead_share"] is None
    silent = generation("r0", [0.0, 10.0])
    assert set(shares(made(silent)).values()) == {None}
    once = generation("r0", [0.0, 0.0], telemetry={"steps": 1.0})
    assert set(shares(made(once)).values()) == {None}


def test_passes_over_rounding_are_no_negative_overhead() -> None:
    assert shares(made(answer(pass_us=100_001.0)))["overhead_share"] == 0.0


@pytest.mark.parametrize(
    ("prompt", "tokens", "positions"), [(5, 1, 0), (5, 2, 6), (5, 4, 6 + 7 + 8), (0, 0, 0)]
)
def test_a_token_attends_to_all_before_it_and_itself(
    prompt: int, tokens: int, positions: int
) -> None:
    assert attended(prompt, tokens) == positions
