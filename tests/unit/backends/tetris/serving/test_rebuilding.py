"""Where a stage that is built again gets its states from."""

from __future__ import annotations

from typing import Any, cast

from backends.engine.streams import Stream
from backends.tetris.serving.jobs import StageDone, StageJob
from backends.tetris.serving.processes import StageProcesses
from backends.tetris.serving.rebuilding import Rebuilding
from backends.tetris.serving.staged import StagedStream


class NotedJobs:
    """Processes that note their jobs: worker, what is done, positions."""

    def __init__(self) -> None:
        self.noted: list[tuple[int, str, list[int]]] = []

    def send(self, index: int, job: StageJob) -> None:
        what = "recall" if job.recall else "fill" if len(job.fills) else f"run from {job.source}"
        assert job.is_prompt == (what.startswith("run") and job.rows.positions[0] < 3)
        rows = job.fills if len(job.fills) else job.rows
        self.noted.append((index, what, rows.positions.tolist()))

    def receive(self, index: int) -> StageDone:
        return StageDone()


def rebuilt(
    stage: int, rows: int, done: list[int], workers: tuple[int, ...] = (0, 1, 2)
) -> list[tuple[int, str, list[int]]]:
    """Of a prompt of three tokens, behind which positions left stages 0, 1, 2 and 0."""
    stream = Stream("r", (5, 6, 7), 10, tokens=[5, 6, 7, 1, 2, 3, 4], done=done, slot=0)
    one = StagedStream(stream, workers, left=[0, 1, 2, 0])
    processes = NotedJobs()
    Rebuilding(cast(StageProcesses, cast(Any, processes)), rows).rebuild(stage, [one])
    return processes.noted


def test_each_position_comes_from_the_stage_that_it_left() -> None:
    assert rebuilt(2, 9, [7, 7, 7]) == [
        (1, "recall", [0, 1, 2]), (2, "run from spare", [0, 1, 2]),
        (0, "recall", [3]), (2, "fill", [3]),
        (1, "recall", [4]), (2, "fill", [4]),
        (1, "recall", [5]), (2, "run from spare", [5]),
        (0, "recall", [6]), (2, "fill", [6]),
    ]  # fmt: skip


def test_who_left_behind_the_stage_ran_there() -> None:
    assert rebuilt(1, 2, [7, 6, 4]) == [
        (0, "recall", [0, 1]), (1, "run from spare", [0, 1]),
        (0, "recall", [2]), (1, "run from spare", [2]),
        (0, "recall", [3]), (1, "fill", [3]),
        (0, "recall", [4, 5]), (1, "run from spare", [4, 5]),
    ]  # fmt: skip


def test_the_first_stage_begins_with_tokens() -> None:
    assert rebuilt(0, 5, [6, 4, 0]) == [
        (0, "run from tokens", [0, 1, 2]), (0, "run from tokens", [3, 4, 5]),
    ]  # fmt: skip


def test_those_are_asked_to_whom_the_stream_belongs() -> None:
    assert rebuilt(2, 9, [7, 7, 5], (1, 2, 5)) == [
        (2, "recall", [0, 1, 2]), (5, "run from spare", [0, 1, 2]),
        (1, "recall", [3]), (5, "fill", [3]),
        (2, "recall", [4]), (5, "fill", [4]),
    ]  # fmt: skip
