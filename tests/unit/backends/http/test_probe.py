"""What the probe finds out before anything is measured, and what a server costs that is away."""

from __future__ import annotations

import contextlib
import itertools
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from backends import open_backend
from backends.http.probe.dialect import EXTRAS, PINNED
from backends.http.probe.texts import SENTENCE, check_texts
from backends.http.route import find_route
from harness.core.errors import UnavailableError, UserError
from harness.core.nouns import Model
from tests.support.fake_openai import FakeReply, FakeServer, good
from tests.support.http_client import Start, WordTokenizer, answer

LOADING = {"error": {"message": "Loading model"}}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_busy_for_a_moment_is_asked_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    listed, tries = FakeServer.answer_get, itertools.count()

    def get(server: FakeServer, reply: FakeReply, path: str) -> None:
        if path == "/v1/models" and next(tries) == 0:
            reply.fail(status, LOADING)
        else:
            listed(server, reply, path)

    monkeypatch.setattr(FakeServer, "answer_get", get)
    asked = itertools.count()

    def probe(reply: FakeReply) -> None:
        good(reply) if next(asked) else reply.fail(status, LOADING)

    _, backend = start(probe=probe)
    assert answer(backend)[-1].finished == "length"


@pytest.mark.parametrize(
    ("status", "tries", "passes"),
    [(400, len(EXTRAS), False), (401, 1, False), (404, 1, False), (429, 4, True), (503, 4, True)],
)
def test_what_will_not_pass_is_told_at_once(
    start: Start, status: int, tries: int, passes: bool
) -> None:
    asked: list[dict[str, Any]] = []

    def refuse(reply: FakeReply) -> None:
        asked.append(reply.body)
        reply.fail(status, LOADING)

    with pytest.raises(UserError, match=f"HTTP {status}: Loading model") as caught:
        start(probe=refuse)
    assert isinstance(caught.value, UnavailableError) == passes
    assert len(asked) == tries
    if isinstance(caught.value, UnavailableError):
        assert caught.value.reached


def test_a_server_that_refuses_a_field_is_known_by_it(start: Start) -> None:
    def strict(reply: FakeReply) -> None:
        if "ignore_eos" in reply.body:
            reply.fail(400, {"error": {"message": "Unrecognized request argument"}})
        else:
            good(reply)

    _, backend = start(strict, strict)
    assert "ends-at-eos" in backend.info.capabilities
    assert answer(backend)[-1].finished == "length"
    _, backend = start()
    assert "ends-at-eos" not in backend.info.capabilities


def test_sampling_that_nobody_asked_for_is_turned_off_where_the_server_takes_it(
    start: Start,
) -> None:
    """vLLM's server takes a repetition penalty and top_k from the model's generation config."""
    server, backend = start()
    answer(backend)
    assert {name: server.bodies[-1][name] for name in PINNED} == PINNED
    server, backend = start(extra_body={"repetition_penalty": 1.1, "top_k": None})
    answer(backend)
    assert server.bodies[-1]["repetition_penalty"] == 1.1
    assert "top_k" not in server.bodies[-1]

    def strict(reply: FakeReply) -> None:
        if reply.body.keys() & PINNED.keys():
            reply.fail(400, {"error": {"message": "Unrecognized request argument: top_k"}})
        else:
            good(reply)

    server, backend = start(strict, strict)
    assert answer(backend)[-1].finished == "length"
    assert not server.bodies[-1].keys() & PINNED.keys()
    assert server.bodies[-1]["return_token_ids"]


WORDS = [len(word) for word in SENTENCE.split()]


@pytest.mark.parametrize(
    ("tokenized", "differs"),
    [
        (None, False),
        ("no list", False),
        ({"tokens": [1, *WORDS]}, False),
        ({"tokens": WORDS[1:]}, False),
        ([{"id": token} for token in WORDS], False),
        ({"tokens": [token + 100 for token in WORDS]}, True),
        ({"tokens": [3]}, True),
    ],
)
def test_a_server_that_tokenizes_shows_its_tokenizer(
    start: Start, monkeypatch: pytest.MonkeyPatch, tokenized: Any, differs: bool
) -> None:
    """Of one that gives no token ids it is all that there is to see."""

    def play(reply: FakeReply) -> None:
        reply.event({"choices": [{"text": "one two", "finish_reason": "stop"}]})
        reply.end()

    monkeypatch.setattr(FakeServer, "tokenized", tokenized)
    if differs:
        with pytest.raises(UserError, match="the model's tokenizer is not the server's: it makes"):
            start(play, play, WordTokenizer())
    else:
        start(play, play, WordTokenizer())


def told(*chunks: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"choices": [{"text": text, "token_ids": ids}]} for text, ids in chunks]


LETTERS = {1: "Hello", 2: " world", 3: "é", 4: "<think>", 5: "\ufffd", 6: "</s>"}


@pytest.mark.parametrize(
    ("chunks", "differs"),
    [
        ([("Hello", [1]), (" world", [2])], False),
        ([("Hello", [1]), ("", [2])], False),  # held back
        ([("world", [2]), ("", [6])], False),  # a special token, and a blank less
        ([("Hello", [4, 1]), ("world", [4, 2])], False),  # the tags of a thought
        ([("Hello\ufffd\ufffd world", [1, 3, 2])], False),  # halves of a character
        ([("▁Hello▁world", [1, 2])], False),  # pieces as they are called
        ([("", [1, 2]), ("Hello", None)], False),
        ([("你好", [1, 2])], False),  # nothing that could be compared
        ([("Hello", [3, 5])], True),
        ([(" the", [1]), (" end", [2])], True),
        ([("Hello", [1]), (" moon", [2])], True),
    ],
)
def test_a_tokenizer_of_another_model_is_told_from_texts_in_parts(
    chunks: list[tuple[str, Any]], differs: bool
) -> None:
    tokenizer = SimpleNamespace(decode=lambda ids: "".join(LETTERS[token] for token in ids))
    if not differs:
        check_texts("there", [told(*chunks)], tokenizer)
        return
    with pytest.raises(UserError, match="there: the model's tokenizer is not the server's: it rea"):
        check_texts("there", [told(), told(*chunks)], tokenizer)


def test_no_sweep_begins_with_the_tokenizer_of_another_model(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        few = reply.body["max_tokens"] == 2
        text = "w" if few else "and more of it"
        choice = {"text": text, "token_ids": [1], "finish_reason": "length"}
        reply.event({"choices": [choice]})
        reply.done()
        reply.end()

    with pytest.raises(UserError, match="it reads 'w' where the server wrote 'and more of it'"):
        start(play, play, WordTokenizer())
    start(play, play)


def test_token_ids_that_are_none_are_found_by_the_probe(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        reply.event({"choices": [{"text": "w", "token_ids": [-1], "finish_reason": "length"}]})
        reply.end()

    with pytest.raises(UserError, match="a test request: -1 is no token id"):
        start(play, play, WordTokenizer())


def test_nobody_who_listens_is_told_from_somebody_who_breaks_off(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    monkeypatch.setattr("backends.http.backend.WAITS_S", (0.0, 0.2))
    with pytest.raises(UnavailableError, match="no server answers there") as caught:
        open_backend("http", None, Model("m"), {"base_url": url, "timeout_s": 20.0})
    assert not caught.value.reached

    def drop(reply: FakeReply) -> None:
        reply.start()
        reply.drop()

    with pytest.raises(UnavailableError, match="/completions: ") as caught:
        start(probe=drop)
    assert caught.value.reached


def chosen(server: FakeServer, experiments: str, **options: str) -> Any:
    """The name that a server is asked for, where the experiment calls it `experiments`."""
    backend = open_backend("http", None, Model(experiments), {"base_url": server.url, **options})
    backend.close()
    return backend.info.options["model"]


def test_of_several_models_the_experiments_is_asked_or_the_one_that_is_named() -> None:
    server = FakeServer()
    try:
        assert chosen(server, "n") == "m", "the only one, whatever it is called"
        server.models = ["k", "m"]
        assert chosen(server, "m") == "m"
        assert chosen(server, "m", model="k") == "k"
        told = r"serves 2 models: set the option 'model' \(quick: --served-model\); expected one of"
        with pytest.raises(UserError, match=f"{told}: k, m"):
            chosen(server, "n")
        server.models = []
        with pytest.raises(UserError, match="serves no model"):
            chosen(server, "m")
    finally:
        server.close()


def test_an_ipv6_address_stands_in_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    reached = SimpleNamespace(family=socket.AF_INET6, getpeername=lambda: ("::1", 81, 0, 0))
    hops: list[tuple[str, int]] = []

    def connect(hop: tuple[str, int], _: float) -> contextlib.nullcontext[SimpleNamespace]:
        hops.append(hop)
        return contextlib.nullcontext(reached)

    monkeypatch.setattr(socket, "create_connection", connect)
    route = find_route("http://[::1]:81/v1", None, 1.0)
    assert (hops, route.family) == ([("::1", 81)], socket.AF_INET6)
    assert b"\r\nHost: [::1]:81\r\n" in route.request("completions", {})
