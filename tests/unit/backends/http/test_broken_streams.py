"""Servers that break off, err or talk nonsense cost the request and nothing else."""

from __future__ import annotations

import threading

import pytest

from backends.http.reply import LARGEST_REFUSAL
from tests.support.fake_openai import FakeReply, Play, good
from tests.support.http_client import (
    PATIENCE_S,
    Start,
    answer,
    failure,
)


def dropped(reply: FakeReply) -> None:
    reply.tokens([1, 2])
    reply.drop()


def ends_early(reply: FakeReply) -> None:
    reply.tokens([1, 2])
    reply.end()


def done_early(reply: FakeReply) -> None:
    reply.tokens([1, 2])
    reply.done()
    reply.end()


def reports_error(reply: FakeReply) -> None:
    reply.tokens([1, 2])
    reply.event({"error": {"message": "engine\ndied", "code": 500}})
    reply.end()


def goes_on(reply: FakeReply) -> None:
    reply.tokens([1, 2], "stop")
    reply.tokens([3])
    reply.end()


def talks_too_much(reply: FakeReply) -> None:
    reply.tokens([1, 2])
    reply.tokens([1] * 7, "stop")
    reply.end()


def cut_short(reply: FakeReply) -> None:
    """What vLLM does when prompt and answer do not fit its context."""
    reply.tokens([1, 2], "length")
    reply.end()


def filtered(reply: FakeReply) -> None:
    reply.tokens([1, 2], "content_filter")
    reply.end()


def raw(data: bytes) -> Play:
    def play(reply: FakeReply) -> None:
        reply.tokens([1, 2])
        reply.send(data)
        reply.end()

    return play


BROKEN = [
    (dropped, "the connection closed in the middle of the answer"),
    (ends_early, "without a finish_reason"),
    (done_early, "without a finish_reason"),
    (reports_error, "the server reports: engine died"),
    (goes_on, "tokens after the finish_reason"),
    (talks_too_much, "9 tokens, 3 asked for"),
    (cut_short, "limit came before 3 tokens"),
    (filtered, "finish_reason content_filter"),
    (raw(b'data: {"choices": [{"text": "x"\n\n'), "malformed chunk"),
    (raw(b"data: 17\n\n"), "malformed chunk: 17"),
    (raw(b"data: {}\n\n"), "without choices"),
    (raw(b'data: {"choices": ["x"]}\n\n'), "without choices"),
    (raw(b'data: {"choices": [{"text": "x"}]}\n\n'), "without token_ids"),
    (raw(b"data: \xff\xfe\n\n"), "malformed chunk"),
    (raw(b"<html>\n\n"), "without a finish_reason"),
]


@pytest.mark.parametrize(("play", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_broken_stream_is_an_error_that_costs_one_request(
    start: Start, play: Play, message: str
) -> None:
    server, backend = start(play)
    error = failure(backend)
    assert message in error
    assert error.endswith("(after 2 tokens)") or play is talks_too_much
    server.play = good
    assert answer(backend)[-1].finished == "length"


def test_what_follows_done_is_not_read(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        reply.tokens([1, 2, 3], "length")
        reply.send(b"data: [DONE]\n\ndata: bye\n\n")
        reply.end()

    _, backend = start(play)
    assert [commit.finished for commit in answer(backend)] == [None, "length"]


def test_of_an_endless_refusal_the_beginning_is_kept(start: Start) -> None:
    body = {"message": "too long", "more": "x" * LARGEST_REFUSAL}
    _, backend = start(lambda reply: reply.fail(500, body))
    assert 'HTTP 500: {"message": "too long", "more"' in failure(backend)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_http_error_is_the_requests_error(start: Start, status: int) -> None:
    body = {"error": {"message": "too\nlong", "type": "BadRequestError"}}
    _, backend = start(lambda reply: reply.fail(status, body))
    assert f"HTTP {status}: too long" in failure(backend)


def test_answer_that_is_no_stream(start: Start) -> None:
    _, backend = start(lambda reply: reply.fail(200, {"choices": [], "message": "hello"}))
    assert "HTTP 200: hello" in failure(backend)


def test_missing_done_after_the_finish_reason_is_fine(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        reply.tokens([1, 2], "stop")
        reply.end()

    _, backend = start(play)
    assert [commit.finished for commit in answer(backend)] == [None, "stop"]


def test_drop_or_silence_after_the_finish_reason_is_fine(start: Start) -> None:
    release = threading.Event()

    def play(reply: FakeReply) -> None:
        reply.tokens([1, 2], "stop")
        release.wait(PATIENCE_S)
        reply.drop()

    server, backend = start(play)
    assert [commit.finished for commit in answer(backend)] == [None, "stop"]
    release.set()
    assert [commit.finished for commit in answer(backend)] == [None, "stop"]
    server.play = good
    assert answer(backend)[-1].finished == "length"
