"""The HTTP backend against a local server that behaves, misbehaves and breaks off."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backends import check_options, open_backend
from backends.http import HttpBackend
from harness.core import Commit, Model, Request, Sampling, UserError
from tests.fake_openai import FakeServer, Play, Reply, good

PATIENCE_S = 20.0
Start = Callable[..., tuple[FakeServer, HttpBackend]]


class WordTokenizer:
    """One token per word: enough for a server that speaks text only."""

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [len(word) for word in text.split()]}

    bos_token_id = 5

    def decode(self, ids: tuple[int, ...], skip_special_tokens: bool = False) -> str:
        return " ".join("w" * token for token in ids)


@pytest.fixture
def start() -> Iterator[Start]:
    opened: list[Any] = []

    def start(
        play: Play = good, probe: Play | None = good, tokenizer: Any = None, **options: Any
    ) -> tuple[FakeServer, HttpBackend]:
        server = FakeServer(play, probe)
        opened.append(server)
        if "resets" in options:
            server.resets = options.pop("resets")
        settings = {name: option.default for name, option in HttpBackend.OPTIONS.items()}
        backend = HttpBackend(settings | {"base_url": server.url, **options}, tokenizer)
        opened.append(backend)
        return server, backend

    yield start
    for item in reversed(opened):
        item.close()


def request(name: str = "a", limit: int = 3, **more: Any) -> Request:
    return Request(name, (5, 6, 7), limit, **more)


def collect(backend: HttpBackend, finished: int = 1) -> list[Commit]:
    """Poll until `finished` requests are over."""
    commits: list[Commit] = []
    give_up = time.monotonic() + PATIENCE_S
    while sum(commit.finished is not None for commit in commits) < finished:
        assert time.monotonic() < give_up, f"still waiting; so far {commits}"
        commits.extend(backend.poll())
        time.sleep(0.001)
    return commits


def answer(backend: HttpBackend, asked: Request | None = None) -> list[Commit]:
    backend.submit(asked or request())
    return collect(backend)


def failure(backend: HttpBackend) -> str:
    last = answer(backend)[-1]
    assert last.finished == "error"
    assert last.token_ids == ()
    assert last.error is not None
    assert "\n" not in last.error
    return last.error


def test_every_chunk_is_one_commit_with_all_its_tokens(start: Start) -> None:
    server, backend = start()
    assert backend.info.options["token_counting"] == "ids"
    assert "token-ids" in backend.info.capabilities
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
    server, backend = start(extra_body={"top_k": 5, "top_p": None})
    answer(backend)
    assert server.bodies[-1]["top_k"] == 5
    assert "top_p" not in server.bodies[-1]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_cut_anywhere_by_the_network(start: Start, size: int) -> None:
    text = {"choices": [{"text": "é✓", "token_ids": [1], "finish_reason": None}]}
    last = {"choices": [{"text": "", "token_ids": [2], "finish_reason": "stop"}]}
    stream = (
        b": ping\r\n\r\nevent: x\r\n"
        + f"data: {json.dumps(text, ensure_ascii=False)}\r\n\r\n".encode()
        + f"data:{json.dumps(last)}\n\ndata: [DONE]".encode()
    )

    def play(reply: Reply) -> None:
        for at in range(0, len(stream), size):
            reply.send(stream[at : at + size])
        reply.end()

    _, backend = start(play)
    commits = answer(backend)
    assert [commit.token_ids for commit in commits] == [(1,), (2,), ()]
    assert commits[-1].finished == "stop"
    assert backend.texts() == {"a": "é✓"}


def chunk(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}], **more}


def with_usage(reply: Reply) -> None:
    reply.event(chunk("one two", usage={"completion_tokens": 2}))
    reply.event(chunk(" three", usage={"completion_tokens": 3}))
    reply.event(chunk("", "stop", usage={"completion_tokens": 4}))
    reply.done()
    reply.end()


def test_running_usage_counts_tokens_without_ids(start: Start) -> None:
    """The stop token has no text: only the server's count knows of it."""
    _, backend = start(with_usage, with_usage)
    assert backend.info.options["token_counting"] == "usage"
    assert "server-text" in backend.info.capabilities
    commits = answer(backend, request(limit=8))
    assert [commit.token_ids for commit in commits] == [(-1, -1), (-1,), (-1,), ()]
    assert commits[-1].finished == "stop"
    assert backend.texts() == {"a": "one two three"}


def text_only(reply: Reply) -> None:
    """Takes no token ids and knows no extensions, as a strict server does."""
    if not isinstance(reply.body["prompt"], str) or "stream_options" in reply.body:
        reply.fail(400, {"error": {"message": "unknown field"}})
        return
    reply.event(chunk("one two"))
    reply.event(chunk(" three", "stop"))
    reply.done()
    reply.end()


def test_plain_text_server_is_counted_with_the_tokenizer(start: Start) -> None:
    server, backend = start(text_only, text_only, WordTokenizer())
    options = backend.info.options
    assert (options["token_counting"], options["prompt_form"]) == ("tokenizer", "text")
    commits = answer(backend)
    assert [commit.token_ids for commit in commits] == [(-1, -1), (-1,), ()]
    assert backend.texts() == {"a": "one two three"}
    assert server.bodies[-1]["prompt"] == "wwwwww wwwwwww", "the server puts the first token itself"
    assert "return_token_ids" not in server.bodies[-1]


def test_tokenizer_counting_never_exceeds_what_was_asked_for(start: Start) -> None:
    _, backend = start(text_only, text_only, WordTokenizer())
    commits = answer(backend, request(limit=1))
    assert sum(len(commit.token_ids) for commit in commits) == 1


def test_uncountable_server_is_refused(start: Start) -> None:
    def play(reply: Reply) -> None:
        reply.event(chunk("one", "stop"))
        reply.end()

    with pytest.raises(UserError, match="neither token ids nor running usage"):
        start(play, play)


def test_chat_sends_one_user_message(start: Start) -> None:
    def play(reply: Reply) -> None:
        reply.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        reply.event({"choices": [{"delta": {"reasoning_content": "hm"}, "token_ids": [1]}]})
        last = {"delta": {"content": "yes"}, "token_ids": [2], "finish_reason": "stop"}
        reply.event({"choices": [last]})
        reply.done()
        reply.end()

    server, backend = start(play, play, WordTokenizer(), api="chat")
    commits = answer(backend)
    assert server.paths[-1] == "/v1/chat/completions"
    assert server.bodies[-1]["messages"] == [{"role": "user", "content": "wwwww wwwwww wwwwwww"}]
    assert [commit.token_ids for commit in commits] == [(1,), (2,), ()]


def dropped(reply: Reply) -> None:
    reply.tokens([1, 2])
    reply.drop()


def ends_early(reply: Reply) -> None:
    reply.tokens([1, 2])
    reply.end()


def done_early(reply: Reply) -> None:
    reply.tokens([1, 2])
    reply.done()
    reply.end()


def reports_error(reply: Reply) -> None:
    reply.tokens([1, 2])
    reply.event({"error": {"message": "engine\ndied", "code": 500}})
    reply.end()


def goes_on(reply: Reply) -> None:
    reply.tokens([1, 2], "stop")
    reply.tokens([3])
    reply.end()


def talks_too_much(reply: Reply) -> None:
    reply.tokens([1, 2])
    reply.tokens([1] * 7, "stop")
    reply.end()


def cut_short(reply: Reply) -> None:
    """What vLLM does when prompt and answer do not fit its context."""
    reply.tokens([1, 2], "length")
    reply.end()


def filtered(reply: Reply) -> None:
    reply.tokens([1, 2], "content_filter")
    reply.end()


def raw(data: bytes) -> Play:
    def play(reply: Reply) -> None:
        reply.tokens([1, 2])
        reply.send(data)
        reply.end()

    return play


BROKEN = [
    (dropped, "ClientPayloadError"),
    (ends_early, "without a finish_reason"),
    (done_early, "without a finish_reason"),
    (reports_error, "the server reports: engine died"),
    (goes_on, "tokens behind the finish_reason"),
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


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_http_error_is_the_requests_error(start: Start, status: int) -> None:
    body = {"error": {"message": "too\nlong", "type": "BadRequestError"}}
    _, backend = start(lambda reply: reply.fail(status, body))
    assert f"HTTP {status}: too long" in failure(backend)


def test_answer_that_is_no_stream(start: Start) -> None:
    _, backend = start(lambda reply: reply.fail(200, {"choices": [], "message": "hello"}))
    assert "HTTP 200: hello" in failure(backend)


def test_missing_done_after_the_finish_reason_is_fine(start: Start) -> None:
    def play(reply: Reply) -> None:
        reply.tokens([1, 2], "stop")
        reply.end()

    _, backend = start(play)
    assert [commit.finished for commit in answer(backend)] == [None, "stop"]


def test_drop_or_silence_after_the_finish_reason_is_fine(start: Start) -> None:
    release = threading.Event()

    def play(reply: Reply) -> None:
        reply.tokens([1, 2], "stop")
        release.wait(PATIENCE_S)
        reply.drop()

    server, backend = start(play)
    assert [commit.finished for commit in answer(backend)] == [None, "stop"]
    release.set()
    assert [commit.finished for commit in answer(backend)] == [None, "stop"]
    server.play = good
    assert answer(backend)[-1].finished == "length"


def test_poll_does_not_wait_and_a_slow_server_times_out(start: Start) -> None:
    release = threading.Event()

    def play(reply: Reply) -> None:
        reply.tokens([1])
        release.wait(PATIENCE_S)

    _, backend = start(play, timeout_s=0.5)
    backend.submit(request())
    assert not release.is_set()
    commits = collect(backend)
    release.set()
    assert backend.poll() == []
    assert commits[0].token_ids == (1,)
    assert commits[-1].error == "no complete answer within 0.5 s (after 1 tokens)"


def test_nothing_queues_in_the_client(start: Start) -> None:
    """The server answers only when all 64 requests are there: a pool limit would deadlock."""
    together = threading.Barrier(64, timeout=PATIENCE_S)

    def play(reply: Reply) -> None:
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

    def play(reply: Reply) -> None:
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


def test_without_a_reset_call_the_cache_may_be_warm(start: Start) -> None:
    server, backend = start()
    assert "cold-reset" not in backend.info.capabilities
    backend.reset()
    assert answer(backend)[-1].finished == "length"
    assert server.paths.count("/reset_prefix_cache") == 1


def test_cached_prompt_tokens_are_reported(start: Start) -> None:
    usage = {"completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}

    def play(reply: Reply) -> None:
        reply.tokens([1], "stop")
        reply.event({"choices": [], "usage": usage})
        reply.done()
        reply.end()

    _, backend = start(play, play)
    assert "cache-telemetry" in backend.info.capabilities
    assert answer(backend)[-1].telemetry == {"server_tokens": 1, "cached_tokens": 2}


def test_a_cache_that_is_meant_stays_out_of_the_requests(start: Start) -> None:
    """`harness.checks` reads the trial's option; a server need not know the word."""
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


def test_wrong_model_and_several_models(start: Start) -> None:
    with pytest.raises(UserError, match="does not serve 'n': expected one of: m"):
        start(model="n")
    server = FakeServer()
    server.models = ["m", "k"]
    try:
        with pytest.raises(UserError, match="serves 2 models: set the option 'model'"):
            open_backend("http", None, Model("m"), {"base_url": server.url})
    finally:
        server.close()


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

    def play(reply: Reply) -> None:
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

    def play(reply: Reply) -> None:
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
