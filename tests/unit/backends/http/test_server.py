"""Time-outs, connections, caches and keys: the `http` backend and its server."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from backends import check_options, open_backend
from harness.core.errors import UserError
from harness.core.nouns import Commit, Load, Model, Request
from tests.support.fake_openai import FakeReply, FakeServer, good
from tests.support.http_client import (
    PATIENCE_S,
    Start,
    answer,
    collect,
    failure,
    request,
)


def test_poll_does_not_wait_and_a_slow_server_times_out(start: Start) -> None:
    release = threading.Event()

    def play(reply: FakeReply) -> None:
        reply.tokens([1])
        release.wait(PATIENCE_S)

    _, backend = start(play, timeout_s=5.0)  # it holds for the probe, too
    backend.submit(request())
    assert not release.is_set()
    commits = collect(backend)
    release.set()
    assert backend.poll() == []
    assert commits[0].token_ids == (1,)
    assert commits[-1].error == "no complete answer within 5 s (after 1 tokens)"


def test_nothing_queues_in_the_client(start: Start) -> None:
    """The server answers only when all 64 requests are there: a pool limit would deadlock."""
    together = threading.Barrier(64, timeout=PATIENCE_S)

    def play(reply: FakeReply) -> None:
        together.wait()
        good(reply)

    _, backend = start(play)
    for number in range(64):
        backend.submit(request(str(number)))
    commits = collect(backend, 64)
    assert {commit.finished for commit in commits} == {None, "length"}
    assert not together.broken


def test_connections_are_reused(start: Start) -> None:
    server, backend = start()
    answer(backend)
    before = server.connections
    for _ in range(5):
        answer(backend)
    assert server.connections == before


def test_reset_drops_what_is_under_way(start: Start) -> None:
    release = threading.Event()

    def play(reply: FakeReply) -> None:
        reply.tokens([1])
        release.wait(PATIENCE_S)
        good(reply)

    server, backend = start(play, resets=[True, False, False, True])
    assert "cold-reset" in backend.info.capabilities
    backend.submit(request("old"))
    give_up = time.monotonic() + PATIENCE_S
    while not backend.poll():
        assert time.monotonic() < give_up
    backend.reset()
    assert server.resets == [], "a busy server is asked again until it has dropped its cache"
    release.set()
    server.play = good
    commits = answer(backend, request("new"))
    assert {commit.request_id for commit in commits} == {"new"}


def test_a_reset_forgets_the_requests_that_were_written_out(start: Start) -> None:
    server, backend = start()
    backend.prepare([request()], Load("closed", concurrency=1))
    backend.reset()
    answer(backend, Request("a", (8,), 3))
    assert server.bodies[-1]["prompt"] == [8]


def test_without_a_reset_call_the_cache_may_be_warm(start: Start) -> None:
    server, backend = start()
    assert "cold-reset" not in backend.info.capabilities
    backend.reset()
    assert answer(backend)[-1].finished == "length"
    assert server.paths.count("/reset_prefix_cache") == 1
    assert list(backend._client.texts) == ["a"]
    backend.reset()
    assert backend._client.texts == {}


@pytest.mark.parametrize("details", [{}, {"cached_tokens": None, "audio_tokens": 0}, None])
def test_details_without_a_number_of_cached_tokens_report_no_cache(
    start: Start, details: dict[str, int | None] | None
) -> None:
    def play(reply: FakeReply) -> None:
        usage = {"completion_tokens": 1, "prompt_tokens_details": details}
        reply.tokens([1], "stop")
        reply.event({"choices": [], "usage": usage})
        reply.end()

    _, backend = start(play, play)
    assert "cache-telemetry" not in backend.info.capabilities


def test_cached_prompt_tokens_are_reported(start: Start) -> None:
    usage = {"completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}

    def play(reply: FakeReply) -> None:
        reply.tokens([1], "stop")
        reply.event({"choices": [], "usage": usage})
        reply.done()
        reply.end()

    _, backend = start(play, play)
    assert "cache-telemetry" in backend.info.capabilities
    assert answer(backend)[-1].telemetry == {"server_tokens": 1, "cached_tokens": 2}


def test_a_cache_that_is_meant_stays_out_of_the_requests(start: Start) -> None:
    """`harness.measure.checks` reads the trial's option; a server need not know the word."""
    server, backend = start(prefix_caching=True)
    assert answer(backend)[-1].finished == "length"
    assert backend.info.options["prefix_caching"] is True
    assert not [body for body in server.bodies if "prefix_caching" in body]
    with pytest.raises(UserError, match="option 'prefix_caching': expected bool"):
        check_options("http", {"prefix_caching": "yes"})


def test_server_not_up() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(UserError, match=rf"{url}: no server answers there"):
        open_backend("http", None, Model("m"), {"base_url": url})
    assert not [thread for thread in threading.enumerate() if thread.name == "http"]


def test_a_wrong_model(start: Start) -> None:
    with pytest.raises(UserError, match="does not serve 'n': expected one of: m"):
        start(model="n")


def test_a_server_without_a_list_of_models_is_asked_by_name(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeServer, "answer_get", lambda _, reply, path: reply.fail(404, {}))
    server, backend = start(model="n")
    answer(backend)
    assert server.bodies[-1]["model"] == "n"
    with pytest.raises(UserError, match="/models: HTTP 404"):
        start()


@pytest.mark.parametrize("ending", ["never", "breaks off"])
def test_a_refusal_that_does_not_end_is_a_refusal(
    start: Start, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    def get(_: FakeServer, reply: FakeReply, path: str) -> None:
        reply.start(404)
        if ending == "breaks off":
            reply.drop()

    monkeypatch.setattr("backends.http.probe.server.REFUSAL_TIMEOUT_S", 0.1)
    monkeypatch.setattr(FakeServer, "answer_get", get)
    _, backend = start(model="n")
    assert backend.info.version.startswith("BaseHTTP/")
    assert answer(backend)[-1].finished == "length"


def test_a_server_says_what_it_is(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    _, backend = start()
    assert backend.info.version.startswith("BaseHTTP/")
    listed = FakeServer.answer_get

    def get(server: FakeServer, reply: FakeReply, path: str) -> None:
        if path == "/version":
            reply.fail(200, {"version": "0.32.0"})
        else:
            listed(server, reply, path)

    monkeypatch.setattr(FakeServer, "answer_get", get)
    _, backend = start()
    assert backend.info.version == "vllm 0.32.0"


@pytest.mark.parametrize(
    ("reason", "words"),
    [("content_filter", "finish_reason content_filter"), (["stop"], "finish_reason"),
     (None, "streamed no finish_reason"), ("", "streamed no finish_reason")],
)  # fmt: skip
def test_an_ending_that_no_request_could_have_is_found_before_the_sweep(
    start: Start, reason: Any, words: str
) -> None:
    def play(reply: FakeReply) -> None:
        reply.tokens([1, 2], reason)
        reply.done()
        reply.end()

    with pytest.raises(UserError, match=words):
        start(play, play)


def test_probe_failure_names_the_reason(start: Start) -> None:
    refuses = {"error": {"message": "no such thing"}}
    with pytest.raises(UserError, match="refused a test request: HTTP 400: no such thing"):
        start(probe=lambda reply: reply.fail(400, refuses))
    with pytest.raises(UserError, match=r"needs a key \(option api_key_env\): HTTP 401"):
        start(probe=lambda reply: reply.fail(401, refuses))
    with pytest.raises(UserError, match="HTTP 404"):
        start(probe=lambda reply: reply.fail(404, refuses))


def test_key_is_sent_but_never_shown(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-secret-123")
    seen = []

    def play(reply: FakeReply) -> None:
        seen.append(reply.headers["Authorization"])
        reply.fail(401, {"error": {"message": f"bad key {seen[-1]}"}})

    _, backend = start(play, api_key_env="TEST_KEY")
    error = failure(backend)
    assert seen == ["Bearer sk-secret-123"]
    assert "secret" not in error + repr(backend.info)
    with pytest.raises(UserError) as caught:
        start(probe=play, api_key_env="TEST_KEY")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "localhost:8000"}, "expected http"),
        ({"base_url": "http://:8000"}, "expected http"),
        ({"base_url": "http://[::1"}, "expected http"),
        ({"base_url": "http://h:99999/v1"}, "expected http"),
        ({"base_url": "http://user:secret@h/v1"}, "more than an address"),
        ({"api": "chats"}, "did you mean 'chat'"),
        ({"api_key_env": "sk-secret"}, "expected the NAME of a variable"),
        ({"api_key_env": "DECODEBENCH_NOT_SET"}, "is not set"),
        ({"extra_body": {"stream": False}}, "'stream' is set by decodebench"),
        ({"timeout_s": 0}, "at least 0.001"),
        ({"base_ur": "x"}, "did you mean 'base_url'"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_options("http", options)
    assert "secret" not in str(caught.value)


def test_proxies_of_the_environment_are_not_used_for_this_machine(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    _, backend = start()
    assert answer(backend)[-1].finished == "length"


def test_wait_returns_when_something_arrives(start: Start) -> None:
    release = threading.Event()

    def play(reply: FakeReply) -> None:
        release.wait(PATIENCE_S)
        good(reply)

    _, backend = start(play)
    backend.submit(request())
    backend.wait(0.01)
    assert backend.poll() == []
    release.set()
    found: list[Commit] = []
    while not any(commit.finished for commit in found):
        backend.wait(PATIENCE_S)
        news = backend.poll()
        found += news
    assert [commit.token_ids for commit in found] == [(11, 12), (13,), ()]
