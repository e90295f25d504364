"""Captured runs, with stand-ins for CUDA."""

from __future__ import annotations

import contextlib
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from backends.engine.executors.cuda_calls.graph import capture


def test_a_replay_keeps_what_its_graph_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph has the addresses of tensors alone: were they freed, it would write into whatever
    lies there by then."""
    replayed: list[str] = []

    class GraphStandIn:
        def replay(self) -> None:
            replayed.append("graph")

    def nothing(*_: Any, **__: Any) -> Any:
        return contextlib.nullcontext()

    stream = SimpleNamespace(wait_stream=lambda _: None)
    for name, stand_in in (
        ("graph_pool_handle", lambda: None),
        ("Stream", lambda: stream),
        ("current_stream", lambda: stream),
        ("stream", nothing),
        ("device", nothing),
        ("graph", nothing),
        ("CUDAGraph", GraphStandIn),
    ):
        monkeypatch.setattr(torch.cuda, name, stand_in)

    class CountedWork:
        calls = 0

        def __call__(self) -> None:
            self.calls += 1

    work = CountedWork()
    alive = weakref.ref(work)
    (run,) = capture([work], torch.device("cpu"))
    assert work.calls == 2, "before its capture and in it"
    del work
    gc.collect()
    assert alive() is not None
    run()
    assert replayed == ["graph"]
