"""Drafts on their way through stages that die at any moment: the text is plain decoding's."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest

from backends import check_options, open_backend
from backends.checkpoints import models, traces
from backends.engine.executors.base import RING
from backends.engine.streams import Output, Stream
from backends.tetris.serving import pipeline as pipeline_module
from backends.tetris.serving.drafts.pipeline import VerifyingPipeline
from backends.tetris.serving.drafts.queues import DraftQueues
from backends.tetris.serving.processes import StageProcesses
from harness.core.errors import UserError
from harness.core.nouns import Model, Request
from tests.support.tetris.driving import ENDLESS, LONGEST, driven, loads, rule_of
from tests.support.tetris.mortal_stages import MortalStages, alone
from tests.unit.backends.tetris.serving.test_texts import MODEL, answers, opened, requests

SETS = 150
WORDS = 3
"""So that a stage is right now and then."""
NOBODY = 2.0


def verifying(
    played: MortalStages,
    bounds: tuple[float, ...],
    slots: int,
    batch: int,
    piece: int,
    replicas: tuple[int, ...],
) -> VerifyingPipeline:
    rule, layers = rule_of(bounds)
    queues = DraftQueues(replicas, rule, slots=slots, batch=batch, prefill_tokens=piece)
    processes = cast(StageProcesses, cast(Any, played))
    return VerifyingPipeline(processes, rule, layers, queues, rows=piece)


def stream(draw: random.Random, name: str) -> Stream:
    prompt = tuple(draw.randrange(WORDS) for _ in range(draw.randint(1, LONGEST)))
    stops = frozenset([0] if draw.random() < 0.3 else [])
    return Stream(name, prompt, draw.choice([1, 2, 5, 17, 40]), stops)


@pytest.mark.parametrize("deadly", [0.0, 0.03])
def test_the_text_is_plain_decodings_whoever_dies_whenever(
    deadly: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "MOST_DEATHS", 10**6)
    sums: Counter[str] = Counter()
    restarts = asks = 0
    for seed in range(SETS):
        draw = random.Random(seed)
        count, slots = draw.choice([2, 2, 3, 4]), draw.randint(1, 5)
        batch, piece = draw.choice([1, 1, 2, 3, 9]), draw.choice([1, 3, 7, 40])
        bounds = tuple(draw.choice([0.02, 0.1, 0.3, 0.5, 0.95]) for _ in range(count - 1))
        most = draw.choice([1, 3])
        replicas = tuple(draw.randint(1, most) for _ in range(count))
        played = MortalStages(
            replicas, slots=slots, rows=piece, seed=seed, deadly=deadly, words=WORDS, drafts=True
        )
        played.slow = draw.choice([None, *range(sum(replicas))])
        pipeline = verifying(played, bounds, slots, batch, piece, replicas)
        nobody = (NOBODY,) * len(bounds)
        for load in loads(pipeline, draw, stream, nobody, WORDS, seed):
            outputs = [x for outputs in load.told.values() for x in outputs]
            assert_counted(outputs)
            for output in outputs:
                sums.update(output.counts)
        restarts += played.restarts
        asks += played.asks
    assert restarts > 2 * SETS if deadly else restarts == 0
    assert sums["drafted"] > 2 * sums["accepted"] > SETS
    assert sums["accepted_at_3"] > 10
    checks = sum(value for name, value in sums.items() if name.startswith("checks_layer"))
    assert 0.8 * asks < checks <= asks


def wanted(count: int) -> list[Request]:
    """Requests of which the bundled traces know what was decided."""
    return [replace(r, id=f"gsm8k/test/{n}") for n, r in enumerate(requests()[:count])]


def assert_counted(outputs: list[Output]) -> None:
    """Of each verification: what it told is what stood and one token more, or ends the answer."""
    for output in outputs:
        counts = output.counts
        if "steps" not in counts:
            continue
        more = counts["step_tokens"] - counts["accepted"]
        assert more in (0, 1)
        assert counts["accepted"] <= counts["drafted"] < 2 * RING
        assert counts["early_predictions"] == counts["drafted"]
        by_layer = [value for name, value in counts.items() if name.startswith("accepted_layer")]
        assert sum(by_layer) == counts["accepted"]


EXITS = [
    pytest.param({"layers": [3], "threshold": 0.5}, id="two stages"),
    pytest.param({"layers": [3], "threshold": 0.5, "replicas": [2, 2]}, id="replicas"),
    pytest.param(
        {"layers": [1, 2, 5], "threshold": 0.02, "stages": 4, "batch": 3, "prefill_tokens": 40},
        id="four stages, wrong every other time",
    ),
    pytest.param({"layers": [2, 4], "threshold": 0.9, "measure": "state", "stages": 3}, id="state"),
]


@pytest.mark.parametrize("exits", EXITS)
def test_processes_tell_the_text_of_plain_decoding(exits: dict[str, Any]) -> None:
    plain, piped = opened("autoregressive", {}), opened("tetris", {"verify": True, **exits})
    try:
        assert piped.info.lossless
        found, commits = answers(piped, requests())
        assert found == answers(plain, requests())[0]
        piped.reset()
        assert answers(piped, requests()[:4], at_once=2)[0] == {
            name: found[name] for name in map(str, range(4))
        }
    finally:
        plain.close()
        piped.close()
    sums: Counter[str] = Counter()
    for commit in commits:
        sums.update(commit.telemetry)
    assert 100 < sums["accepted"] < sums["drafted"]
    layers = [sums[f"stage_layers_{n}"] for n in range(1, 5)]
    assert sums["layers_total"] <= sum(layers)
    assert sums["layers_run"] < sum(layers), "a pass over several positions counts once"
    assert not any(sums[f"stage_left_{n}"] for n in range(1, 5))


def test_random_weights_replay_what_adadecode_decided() -> None:
    """Drafts stand and fall as the trace of adadecode says."""
    model = Model("0.1b", dtype="bfloat16", shape=True, layers=3)
    options = {"replay": "demo", "max_model_len": 512, "max_num_seqs": 4, "threads": 1}
    told: list[tuple[float, float]] = []
    for name, asked in (
        ("adadecode", {"exit_layers": [1], "gamma": 0.1, "max_batch": 8}),
        ("tetris", {"verify": True, "layers": [1], "threshold": 0.1}),
    ):
        backend = open_backend(name, models.resolve(model), model, {**options, **asked})
        try:
            assert not backend.info.lossless
            _, commits = answers(backend, wanted(9), at_once=3)
        finally:
            backend.close()
        sums: Counter[str] = Counter()
        for commit in commits:
            sums.update(commit.telemetry)
        accepted, judged = (
            sum(value for name, value in sums.items() if name.startswith(f"{what}_at"))
            for what in ("accepted", "judged")
        )
        told.append((accepted / judged, accepted / sums["step_tokens"]))
    assert 0.5 < told[0][0] < 1
    assert told[0][0] == pytest.approx(told[1][0], abs=0.02)
    assert min(told[0][1], told[1][1]) > 0.7, "most of the tokens were drafts"


def test_a_file_that_is_replayed_is_of_adadecode() -> None:
    where, folder = "backend 'tetris': option 'replay'", models.resolve(MODEL)
    of_drafts, of_exits = (
        str(traces.BUNDLED / f"{name}.parquet") for name in ("adadecode", "vllm-early-exit")
    )
    drafted = {"verify": True, "replay": of_drafts}
    check_options("tetris", drafted, folder)
    for options, told in (
        ({**drafted, "replay": of_exits}, "a trace of 'vllm-early-exit', not of 'adadecode'$"),
        ({**drafted, "verify": False}, "a trace of 'adadecode', not of 'tetris'$"),
        ({**drafted, "measure": "state"}, "recorded with measure softmax, not state$"),
        ({**drafted, "replay": {"acceptance": 0.9}}, "the rates have no 'exits'$"),
    ):
        with pytest.raises(UserError, match=f"^{where}: .*{told}"):
            check_options("tetris", options, folder)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"stages": 1}, "'stages: 1'"),
        ({"measure": "never"}, "'measure: never'"),
        ({"record": True}, "'record: true'"),
    ],
)
def test_what_verifies_nothing_is_one_line(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=f"option 'verify' has no meaning with {told}$"):
        check_options("tetris", {"verify": True, **options}, models.resolve(MODEL))


def test_a_replica_that_is_late_writes_over_nothing_of_the_next_stream_in_its_slot() -> None:
    """Two streams at a time: the first of the next two belongs to the first replica, in the slot of
    whichever ended last, of whom drafts behind its stop token may be under way in the second, a
    slow one. Prompts are short, so that the same places are used."""
    stops = frozenset([0])
    for seed in range(SETS):
        draw = random.Random(seed)
        played = MortalStages((2, 1), slots=2, rows=4, seed=seed, words=WORDS, drafts=True)
        played.slow = 1
        pipeline = verifying(played, (0.02,), 2, 1, 4, (2, 1))
        for _ in range(10):
            pair = [Stream(name, (draw.randrange(WORDS),), 8, stops) for name in "ab"]
            told = driven(pipeline, pair, draw, ENDLESS)
            for one in pair:
                found = [token for output in told[one.id] for token in output.tokens]
                assert found == alone(one.prompt, 8, stops, (NOBODY,), WORDS)[0], seed
