"""What the load loop asks of the kernel, and gives back; the kernel is the test's."""

from __future__ import annotations

import contextlib
import ctypes
import platform
from typing import Any

import pytest

from harness.measure.load_loop import run_load
from harness.measure.machine.scheduling import prompt_wakeups
from tests.support.harness.puppet import CLOSED, Puppet, requests

GET, SET = 315, 314
NICE = 7


class Kernel:
    """A thread with the default slack and slice; `known`: whether slices can be set."""

    def __init__(self, known: bool) -> None:
        self.known = known
        self.slack_ns = 50_000
        self.runtime, self.flags, self.nice = 3_000_000, 0x10, NICE

    def prctl(self, what: int, value: Any, *_: int) -> int:
        if what == 30:
            return self.slack_ns
        assert what == 29
        self.slack_ns = value.value
        return 0

    def syscall(self, number: int, thread: int, reference: Any, *_: int) -> int:
        assert thread == 0
        if not self.known:
            return -1
        attributes = reference._obj
        if number == GET:
            attributes.runtime, attributes.flags = self.runtime, self.flags
            attributes.nice = self.nice
        else:
            assert number == SET
            self.runtime, self.flags = attributes.runtime, attributes.flags
            self.nice = attributes.nice
        return 0

    @property
    def state(self) -> tuple[int, int, int, int]:
        return self.slack_ns, self.runtime, self.flags, self.nice


@pytest.fixture(params=[True, False], ids=["Linux 6.12", "older"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    fake = Kernel(request.param)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    return fake


def test_a_thread_wakes_promptly_inside_and_as_before_outside(kernel: Kernel) -> None:
    """A microsecond of slack, the kernel's smallest slice, neither for the threads it starts."""
    before = kernel.state
    with prompt_wakeups():
        inside = (1_000, 100_000, 0x10 | 1, NICE)
        assert kernel.state == (inside if kernel.known else (1_000, *before[1:]))
    assert kernel.state == before
    with contextlib.suppress(KeyError), prompt_wakeups():
        raise KeyError
    assert kernel.state == before


def test_the_load_runs_with_prompt_wakeups(kernel: Kernel) -> None:
    seen: list[int] = []
    run_load(Puppet(work=lambda: seen.append(kernel.slack_ns)), requests(1), CLOSED)
    assert seen == [1_000]
    assert kernel.slack_ns == 50_000


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "x86_64"), ("Linux", "riscv64")])
def test_elsewhere_nothing_is_asked(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "system", lambda: system)
    with prompt_wakeups():
        assert kernel.slack_ns == 50_000
