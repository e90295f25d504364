"""A stand-in for `vllm-early-exit`: the same calls, answers known in advance, no engine.

A prompt has a hardness between 0 and 1 of its own. Where the threshold is below it the answer comes
out wrong in its last words, and every step exits at the first layer checked, of 8; else at the last
one. With an exit after layer 7 every answer is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from harness.core.nouns import BackendInfo, Commit, Model, Request

DEPTH = 8
TOKENS = 12


def hardness(ids: tuple[int, ...]) -> float:
    return int.from_bytes(hashlib.sha256(repr(ids).encode()).digest()[:4]) / 2**32


class FakeExits:
    """One token per request and poll, like an engine."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = {"layers": [2, 4], **options}
        self.setting: dict[str, Any] = {}
        self.live: dict[str, tuple[list[int], Request]] = {}
        self.decoded: list[tuple[float | None, int]] = []
        """Threshold and number of requests in flight, at each first token."""
        self.closed = False
        self.on_poll: Callable[[], None] = lambda: None
        tokenizer = models.load_tokenizer(models.BUNDLED["demo"])
        self.right = tokenizer.encode(
            "one two three four five six seven eight nine ten", add_special_tokens=False
        )[:TOKENS]
        self.wrong = tokenizer.encode(" other words follow here", add_special_tokens=False)

    @property
    def info(self) -> BackendInfo:
        return BackendInfo("vllm-early-exit", "1.2", "re-implementation", self.options, False)

    def configure(self, options: Mapping[str, Any]) -> None:
        assert not self.live
        self.setting = dict(options)

    def reset(self) -> None:
        self.live.clear()

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def submit(self, request: Request) -> None:
        self.live[request.id] = (self.answer(request.prompt_ids), request)

    def poll(self) -> list[Commit]:
        self.on_poll()
        fresh = [r for left, r in self.live.values() if len(left) == len(self.answer(r.prompt_ids))]
        if fresh:
            self.decoded.append((self.setting.get("threshold"), len(fresh)))
        return [self._commit(name) for name in list(self.live)]

    def answer(self, ids: tuple[int, ...]) -> list[int]:
        return self.right[:4] + self.wrong if self.is_wrong(ids) else list(self.right)

    def is_wrong(self, ids: tuple[int, ...]) -> bool:
        if self.setting["measure"] == "never":
            return False
        if self.options["layers"][-1] == 7:
            return True
        return float(self.setting["threshold"]) < hardness(ids)

    def _commit(self, name: str) -> Commit:
        left, request = self.live[name]
        first = len(left) == len(self.answer(request.prompt_ids))
        run = self.options["layers"][0 if self.is_wrong(request.prompt_ids) else -1]
        if self.setting["measure"] == "never":
            run = DEPTH
        work = {"steps": 1, "layers_run": run, "layers_skipped": DEPTH - run, "layers_total": DEPTH}
        if self.setting["measure"] != "never":
            work |= {f"checks_layer_{x}": 1 for x in self.options["layers"] if x <= run}
        token = left.pop(0)
        if not left:
            del self.live[name]
        return Commit(name, (token,), None if left else "stop", {} if first else work)


class Opener:
    """Takes the place of `backends.open_backend`."""

    def __init__(self) -> None:
        self.opened: list[FakeExits] = []
        self.on_poll: Callable[[], None] = lambda: None

    def __call__(
        self, name: str, model_dir: Path | None, model: Model, options: Mapping[str, Any]
    ) -> FakeExits:
        assert name == "vllm-early-exit"
        assert model_dir is not None
        assert model.dtype == "float32"
        self.opened.append(FakeExits(options))
        self.opened[-1].on_poll = lambda: self.on_poll()
        return self.opened[-1]

    def decoded(self) -> int:
        """Requests started over all engines."""
        return sum(count for engine in self.opened for _, count in engine.decoded)
