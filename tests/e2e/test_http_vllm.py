"""The HTTP backend against a real vLLM server, through every way of counting tokens."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends import open_backend
from backends.checkpoints import models
from backends.http.backend import HttpBackend
from benchmarks.support.vllm_server import vllm_server
from harness.core.errors import UserError
from harness.core.nouns import Generation, Load, Model, Request
from harness.measure.load_loop import run_load
from tests.support.tiny_llama import EOS_ID, write_tiny_llama

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]
REQUESTS = [
    Request(f"r{n}", tuple(range(9 * n + 5, 9 * n + 50)), 10, stop_ids=(EOS_ID,)) for n in range(6)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    template = folder / "template.jinja"
    template.write_text("{{ messages[0]['content'] }}")
    arguments = ["--max-model-len=128", f"--chat-template={template}"]
    with vllm_server(model, folder / "log", arguments, threads=1) as address:
        yield address


def run(
    url: str, options: Mapping[str, Any], requests: list[Request], model: Path | None = None
) -> tuple[HttpBackend, list[Generation]]:
    backend = open_backend("http", model, Model("m"), {"base_url": url, **options})
    assert isinstance(backend, HttpBackend)
    try:
        generations = run_load(backend, requests, Load("closed", concurrency=4), time_limit_s=600)
        backend.reset()
    finally:
        backend.close()
    return backend, generations


def test_ids_counts_and_cache_are_the_servers_own(url: str) -> None:
    backend, generations = run(url, {}, REQUESTS)
    info = backend.info
    assert info.version.startswith("vllm ")
    assert info.options["model"] == "m"
    assert info.options["token_counting"] == "ids"
    assert info.capabilities == {"server", "cache-telemetry", "cold-reset"}
    for generation in generations:
        assert generation.finished in ("length", "stop")
        assert sum(generation.commit_tokens) == len(generation.token_ids)
        assert generation.telemetry["server_tokens"] == len(generation.token_ids)
        assert generation.telemetry["cached_tokens"] == 0
    _, again = run(url, {}, REQUESTS)
    assert [g.token_ids for g in again] == [g.token_ids for g in generations]


def test_stop_token_counts_and_ends_the_answer(url: str) -> None:
    _, (whole, *_) = run(url, {}, REQUESTS[:1])
    stop = replace(REQUESTS[0], stop_ids=(whole.token_ids[2],))
    _, (stopped,) = run(url, {}, [stop])
    cut = whole.token_ids.index(whole.token_ids[2]) + 1
    assert (stopped.token_ids, stopped.finished) == (whole.token_ids[:cut], "stop")
    _, (ignored,) = run(url, {}, [replace(stop, ignore_eos=True)])
    assert (len(ignored.token_ids), ignored.finished) == (10, "length")


WITHOUT_IDS = {"extra_body": {"return_token_ids": None}}


@pytest.mark.parametrize("options", [{}, WITHOUT_IDS], ids=["ids", "usage"])
def test_another_models_tokenizer_is_refused(url: str, options: Mapping[str, Any]) -> None:
    with pytest.raises(UserError, match="the model's tokenizer is not the server's"):
        run(url, options, [], models.BUNDLED["demo"])


def test_counts_without_ids_agree_with_ids(url: str, model: Path) -> None:
    """A server that does not know `return_token_ids` still has its tokens counted right."""
    _, with_ids = run(url, {}, REQUESTS)
    backend, with_usage = run(url, WITHOUT_IDS, REQUESTS, model)
    assert backend.info.options["token_counting"] == "usage"
    assert [sum(g.commit_tokens) for g in with_usage] == [len(g.token_ids) for g in with_ids]


def test_chat_needs_the_models_tokenizer(url: str, model: Path) -> None:
    backend, generations = run(url, {"api": "chat"}, REQUESTS, model)
    assert backend.info.options["prompt_form"] == "chat"
    assert {g.finished for g in generations} <= {"length", "stop"}
    assert all(g.telemetry["server_tokens"] == len(g.token_ids) for g in generations)


def test_requests_that_the_server_cannot_serve_whole(url: str) -> None:
    impossible = [
        Request("long", (3,) * 200, 8),
        Request("cut", (3,) * 124, 8, ignore_eos=True),
        Request("unknown", (3, 5000), 8),
    ]
    _, (long, cut, unknown, fine) = run(url, {}, [*impossible, REQUESTS[0]])
    assert long.error is not None
    assert "HTTP 400" in long.error
    assert cut.error is not None
    assert unknown.error is not None
    assert "out of vocabulary" in unknown.error
    assert fine.finished in ("length", "stop")
