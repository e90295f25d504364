"""What the `http` backend asks for, and how it counts what is streamed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from backends.http.backend import PROBE_TOKENS
from harness.core.errors import UserError
from harness.core.nouns import Sampling
from tests.support.fake_openai import FakeReply
from tests.support.http_client import (
    Start,
    WordTokenizer,
    answer,
    request,
)


def test_every_chunk_is_one_commit_with_all_its_tokens(start: Start) -> None:
    server, backend = start()
    assert backend.info.options["token_counting"] == "ids"
    assert backend.texts() is None, "the ids say more"
    commits = answer(backend)
    assert [commit.token_ids for commit in commits] == [(11, 12), (13,), ()]
    assert [commit.finished for commit in commits] == [None, None, "length"]
    assert commits[-1].telemetry == {"server_tokens": 3}
    assert server.bodies[-1]["prompt"] == [5, 6, 7]


def test_request_body_carries_sampling_and_stops(start: Start) -> None:
    server, backend = start()
    answer(backend, request(stop_ids=(2,)))
    greedy = server.bodies[-1]
    assert greedy["temperature"] == 0.0
    assert greedy["stop_token_ids"] == [2]
    assert "seed" not in greedy
    assert "ignore_eos" not in greedy
    sampling = Sampling(temperature=0.7, top_p=0.9, seed=4)
    answer(backend, request(sampling=sampling, stop_ids=(2,), ignore_eos=True))
    sampled = server.bodies[-1]
    assert (sampled["temperature"], sampled["top_p"], sampled["seed"]) == (0.7, 0.9, 4)
    assert sampled["ignore_eos"] is True
    assert "stop_token_ids" not in sampled


def test_extra_body_adds_and_removes_fields(start: Start) -> None:
    server, backend = start(extra_body={"top_k": 5, "top_p": None, "stream_options": None})
    answer(backend)
    assert server.bodies[-1]["top_k"] == 5
    assert not server.bodies[-1].keys() & {"top_p", "stream_options"}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_cut_anywhere_by_the_network(start: Start, size: int) -> None:
    text = {"choices": [{"text": "é✓", "token_ids": [1], "finish_reason": None}]}
    last = {"choices": [{"text": "", "token_ids": [2], "finish_reason": "stop"}]}
    stream = (
        b": ping\r\n\r\nevent: x\r\n"
        + f"data: {json.dumps(text, ensure_ascii=False)}\r\n\r\n".encode()
        + f"data:{json.dumps(last)}\n\ndata: [DONE]".encode()
    )

    def play(reply: FakeReply) -> None:
        for at in range(0, len(stream), size):
            reply.send(stream[at : at + size])
        reply.end()

    _, backend = start(play)
    commits = answer(backend)
    assert [commit.token_ids for commit in commits] == [(1,), (2,), ()]
    assert commits[-1].finished == "stop"
    assert backend._client.texts == {"a": "é✓"}


def chunk(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}], **more}


def with_usage(reply: FakeReply) -> None:
    reply.event(chunk("one two", usage={"completion_tokens": 2}))
    reply.event(chunk(" three", usage={"completion_tokens": 3}))
    reply.event(chunk("", "stop", usage={"completion_tokens": 4}))
    reply.done()
    reply.end()


def test_running_usage_counts_tokens_without_ids(start: Start) -> None:
    """The stop token has no text: only the server's count knows of it."""
    _, backend = start(with_usage, with_usage)
    assert backend.info.options["token_counting"] == "usage"
    commits = answer(backend, request(limit=8))
    assert [commit.token_ids for commit in commits] == [(-1, -1), (-1,), (-1,), ()]
    assert commits[-1].finished == "stop"
    assert backend.texts() == {"a": "one two three"}


def test_running_usage_is_known_though_a_short_answer_came_in_one_chunk(start: Start) -> None:
    """As from a busy server, which has both tokens of the probe before it sends the first."""

    def probe(reply: FakeReply) -> None:
        if reply.body["max_tokens"] > PROBE_TOKENS:
            with_usage(reply)
            return
        reply.event(chunk("one two", "length", usage={"completion_tokens": 2}))
        reply.done()
        reply.end()

    _, backend = start(with_usage, probe)
    assert backend.info.options["token_counting"] == "usage"


def test_a_longer_answer_that_does_not_end_is_no_reason_to_refuse_a_server(start: Start) -> None:
    def probe(reply: FakeReply) -> None:
        if reply.body["max_tokens"] > PROBE_TOKENS:
            reply.event(chunk("one two three"))
        else:
            reply.event(chunk("one two", "length"))
        reply.done()
        reply.end()

    _, backend = start(with_usage, probe, WordTokenizer())
    assert backend.info.options["token_counting"] == "tokenizer"


def text_only(reply: FakeReply, status: int = 400) -> None:
    """Takes no token ids and knows no extensions, as a strict server does."""
    if not isinstance(reply.body["prompt"], str) or "stream_options" in reply.body:
        reply.fail(status, {"error": {"message": "unknown field"}})
        return
    reply.event(chunk("one two"))
    reply.event(chunk(" three", "stop"))
    reply.done()
    reply.end()


@pytest.mark.parametrize("status", [400, 422])
def test_plain_text_server_is_counted_with_the_tokenizer(start: Start, status: int) -> None:
    server, backend = start(text_only, partial(text_only, status=status), WordTokenizer())
    options = backend.info.options
    assert (options["token_counting"], options["prompt_form"]) == ("tokenizer", "text")
    commits = answer(backend)
    assert [commit.token_ids for commit in commits] == [(-1, -1), (-1,), ()]
    assert backend.texts() == {"a": "one two three"}
    assert server.bodies[-1]["prompt"] == "wwwwww wwwwwww", "the server puts the first token itself"
    assert "return_token_ids" not in server.bodies[-1]


ONCE = {"usage": {"completion_tokens": 3}}


@pytest.mark.parametrize(
    "ending",
    [
        [chunk(" three", "stop"), {"choices": [], **ONCE}],
        [chunk(" three", "stop", **ONCE)],
        [chunk(" three"), chunk("", "stop", **ONCE)],
    ],
    ids=["apart", "beside the text", "beside the finish_reason"],
)
@pytest.mark.parametrize("before", [None, {"completion_tokens": 0}])
def test_usage_at_the_end_alone_counts_no_chunk(
    start: Start, ending: list[dict[str, Any]], before: dict[str, int] | None
) -> None:
    """Booked by it, all tokens would come at the end."""

    def play(reply: FakeReply) -> None:
        for event in (chunk("one two", usage=before), *ending):
            reply.event(event)
        reply.done()
        reply.end()

    _, backend = start(play, play, WordTokenizer())
    assert backend.info.options["token_counting"] == "tokenizer"
    commits = answer(backend, request(limit=8))
    assert [commit.token_ids for commit in commits] == [(-1, -1), (-1,), ()]
    assert commits[-1].telemetry == {"server_tokens": 3}
    with pytest.raises(UserError, match="neither token ids nor running usage"):
        start(play, play)


def test_tokenizer_counting_never_exceeds_what_was_asked_for(start: Start) -> None:
    _, backend = start(text_only, text_only, WordTokenizer())
    commits = answer(backend, request(limit=1))
    assert sum(len(commit.token_ids) for commit in commits) == 1


def test_uncountable_server_is_refused(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        reply.event(chunk("one", "stop"))
        reply.end()

    with pytest.raises(UserError, match="neither token ids nor running usage"):
        start(play, play)


def test_a_chat_of_several_messages_is_sent_as_it_is(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        reply.event({"choices": [{"delta": {"content": "ww"}, "token_ids": [2]}]})
        reply.event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        reply.done()
        reply.end()

    server, backend = start(play, play, WordTokenizer(), api="chat")
    said = (("system", "Be brief."), ("user", "Why?"))
    answer(backend, replace(request(), messages=said))
    assert server.bodies[-1]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    ]


def test_chat_sends_one_user_message(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        reply.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        reply.event({"choices": [{"delta": {"reasoning_content": "w"}, "token_ids": [1]}]})
        last = {"delta": {"content": " ww"}, "token_ids": [2], "finish_reason": "stop"}
        reply.event({"choices": [last]})
        reply.done()
        reply.end()

    server, backend = start(play, play, WordTokenizer(), api="chat")
    commits = answer(backend)
    assert server.paths[-1] == "/v1/chat/completions"
    assert server.bodies[-1]["messages"] == [{"role": "user", "content": "wwwww wwwwww wwwwwww"}]
    assert [commit.token_ids for commit in commits] == [(1,), (2,), ()]
