"""`tetris` against `own-early-exit`: the same exits in one process, the same text."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from backends import open_backend
from backends.checkpoints import models
from backends.tetris.serving.processes import StageProcesses
from benchmarks.support.turns import requests_of
from harness.core.backend import Backend
from harness.core.nouns import Commit, Model, Request, Sampling

MODEL = Model("demo")
Answers = dict[str, tuple[int, ...]]
Meanwhile = Callable[[Backend, int], None]


def requests() -> list[Request]:
    """Of two workloads; every third one is sampled."""
    found = [*requests_of("demo", "gsm8k", 9), *requests_of("demo", "xsum", 9)]
    return [
        replace(one, id=str(n), sampling=Sampling(temperature=0.8, top_p=0.9, seed=n))
        if n % 3 == 0
        else replace(one, id=str(n))
        for n, one in enumerate(found)
    ]


def opened(name: str, options: dict[str, Any]) -> Backend:
    return open_backend(name, models.resolve(MODEL), MODEL, {"threads": 1, **options})


def answers(
    backend: Backend,
    wanted: Iterable[Request],
    at_once: int = 5,
    meanwhile: Meanwhile = lambda backend, tokens: None,
) -> tuple[Answers, list[Commit]]:
    """Every request's tokens, a new one for each that ends; all commits."""
    waiting = list(wanted)
    found: dict[str, list[int]] = {}
    commits: list[Commit] = []
    under_way = 0
    while waiting or under_way:
        while waiting and under_way < at_once:
            backend.submit(waiting.pop(0))
            under_way += 1
        for commit in backend.poll():
            commits.append(commit)
            found.setdefault(commit.request_id, []).extend(commit.token_ids)
            under_way -= commit.finished is not None
        meanwhile(backend, sum(map(len, found.values())))
    return {name: tuple(tokens) for name, tokens in found.items()}, commits


def reference(options: dict[str, Any]) -> Answers:
    backend = opened("own-early-exit", options)
    try:
        return answers(backend, requests())[0]
    finally:
        backend.close()


@pytest.mark.parametrize(
    ("exits", "pipeline"),
    [
        pytest.param({"layers": [3], "threshold": 0.5}, {}, id="two stages"),
        pytest.param(
            {"layers": [1, 2, 5], "thresholds": [0.9, 0.6, 0.4]},
            {"stages": 4, "batch": 3, "wait_ms": 0.2, "prefill_tokens": 40},
            id="four stages, fused batches, prompts in pieces",
        ),
        pytest.param(
            {"layers": [2, 4], "threshold": 0.9, "measure": "state"}, {"stages": 3}, id="state"
        ),
        pytest.param(
            {"layers": [2, 4], "threshold": 0.7, "measure": "classifier"},
            {"stages": 3},
            id="classifier",
        ),
        pytest.param(
            {"layers": [2], "threshold": 0.6, "decay": "calm", "heads": "auto"}, {}, id="trained"
        ),
        pytest.param({"measure": "never"}, {"stages": 3}, id="nobody leaves"),
        pytest.param({"measure": "never"}, {"stages": 1, "max_num_seqs": 3}, id="one stage"),
    ],
)
def test_the_text_is_that_of_the_same_exits_in_one_process(
    exits: dict[str, Any], pipeline: dict[str, Any]
) -> None:
    backend = opened("tetris", {**exits, **pipeline})
    try:
        found, commits = answers(backend, requests())
        assert found == reference(exits)
        backend.reset()
        assert answers(backend, requests(), at_once=2)[0] == found
    finally:
        backend.close()
    cuts = [0, *backend.info.options["layers"], 8]
    assert_counted(commits, [end - start for start, end in itertools.pairwise(cuts)])
    layers = {int(c.telemetry["layers_run"]) for c in commits if "layers_run" in c.telemetry}
    ends = {8, *exits.get("layers", ())}
    assert layers <= ends
    assert exits["measure"] == "never" if "measure" in exits and layers == {8} else len(layers) > 1


def replaced(commits: list[Commit]) -> float:
    return sum(c.telemetry.get(f"stage_replaced_{n}", 0.0) for c in commits for n in (1, 2, 3))


def assert_counted(commits: list[Commit], layers: list[int]) -> None:
    """What the stages say that they did, against the tokens that came."""
    sums: Counter[str] = Counter()
    for commit in commits:
        sums.update(commit.telemetry)
    first, *behind = (f"stage_{{}}_{n}" for n in range(1, len(layers) + 1))
    told = [sums[name.format("left")] for name in (first, *behind)]
    arrived = [sums[name.format("rows")] for name in (first, *behind)]
    assert sum(told) == arrived[0] == sums["steps"]
    assert arrived == [sum(told[n:]) for n in range(len(layers))]
    run = [sums[name.format("layers")] for name in (first, *behind)]
    assert run == [rows * own for rows, own in zip(arrived, layers, strict=True)]
    assert sum(run) == sums["layers_run"]
    filled = [sums[name.format("filled")] for name in (first, *behind)]
    assert all(some <= sum(told[:n]) for n, some in enumerate(filled))
    assert any(filled) == (len(set(told)) > 1 and told[-1] < sum(told))
    for name in (first, *behind):
        assert 0 < sums[name.format("passes")] <= sums[name.format("rows")]
        assert sums[name.format("pass_us")] > 0
        assert sums[name.format("other_us")] > 0, "prompts"


def test_stages_that_are_killed_lose_nothing_and_change_nothing() -> None:
    """One after another, several at once, and in the middle of prompts."""
    exits = {"layers": [2, 4], "thresholds": [0.97, 0.9]}
    kills = [(0, [0]), (150, [1]), (300, [2]), (450, [0, 1, 2])]
    backend = opened("tetris", {**exits, "stages": 3, "prefill_tokens": 64})

    def kill(backend: Backend, tokens: int) -> None:
        if kills and tokens >= kills[0][0]:
            processes = vars(backend)["_executor"]
            assert isinstance(processes, StageProcesses)
            for stage in kills.pop(0)[1]:
                os.kill(processes.pids()[stage], signal.SIGKILL)

    try:
        found, commits = answers(backend, requests(), meanwhile=kill)
    finally:
        backend.close()
    assert not kills
    assert found == reference(exits)
    assert replaced(commits) >= 5
    assert_counted(commits, [2, 2, 4])
    ends = [c.request_id for c in commits if c.finished is not None]
    assert sorted(ends) == sorted(found)


@pytest.mark.parametrize("stages", [{"stages": 2}, {"stages": 1, "measure": "softmax"}])
def test_lengths_are_replayed_where_no_ramp_is_asked(stages: dict[str, Any]) -> None:
    told = {}
    for name, asked in (("own-early-exit", {}), ("tetris", stages)):
        backend = opened(name, {"measure": "never", "replay": "demo", **asked})
        try:
            wanted = [replace(r, id=f"gsm8k/test/{n}") for n, r in enumerate(requests()[:4])]
            told[name], commits = answers(backend, wanted)
        finally:
            backend.close()
    assert not [key for c in commits for key in c.telemetry if key.startswith("checks")]
    assert told["tetris"] == told["own-early-exit"]


def test_a_stage_that_hangs_is_replaced_and_the_text_stays() -> None:
    exits = {"layers": [2, 4], "thresholds": [0.97, 0.9]}
    hangs = [(40, 2), (200, 0)]
    backend = opened("tetris", {**exits, "stages": 3, "answered_within_s": 3.0})

    def hang(backend: Backend, tokens: int) -> None:
        if hangs and tokens >= hangs[0][0]:
            os.kill(vars(backend)["_executor"].pids()[hangs.pop(0)[1]], signal.SIGSTOP)

    try:
        found, commits = answers(backend, requests(), meanwhile=hang)
    finally:
        backend.close()
    assert not hangs
    assert found == reference(exits)
    assert replaced(commits) >= 2


def test_decisions_are_replayed_exit_by_exit() -> None:
    """Those of the bundled trace, whoever would leave by himself."""
    counted = []
    for name, stages in (
        ("own-early-exit", {}),
        ("tetris", {"stages": 3}),
        ("tetris", {"stages": 3, "replicas": [2, 1, 2]}),
    ):
        backend = opened(name, {"layers": [3, 4], "replay": "demo", **stages})
        assert backend.info.provenance == "measured cost, replayed decisions"
        try:
            wanted = [replace(r, id=f"gsm8k/test/{n}") for n, r in enumerate(requests()[:6])]
            _, commits = answers(backend, wanted, at_once=3)
        finally:
            backend.close()
        runs: dict[str, list[float]] = {}
        for commit in commits:
            runs.setdefault(commit.request_id, []).append(commit.telemetry.get("layers_run", 0))
        counted.append(runs)
    assert counted[0] == counted[1] == counted[2]
    assert {layers for one in counted[0].values() for layers in one} >= {3, 4, 8}
