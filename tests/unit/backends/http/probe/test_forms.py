"""In which form a server takes prompts, and how it fails at those that it does not take."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from harness.core.errors import UnavailableError, UserError
from tests.support.fake_openai import FakeReply, Play, good
from tests.support.http_client import Start, WordTokenizer, answer

WRONG = {"error": {"message": "sequence item 0: expected str"}}


def broken(reply: FakeReply) -> None:
    reply.event(WRONG)
    reply.end()


FAILURES: dict[str, Play] = {
    "not found": lambda reply: reply.fail(404, WRONG),
    "an error": lambda reply: reply.fail(500, WRONG),
    "a connection cut": lambda reply: reply.drop(),
    "no stream": lambda reply: reply.fail(200, WRONG),
    "an error in the stream": broken,
}


def is_text(reply: FakeReply) -> bool:
    return isinstance(reply.body["prompt"], str)


@pytest.mark.parametrize("fail", FAILURES.values(), ids=FAILURES.keys())
def test_a_server_that_fails_at_token_ids_is_asked_with_text(start: Start, fail: Play) -> None:
    def play(reply: FakeReply) -> None:
        good(reply) if is_text(reply) else fail(reply)

    _, backend = start(play, play, WordTokenizer())
    assert backend.info.options["prompt_form"] == "text"
    assert answer(backend)[-1].finished == "length"


def test_a_server_that_was_busy_once_gets_token_ids_all_the_same(start: Start) -> None:
    asked = itertools.count()

    def play(reply: FakeReply) -> None:
        good(reply) if next(asked) else reply.fail(503, WRONG)

    _, backend = start(play, play, WordTokenizer())
    assert backend.info.options["prompt_form"] == "ids"


@pytest.mark.parametrize(("status", "may_pass"), [(404, False), (500, True)])
def test_of_a_server_that_fails_at_both_the_first_error_is_told(
    start: Start, status: int, may_pass: bool
) -> None:
    def play(reply: FakeReply) -> None:
        reply.fail(405, {}) if is_text(reply) else reply.fail(status, WRONG)

    with pytest.raises(UserError, match=f"HTTP {status}: sequence item 0") as caught:
        start(play, play, WordTokenizer())
    assert isinstance(caught.value, UnavailableError) is may_pass


@pytest.mark.parametrize(("status", "tries"), [(401, 1), (403, 1), (429, 4)])
def test_who_may_not_ask_now_is_not_told_so_twice(start: Start, status: int, tries: int) -> None:
    prompts: list[Any] = []

    def play(reply: FakeReply) -> None:
        prompts.append(reply.body["prompt"])
        reply.fail(status, WRONG)

    with pytest.raises(UserError, match=f"HTTP {status}"):
        start(play, play, WordTokenizer())
    assert list(map(type, prompts)) == [list] * tries
