"""Prompts and decodes in steps of their own: vLLM's real scheduler, made-up loads, no model."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.vllm.arguments import ENVIRONMENT
from tests.support.child import CHILDREN
from tests.support.exits.exit_models import write_exit_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]
ROOT = Path(__file__).resolve().parents[5]
RUNS = 60


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    model = write_exit_model(tmp_path_factory.mktemp("model"), "grouped")
    child = CHILDREN / "scheduler_child.py"
    run = subprocess.run(
        [sys.executable, str(child), str(model), "0", str(RUNS)],
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(found) == 2 * RUNS
    return found


@pytest.fixture(scope="module")
def apart(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [run for run in runs if run["kind"] == "separate"]


def kinds(run: dict[str, Any]) -> Iterator[tuple[set[str], set[str]]]:
    """Of each step the requests that read prompt tokens, and those that decode.

    Prompt tokens are also those that a preempted request computes once more, up to the row that
    brings its next token.
    """
    preempted: dict[str, int] = {}
    replaying: set[str] = set()
    for step in run["steps"]:
        prompts = set()
        for name, (start, _, times, brings_token) in step["rows"].items():
            if times > preempted.get(name, 0):
                replaying.add(name)
            if start < run["asked"][name][0] or name in replaying:
                prompts.add(name)
            preempted[name] = times
            replaying -= {name} if brings_token else set()
        yield prompts, set(step["rows"]) - prompts


def test_the_loads_are_hard(runs: list[dict[str, Any]]) -> None:
    """Requests wait, share prefixes, are cut into chunks, preempted and aborted; and vLLM's own
    scheduler mixes most of what is kept apart here."""
    rows = [
        (run["asked"][name][0], *row[:3])
        for run in runs
        for step in run["steps"]
        for name, row in step["rows"].items()
    ]
    assert max(times for *_, times in rows) >= 2
    assert any(start and count == 1 and start + 1 == prompt for prompt, start, count, _ in rows)
    assert sum(bool(run["aborted"]) for run in runs) > RUNS / 4
    assert {run["shape"]["asynchronous"] for run in runs} == {False, True}
    mixed = [run for run in runs if run["kind"] == "mixed"]
    assert sum(any(a and b for a, b in kinds(run)) for run in mixed) > RUNS / 2


def test_no_step_reads_prompts_and_decodes(apart: list[dict[str, Any]]) -> None:
    for run in apart:
        assert [pair for pair in kinds(run) if all(pair)] == [], run["seed"]


def test_everything_is_answered(apart: list[dict[str, Any]]) -> None:
    for run in apart:
        lengths = {n: run["lengths"][n] for n in run["asked"] if n not in run["aborted"]}
        wanted = {n: run["asked"][n][1] for n in lengths}
        assert lengths == wanted, run["seed"]


def test_what_decodes_waits_for_one_prompt_step_at_most(apart: list[dict[str, Any]]) -> None:
    for run in apart:
        steps = list(zip(run["steps"], kinds(run), strict=True))
        for (before, (_, first)), (step, (_, second)) in itertools.pairwise(steps):
            waiting = set(before["decoding"]) & set(step["decoding"])
            decoded = first | second
            assert not waiting or decoded, run["seed"]


def test_a_begun_prompt_goes_on_in_every_second_step(apart: list[dict[str, Any]]) -> None:
    """Or finds no room for its next chunk: then the step is empty and the prompt gives way."""
    for run in apart:
        begun: dict[str, int] = {}
        for number, (step, (prompts, _)) in enumerate(zip(run["steps"], kinds(run), strict=True)):
            begun = {n: since for n, since in begun.items() if n in step["reading"]}
            if prompts or not step["rows"]:
                begun = dict.fromkeys(begun, number)
            assert all(number - since < 2 for since in begun.values()), run["seed"]
            chunks = (n for n, row in step["rows"].items() if not row[3])
            begun |= dict.fromkeys(chunks, number)


def test_few_steps_are_empty(apart: list[dict[str, Any]]) -> None:
    """A prompt step that found no room is not tried again before something was freed."""
    for run in apart:
        if not run["shape"]["asynchronous"]:
            empty = sum(not step["rows"] for step in run["steps"])
            assert empty <= 2 * len(run["asked"]) + len(run["aborted"]), run["seed"]
