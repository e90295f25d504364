"""What is noted of a network's parts, while a backend runs it as before."""

from __future__ import annotations

import pytest

from backends import open_backend
from backends.checkpoints import models
from backends.classifiers.one_device import OneDeviceBackend
from backends.classifiers.part_times import ENTER, FINAL, PartClock
from harness.core.nouns import Label, Model, Request
from workloads import bundled

FOLDER = models.BUNDLED["demo-sentiment"]
MODEL = Model("demo-sentiment", dtype="float32")


class _Counted:
    """A network whose parts take a known number of ticks of a clock of its own."""

    depth, ramps, classes, longest, vocabulary = 2, (1,), 2, 8, 16

    def __init__(self) -> None:
        self.now = 0.0

    def _take(self, ticks: float) -> None:
        self.now += ticks

    def start(self, _: object) -> list[object]:
        self._take(1)
        return []

    def gather(self, _: object) -> None:
        self._take(2)

    def layer(self, number: int, _: object) -> None:
        self._take(10 * number)

    def ramp(self, _number: int, _: object) -> None:
        self._take(100)

    def final(self, _: object) -> None:
        self._take(5)


def test_a_part_is_noted_without_its_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _Counted()
    monkeypatch.setattr("backends.classifiers.part_times.time.perf_counter", lambda: network.now)
    clock = PartClock(network)  # type: ignore[arg-type]
    for _ in range(3):
        clock.start([])
        clock.gather([])
        clock.layer(1, None)
        clock.ramp(1, None)
        clock.gather([])  # between segments: no part
        clock.layer(2, None)
        clock.final(None)
        network.now *= 2  # the first time differs
    assert clock.means_ms() == {ENTER: 3e3, 1: 1e4, 2: 2e4, FINAL: 5e3}
    assert clock.means_ms() == {}
    clock.layer(1, None)
    assert clock.means_ms() == {1: 1e4}  # once is better than nothing


def test_a_backend_that_is_timed_gives_the_same_labels() -> None:
    tokenizer = models.load_tokenizer(FOLDER)
    rows = bundled.rows("sentiment", "test", 12, 5)
    wanted = [
        Request(str(n), tuple(tokenizer.encode(row["sentence"])), 1, answer="label")
        for n, row in enumerate(rows)
    ]
    labels = []
    for timed in (False, True):
        options = {"threads": 1, "batch": 4}
        backend = open_backend("classifier-early-exit", FOLDER, MODEL, options)
        assert isinstance(backend, OneDeviceBackend)
        clock = backend.clocked() if timed else None
        for one in wanted:
            backend.submit(one)
        found: dict[str, Label | None] = {}
        while len(found) < len(wanted):
            found |= {one.request_id: one.label for one in backend.poll()}
        labels.append(found)
        backend.close()
    assert labels[0] == labels[1]
    assert clock is not None
    assert len(clock.seconds[ENTER]) == 3
    assert {ENTER, 1} <= set(clock.means_ms())
