"""The backend `own-early-exit`: the reference that `vllm-early-exit` is held against, one sequence
at a time, and one line for what it cannot take."""

from __future__ import annotations

import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from backends import open_backend
from backends.checkpoints import models
from backends.engine.executors.base import StepRows
from backends.engine.executors.native import NativeExecutor
from backends.own.backend import EngineBackend
from harness.core.backend import Backend
from harness.core.nouns import REPLAYED, Commit, Load, Model, Request, Sampling
from harness.measure.load_loop import run_load
from tests.support.exits.demo_answers import demo_requests
from tests.support.exits.exit_models import (
    read_classifier,
    write_classifier,
    write_exit_model,
    write_heads,
)
from tests.support.exits.exit_reference import ExitReference, Rule
from tests.support.exits.replays import record, write_recorded

NAME = "own-early-exit"
DEMO = models.BUNDLED["demo"]
ROOM = {"threads": 1, "max_num_seqs": 3, "max_model_len": 128}
SOFTMAX: dict[str, Any] = {"layers": [1, 3, 5], "thresholds": [0.35, 0.25, 0.2]}
CASES: dict[str, dict[str, Any]] = {
    "softmax": SOFTMAX,
    "softmax, trained heads": {**SOFTMAX, "heads": "TRAINED"},
    "softmax, a layer that nothing passes": {"layers": [2, 4, 6], "thresholds": [1.0, 0.2, 0.3]},
    "softmax, calm": {**SOFTMAX, "decay": "calm", "decay_tau": 2.0},
    "state": {"measure": "state", "layers": [1, 3, 5], "thresholds": [0.5, 0.75, 0.9]},
    "state, t5x": {
        "measure": "state",
        "layers": [2, 3, 6],
        "thresholds": [0.75, 0.9, 0.9],
        "decay": "t5x",
    },
    "classifier": {
        "measure": "classifier",
        "layers": [1, 4],
        "thresholds": [0.6, 0.5],
        "classifier": "TRAINED",
    },
    "never": {"measure": "never"},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exits")
    model = write_exit_model(folder / "model", "grouped")
    return {
        "model": model,
        "heads": write_heads(folder / "heads", model),
        "classifier": write_classifier(folder / "classifier", model),
    }


def opened(directory: Path, dtype: str = "float32", **options: Any) -> Backend:
    return open_backend(NAME, directory, Model("m", dtype=dtype), {**ROOM, **options})


def named(options: dict[str, Any], files: dict[str, Path]) -> dict[str, Any]:
    """With the paths of what was trained."""
    return {key: str(files[key]) if value == "TRAINED" else value for key, value in options.items()}


def requests_of(count: int = 7) -> list[Request]:
    return [
        Request(f"r{n}", tuple((7 * n + 3 * i * i) % 101 for i in range(3 + 4 * n)), 40 - 2 * n)
        for n in range(count)
    ]


def reference(options: dict[str, Any], files: dict[str, Path]) -> ExitReference:
    return ExitReference(
        files["model"],
        Rule(
            options.get("measure", "softmax"),
            tuple(options.get("layers", ())),
            tuple(options.get("thresholds", ())),
            options.get("decay", "none"),
            options.get("decay_tau", 4.0),
            heads=files["heads"] if "heads" in options else None,
            classifier=read_classifier(files["classifier"]) if "classifier" in options else None,
        ),
    )


def expected(plain: ExitReference, request: Request) -> tuple[list[int], Counter[int]]:
    """The answer of one request by itself, and how many of its tokens left after each layer."""
    plain.submit(request)
    tokens = list(plain.step({request.id: (0, len(request.prompt_ids))}).tokens.values())
    exits: Counter[int] = Counter()
    while len(tokens) < request.max_new_tokens and tokens[-1] != 1:
        decided = plain.step({request.id: (len(request.prompt_ids) + len(tokens) - 1, 1)})
        tokens += decided.tokens.values()
        exits[decided.exit_layer] += 1
    return tokens, exits


def served(backend: Backend, requests: list[Request], in_flight: int) -> dict[str, Any]:
    found = {g.request_id: g for g in run_load(backend, requests, Load("closed", in_flight))}
    backend.close()
    return found


@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_the_text_and_exits_of_the_reference(
    case: str, kernels: str, files: dict[str, Path]
) -> None:
    given = CASES[case]
    plain = reference(given, files)
    told = {request.id: expected(plain, request) for request in requests_of()}
    assert plain.logit_margin > 1e-4
    assert plain.confidence_margin > 1e-5
    left: Counter[int] = Counter()
    for batching, in_flight in (("lockstep", 5), ("ready", 5), ("ready", 1)):
        options = {**named(given, files), "batching": batching, "kernels": kernels}
        found = served(opened(files["model"], **options), requests_of(), in_flight)
        for name, (tokens, exits) in told.items():
            told_of = found[name].telemetry
            assert found[name].token_ids == tokens, (name, batching)
            assert told_of["layers_run"] == sum(layer * n for layer, n in exits.items())
            assert told_of["layers_total"] == 8 * exits.total() == 8 * told_of["steps"]
            assert told_of["layers_skipped"] == told_of["layers_total"] - told_of["layers_run"]
            assert {
                int(key.removeprefix("exits_layer_")): int(count)
                for key, count in told_of.items()
                if key.startswith("exits_layer_")
            } == {layer: count for layer, count in exits.items() if layer < 8}
            left += exits
    assert len(left) > 1 or case == "never"


def test_telemetry_counts_checks_and_batches(files: dict[str, Path]) -> None:
    found = served(opened(files["model"], **SOFTMAX), requests_of(), 3)
    total: Counter[str] = Counter()
    for generation in found.values():
        total.update({k: int(v) for k, v in generation.telemetry.items()})
    assert total["checks_layer_1"] == total["steps"]
    assert total["checks_layer_3"] == total["steps"] - total["exits_layer_1"]
    assert total["own_exits_layer_3"] == total["exits_layer_3"] > 0
    batches = {k: n for k, n in total.items() if k.startswith("decode_steps_batch_")}
    assert sum(batches.values()) == total["steps"]
    assert set(batches) <= {f"decode_steps_batch_{n}" for n in (1, 2, 3)}
    sizes = sum(int(name.rsplit("_", 1)[1]) * count for name, count in batches.items())
    assert sizes == total["batch_rows"]


def test_sampled_answers_do_not_depend_on_their_company(files: dict[str, Path]) -> None:
    requests = [
        Request(r.id, r.prompt_ids, r.max_new_tokens, Sampling(0.8, 0.95, n))
        for n, r in enumerate(requests_of())
    ]
    for extra in ({}, CASES["state"]):
        texts = [
            {n: g.token_ids for n, g in served(backend, requests, c).items()}
            for c, backend in (
                (1, opened(files["model"], **{**SOFTMAX, **extra})),
                (3, opened(files["model"], batching="lockstep", **{**SOFTMAX, **extra})),
                (3, opened(files["model"], **{**SOFTMAX, **extra})),
            )
        ]
        assert texts[0] == texts[1] == texts[2]


def test_who_never_leaves_gives_the_text_of_plain_decoding() -> None:
    requests = demo_requests(1)
    plain = open_backend("autoregressive", DEMO, Model("demo", dtype="bfloat16"), _wide())
    same = opened(DEMO, "bfloat16", **{**_wide(), "layers": [2, 4], "threshold": 1.0})
    assert not same.info.lossless
    texts = [{n: g.token_ids for n, g in served(b, requests, 3).items()} for b in (plain, same)]
    assert texts[0] == texts[1]
    whole = opened(DEMO, "bfloat16", **{**_wide(), "measure": "never"})
    assert whole.info.lossless
    assert {n: g.token_ids for n, g in served(whole, requests, 3).items()} == texts[0]


def _wide() -> dict[str, Any]:
    return {**ROOM, "max_model_len": 1024}


def test_the_demo_model_leaves_as_it_was_calibrated() -> None:
    backend = opened(DEMO, "bfloat16", **_wide())
    assert backend.info.options["layers"] == [3, 4]
    assert backend.info.options["threshold"] == 0.7
    assert backend.info.provenance == "re-implementation"
    assert not backend.info.lossless
    found = served(backend, demo_requests(1), 3)
    run, total = (
        sum(g.telemetry.get(name, 0) for g in found.values())
        for name in ("layers_run", "layers_total")
    )
    assert 3 / 8 < run / total < 1 / 2, "most tokens leave at one of the two"


@pytest.mark.parametrize("batching", ["lockstep", "ready"])
def test_replayed_decisions_are_those_of_the_trace(batching: str) -> None:
    """Whatever is in flight; as `vllm-early-exit` replays them, which is recorded there."""
    requests = [
        Request(r.id.replace("-", "/test/"), r.prompt_ids, 24, ignore_eos=True)
        for r in demo_requests(2)
    ]
    found = []
    for in_flight in (1, 3):
        backend = opened(DEMO, "bfloat16", **_wide(), replay="demo", batching=batching)
        assert backend.info.provenance == REPLAYED
        told = served(backend, requests, in_flight)
        found.append({n: g.telemetry["layers_run"] for n, g in told.items()})
        assert {len(g.token_ids) for g in told.values()} == {24}
    assert found[0] == found[1]
    assert len(set(found[0].values())) > 1


def test_recorded_decisions_are_those_that_were_made(files: dict[str, Path]) -> None:
    options = {**SOFTMAX, "thresholds": [0.35, 1.0, 0.2], "record": True}
    backend = opened(files["model"], **options)
    assert backend.info.options["layers"] == [1, 5]
    assert backend.info.options["thresholds"] == [0.35, 0.2]
    for generation in served(backend, requests_of(), 3).values():
        decisions = generation.decisions
        assert decisions is not None
        count = len(generation.token_ids) - 1
        assert decisions.positions == list(range(count))
        pairs = list(zip(decisions.confidence[::2], decisions.confidence[1::2], strict=True))
        first = sum(a > 0.35 for a, _ in pairs)
        assert first == generation.telemetry.get("exits_layer_1", 0)
        assert [math.isnan(b) for _, b in pairs] == [a > 0.35 for a, _ in pairs]
        assert set(decisions.agrees) <= {-1}


def test_a_replay_of_a_record_does_the_same_work(files: dict[str, Path], tmp_path: Path) -> None:
    """Whatever is in flight; on the model itself, whose texts are then others' lengths."""
    real = opened(files["model"], **SOFTMAX, record=True)
    trace = write_recorded(tmp_path / "trace", real, record(real, requests_of(), 3))
    expected = served(real, requests_of(), 3)
    for batching, in_flight in (("ready", 1), ("ready", 3), ("lockstep", 3)):
        again = opened(files["model"], replay=str(trace), batching=batching)
        assert again.info.options["layers"] == SOFTMAX["layers"]
        assert again.info.options["thresholds"] == SOFTMAX["thresholds"]
        found = served(again, requests_of(), in_flight)
        for name, generation in expected.items():
            assert len(found[name].token_ids) == len(generation.token_ids)
            for count in ("layers_run", "steps", "exits_layer_1", "checks_layer_5"):
                assert found[name].telemetry.get(count) == generation.telemetry.get(count)


def test_filling_in_is_time_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_s, fills = 0.02, 0
    fill = NativeExecutor.fill

    def slow(self: NativeExecutor, index: int, rows: StepRows) -> None:
        nonlocal fills
        fills += 1
        time.sleep(slow_s)
        fill(self, index, rows)

    monkeypatch.setattr(NativeExecutor, "fill", slow)
    backend = open_backend(NAME, DEMO, Model("demo"), {"layers": [2], "threshold": 0.5})
    assert fills == 1, "what has to be prepared is prepared before any request"
    fills = 0
    try:
        assert isinstance(backend, EngineBackend)
        one = demo_requests(1)[0]
        backend.submit(one)
        commits: list[Commit] = []
        while not any(commit.finished for commit in commits):
            commits += backend.poll()
    finally:
        backend.close()
    assert fills >= 2
    assert sum(c.telemetry.get("pass_us", 0.0) for c in commits) >= 1e6 * slow_s * fills
