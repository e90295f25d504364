"""Stages that die at any moment, played: the text is that of one process, no wait endless."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, cast

import pytest

from backends.engine.streams import Output, Stream
from backends.tetris.serving import pipeline as pipeline_module
from backends.tetris.serving.jobs import StageDone
from backends.tetris.serving.pipeline import MOST_DEATHS, StagePipeline
from backends.tetris.serving.processes import StageProcesses
from backends.tetris.serving.queues import StageQueues
from tests.support.tetris.driving import EACH_LAYERS, LONGEST, driven, loads, rule_of
from tests.support.tetris.mortal_stages import WORDS, MortalStages, alone

SETS = 150
ANSWER = 40


def piped(
    played: MortalStages,
    bounds: tuple[float, ...],
    slots: int,
    batch: int,
    piece: int,
    rows: int | None = None,
    replicas: tuple[int, ...] | None = None,
) -> StagePipeline:
    """Where `rows` of a stage are told, prompts are whole. Replicas: one each by default."""
    rule, layers = rule_of(bounds)
    queues = StageQueues(
        replicas or (1,) * (len(bounds) + 1),
        rule,
        slots=slots,
        batch=batch,
        prefill_tokens=piece,
        whole_prompts=rows is not None,
    )
    processes = cast(StageProcesses, cast(Any, played))
    return StagePipeline(processes, rule, layers, queues, rows=rows or piece)


def stream(draw: random.Random, name: str) -> Stream:
    prompt = tuple(draw.randrange(WORDS) for _ in range(draw.randint(1, LONGEST)))
    stops = frozenset(draw.sample(range(WORDS), draw.choice([0, 0, 1, 3])))
    return Stream(name, prompt, draw.choice([1, 2, 5, 17, ANSWER]), stops)


@pytest.mark.parametrize("deadly", [0.0, 0.03])
def test_the_text_is_that_of_one_process_whoever_dies_whenever(
    deadly: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "MOST_DEATHS", 10**6)
    restarts = 0
    for seed in range(SETS):
        draw = random.Random(seed)
        count, slots = draw.choice([1, 2, 2, 3, 3, 4]), draw.randint(1, 5)
        batch, piece = draw.choice([1, 1, 2, 3, 9]), draw.choice([1, 3, 7, 40])
        bounds = tuple(draw.choice([0.1, 0.3, 0.5, 0.8, 0.95]) for _ in range(count - 1))
        rows = draw.choice([None, LONGEST + ANSWER])
        most = draw.choice([1, 3])
        replicas = tuple(draw.randint(1, most) for _ in range(count))
        played = MortalStages(
            replicas,
            slots=slots,
            rows=rows or piece,
            seed=seed,
            deadly=deadly,
            whole=rows and piece,
        )
        played.slow = draw.choice([None, *range(sum(replicas))])
        pipeline = piped(played, bounds, slots, batch, piece, rows, replicas)
        for load in loads(pipeline, draw, stream, bounds, WORDS, seed):
            for name, left in load.left.items():
                told = [x.counts for x in load.told[name]]
                layers = [counts["layers_run"] for counts in told if "layers_run" in counts]
                assert layers == [EACH_LAYERS * (at + 1) for at in left[: len(layers)]], seed
            if load.whole:
                assert_counted(load.told, count)
        restarts += played.restarts
    assert restarts > 2 * SETS if deadly else restarts == 0


def assert_counted(told: dict[str, list[Output]], count: int) -> None:
    """All tokens that went through a stage, though it ran some of them again."""
    sums: Counter[str] = Counter()
    for outputs in told.values():
        for output in outputs:
            sums.update(output.counts)
    counts = [x.counts for outputs in told.values() for x in outputs]
    layers = [x["layers_run"] for x in counts if "layers_run" in x]
    for stage in range(1, count + 1):
        assert sums[f"stage_rows_{stage}"] == sum(n >= EACH_LAYERS * stage for n in layers)
        assert sums[f"stage_left_{stage}"] == sum(n == EACH_LAYERS * stage for n in layers)


def test_a_stage_that_dies_of_every_job_is_given_up_whoever_else_answers() -> None:
    """The first stage goes on telling tokens of one that leaves there."""
    played = MortalStages((1, 1), slots=2, rows=8)
    pipeline = piped(played, (0.5,), slots=2, batch=1, piece=8)
    sure = {"easy": -1.0, "hard": 2.0}
    cast(Any, pipeline._queues)._bound = lambda _, one: sure[one.stream.id]
    for name in sure:
        pipeline.add(Stream(name, (1,), 500))
    order = [output.id for _ in range(20) for output in pipeline.step()]
    assert set(order) == set(sure)
    played.cursed = 1
    steps = (pipeline.step() for _ in range(1000))
    with pytest.raises(RuntimeError, match=f"stage 2 ended with code -9; {MOST_DEATHS + 1} died"):
        order += [output.id for outputs in steps for output in outputs]
    assert played.restarts == MOST_DEATHS


def test_who_stays_goes_on_though_another_one_could_always_join_it() -> None:
    """A batch of two waits for a second one, which leaves before at every token."""
    played = MortalStages((1, 1), slots=2, rows=8)
    pipeline = piped(played, (0.5,), slots=2, batch=2, piece=8)
    queues = pipeline._queues
    sure = {"easy": -1.0, "hard": 2.0}
    cast(Any, queues)._bound = lambda _, one: sure[one.stream.id]
    for name in sure:
        pipeline.add(Stream(name, (1,), 60))
    order = [output.id for _ in range(400) for output in pipeline.step()]
    assert order.count("hard") == order.count("easy") == 60
    last = max(place for place, name in enumerate(order) if name == "easy")
    assert order[:last].count("hard") > 10


def test_who_owes_is_filled_though_others_keep_the_stage_at_work() -> None:
    played = MortalStages((1, 1), slots=3, rows=8)
    pipeline = piped(played, (0.5,), slots=3, batch=1, piece=8)
    queues = pipeline._queues
    sure = {"easy": -1.0, "hard 1": 2.0, "hard 2": 2.0}
    cast(Any, queues)._bound = lambda _, one: sure[one.stream.id]
    cast(Any, played).ready = lambda busy, _: sorted(busy)
    pipeline.add(Stream("easy", (1,), 60))
    pipeline.add(Stream("hard 1", (1,), 300))
    order = [output.id for _ in range(4) for output in pipeline.step()]
    # one step apart, so that one of them is in the second stage at any time
    pipeline.add(Stream("hard 2", (1,), 300))
    order += [output.id for _ in range(900) for output in pipeline.step()]
    assert order.count("easy") == 60
    assert order[:300].count("easy") == 60


def test_what_a_stage_raises_ends_a_trial_and_not_the_next_one() -> None:
    """It has answered: nobody waits for it any more."""
    played = MortalStages((1, 1), slots=2, rows=8)
    pipeline = piped(played, (0.5,), slots=2, batch=1, piece=8)
    hear, raised = played.receive, [0, 0, 1]

    def receive(index: int) -> StageDone:
        done = hear(index)
        if raised and raised.pop(0):
            raise RuntimeError("stage 1: MemoryError")
        return done

    cast(Any, played).receive = receive
    for name in "ab":
        pipeline.add(Stream(name, (1, 2, 3), 9))
    steps = (pipeline.step() for _ in range(20))
    with pytest.raises(RuntimeError, match="MemoryError"):
        list(steps)
    pipeline.reset()
    again = Stream("c", (4, 5), 9)
    told = driven(pipeline, [again], random.Random(0), 10**9)
    answer, _ = alone(again.prompt, 9, frozenset(), (0.5,))
    assert [token for output in told["c"] for token in output.tokens] == answer


def test_answers_of_one_token_tell_what_their_prompts_took() -> None:
    pipeline = piped(MortalStages((1, 1), slots=2, rows=4), (0.5,), slots=2, batch=1, piece=4)
    for number in range(3):
        pipeline.add(Stream(str(number), tuple(range(9)), 1))
    told: Counter[str] = Counter()
    while outputs := pipeline.step():
        for output in outputs:
            told.update(output.counts)
    assert set(told) == {"stage_other_us_1", "stage_other_us_2"}
