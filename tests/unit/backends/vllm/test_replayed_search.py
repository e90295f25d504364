"""A search for drafts inside vLLM's model runner, replayed: it runs, and the trace says what it
found."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backends.vllm.drafts import ReplayedVerification

PROMPT, ANSWER = 4, 3
"""Tokens of each request, the newest included."""


@pytest.fixture(autouse=True)
def _no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it takes long."""
    module: Any = ModuleType("rejection_sampler")
    module.PLACEHOLDER_TOKEN_ID = -1
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.rejection_sampler", module)


class FoundRow:
    """For which always as many are found."""

    def __init__(self, found: int) -> None:
        self.found, self.asked = found, list[tuple[int, int]]()

    def chain(self, position: int, room: int) -> tuple[int, int]:
        self.asked.append((position, room))
        return min(self.found + 1, room), min(self.found, room)


class MadeUpRunner(SimpleNamespace):
    """With three requests, which all have as many tokens."""

    def __init__(self, method: str) -> None:
        tokens = np.zeros((3, 64), np.int32)
        tokens[:, : PROMPT + ANSWER] = np.arange(10, 10 + PROMPT + ANSWER)
        super().__init__(
            rejection_sampler=None,
            speculative_config=SimpleNamespace(method=method),
            drafter=SimpleNamespace(propose=self.search),
            input_batch=SimpleNamespace(
                req_ids=["a", "b", "c"],
                num_tokens_no_spec=np.full(3, PROMPT + ANSWER),
                num_prompt_tokens=np.full(3, PROMPT),
                token_ids_cpu=tokens,
            ),
            searched=[],
        )

    def search(self, *others: Any, **named: Any) -> list[list[int]]:
        self.searched.append((others, named))
        return [[7, 8], [7, 8, 9], []]


def test_as_many_are_verified_as_the_trace_has() -> None:
    runner = MadeUpRunner("ngram")
    replayed = ReplayedVerification(runner)
    rows: dict[str, Any] = {"a": FoundRow(3), "b": FoundRow(1), "c": FoundRow(0)}
    for name, row in rows.items():
        replayed.enter(name, row)
    found = runner.drafter.propose(3, [[1], [1, 2], [1]], "lengths", slot_mappings=None)
    assert found == [[7, 8, 10], [7], []], "filled up with the prompt; cut; nothing"
    assert runner.searched == [((3, [[1], [1, 2], [1]], "lengths"), {"slot_mappings": None})]
    assert all(row.asked == [(ANSWER - 1, 3)] for row in rows.values())
    rows["c"].found = 2
    assert runner.drafter.propose(3, [[1], [1], [1]])[2] == [10, 11]
    assert all(type(token) is int for drafts in found for token in drafts)


def test_suffix_is_asked_in_its_own_way_and_anew_where_it_forgot() -> None:
    runner = MadeUpRunner("suffix")
    replayed: Any = ReplayedVerification(runner)
    replayed.enter("a", FoundRow(1))
    replayed.enter("b", FoundRow(0))
    given = (3, runner.input_batch, [[1], [], [1]])
    assert runner.drafter.propose(*given, slot_mappings=None) == [[7], [7, 8, 9], []]
    assert runner.searched == [(given, {"slot_mappings": None})]
    runner.drafter = SimpleNamespace(propose=runner.search)
    replayed.watch_search()
    assert runner.drafter.propose(3, runner.input_batch, [[1], [1], [1]]) == [[7], [], []]


def test_others_keep_what_was_found() -> None:
    """A request that is not replayed, and one whose prompt is not read to its end."""
    runner = MadeUpRunner("ngram")
    replayed: Any = ReplayedVerification(runner)
    replayed.enter("b", FoundRow(0))
    assert runner.drafter.propose(3, [[1], [], [1]]) == [[7, 8], [7, 8, 9], []]
    replayed.leave("b")
    assert runner.drafter.propose(3, [[1], [1], [1]]) == [[7, 8], [7, 8, 9], []]


def test_a_draft_model_proposes_itself() -> None:
    runner = MadeUpRunner("draft_model")
    ReplayedVerification(runner)
    assert runner.drafter.propose == runner.search
