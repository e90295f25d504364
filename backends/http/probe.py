"""Finds out what an OpenAI-compatible server can do before anything is measured against it."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp

from backends.http.client import CONNECT_TIMEOUT_S, NO_STREAM
from backends.http.route import is_loopback, tls_context
from backends.http.stream import (
    Counting,
    EventReader,
    StreamError,
    body_message,
    chunk_text,
    parse_chunk,
)
from harness.core.errors import UserError, nearest

OWN_FIELDS = ("model", "prompt", "messages", "stream", "n", "echo", "stop_token_ids")
REFUSED = (400, 422)
USAGE: Mapping[str, Any] = {"stream_options": {"include_usage": True}}
RUNNING_USAGE: Mapping[str, Any] = {
    "stream_options": {"include_usage": True, "continuous_usage_stats": True}
}
EXTRAS: Sequence[Mapping[str, Any]] = (
    {**USAGE, "return_token_ids": True},
    RUNNING_USAGE,
    USAGE,
    {},
)
"""What to ask for beyond the answer, the best first: vLLM takes all, a strict server nothing. Each
chunk's usage is asked for only where there are no ids, since making it costs the server time."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to talk to this server."""

    model: str
    version: str
    prompt: Literal["ids", "text", "chat"]
    counting: Counting
    extras: Mapping[str, Any]
    reports_cache: bool
    resets_cache: bool


@dataclass(frozen=True, slots=True)
class Server:
    """An open connection pool and where it leads."""

    session: aiohttp.ClientSession
    base_url: str

    @property
    def root(self) -> str:
        """The address without the API's ``/v1``."""
        return self.base_url.removesuffix("/v1")


@contextlib.asynccontextmanager
async def connect(base_url: str, key: str | None) -> AsyncIterator[Server]:
    """A pool of connections. Environment proxies are used only for servers elsewhere."""
    headers = {"Accept-Encoding": "identity"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls_context()),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        headers=headers,
        auto_decompress=False,
        trust_env=not is_loopback(urlsplit(base_url).hostname or ""),
    ) as session:
        yield Server(session, base_url)


async def probe(
    server: Server,
    name: str | None,
    path: str,
    body: Callable[[str, Mapping[str, Any]], dict[str, Any]],
    has_tokenizer: bool,
) -> Dialect:
    """Ask the server for its models, and for two tokens in ever plainer terms until it agrees.

    `body(prompt form, extras)` makes a request's body, but for `model`. Raises
    `UserError` naming the server when it cannot be used.
    """
    model = await _model(server, name)
    forms: tuple[Literal["ids", "text", "chat"], ...] = ("ids", "text")
    if path == "chat/completions":
        forms = ("chat",)
    refusal = "nothing was tried"
    for form in forms if has_tokenizer else forms[:1]:
        for extras in EXTRAS:
            content = {**body(form, extras), "model": model}
            events, refusal = await _try(server, path, content)
            if events is None:
                continue
            counting = _counting(server, events)
            if counting is None and extras in EXTRAS[:2]:
                continue
            if counting is None and not has_tokenizer:
                raise UserError(
                    f"backend 'http': {server.base_url} reports neither token ids nor running "
                    "usage, and there is no tokenizer to count with"
                )
            return Dialect(
                model=model,
                version=await _version(server),
                prompt=form,
                counting=counting or "tokenizer",
                extras=extras,
                reports_cache=any(_reports_cache(event) for event in events),
                resets_cache=await reset_cache(server) is not None,
            )
    raise UserError(f"backend 'http': {server.base_url} refused a test request: {refusal}")


async def reset_cache(server: Server) -> bool | None:
    """Ask a vLLM server to drop its prefix cache: whether it did, None when it has no such call."""
    try:
        async with server.session.post(f"{server.root}/reset_prefix_cache") as response:
            if response.status != 200:
                return None
            answer = json.loads(await response.read() or b"{}")
            return bool(answer.get("success", True))
    except (aiohttp.ClientError, OSError, ValueError, AttributeError):
        return None


async def _refusal_of(response: aiohttp.ClientResponse) -> str:
    """One line about an answer that is no event stream."""
    where = response.headers.get("Location")
    said = body_message(await response.read(), response.reason or "")
    return f"HTTP {response.status}{f' (go to {where})' if where else ''}: {said}"


def _is_stream(response: aiohttp.ClientResponse) -> bool:
    return response.status == 200 and response.content_type not in NO_STREAM


async def _try(
    server: Server, path: str, content: Mapping[str, Any]
) -> tuple[list[dict[str, Any]] | None, str]:
    """(the chunks, "") or (None, why the server refused this form of the request)."""
    where = f"backend 'http': {server.base_url}/{path}"
    try:
        async with server.session.post(
            f"{server.base_url}/{path}", json=content, allow_redirects=False
        ) as response:
            if response.status in REFUSED:
                return None, await _refusal_of(response)
            if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
                raise UserError(f"{where}: the answer is encoded ({encoding}), unasked")
            if not _is_stream(response):
                raise UserError(f"{where}: {_hint(response.status)}{await _refusal_of(response)}")
            reader = EventReader()
            events = reader.feed(await response.read()) + reader.finish()
        return [parse_chunk(event) for event in events if event.strip() != b"[DONE]"], ""
    except StreamError as error:
        raise UserError(f"{where}: {error}") from None
    except (aiohttp.ClientError, OSError) as error:
        raise UserError(f"{where}: {error or type(error).__name__}") from None


def _hint(status: int) -> str:
    return "needs a key (option api_key_env): " if status in (401, 403) else ""


def _counting(server: Server, events: Sequence[dict[str, Any]]) -> Counting | None:
    """How these chunks tell the number of their tokens; None: not at all."""
    choices = [event["choices"][0] for event in events if event["choices"]]
    if not any(chunk_text(c) or c.get("token_ids") or c.get("finish_reason") for c in choices):
        raise UserError(f"backend 'http': {server.base_url} streamed no tokens to a test request")
    if any(isinstance(choice.get("token_ids"), list) for choice in choices):
        return "ids"
    if any(isinstance(event.get("usage"), dict) for event in events if event["choices"]):
        return "usage"
    return None


def _reports_cache(event: Mapping[str, Any]) -> bool:
    usage = event.get("usage")
    return isinstance(usage, dict) and isinstance(usage.get("prompt_tokens_details"), dict)


async def _model(server: Server, name: str | None) -> str:
    """The model to ask for: `name` if the server has it, else the only one that it has."""
    where = f"backend 'http': {server.base_url}"
    try:
        async with server.session.get(f"{server.base_url}/models") as response:
            if response.status == 404 and name:
                return name
            if response.status != 200:
                raise UserError(
                    f"{where}/models: {_hint(response.status)}{await _refusal_of(response)}"
                )
            listed = json.loads(await response.read())["data"]
            served = [str(entry["id"]) for entry in listed]
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise UserError(f"{where}: no server answers there ({reason})") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{where}/models: not an OpenAI-compatible answer") from None
    if name is not None:
        if name not in served:
            raise UserError(f"{where} does not serve '{name}': {nearest(name, served)}")
        return name
    if len(served) != 1:
        raise UserError(f"{where} serves {len(served)} models: set the option 'model'")
    return served[0]


async def _version(server: Server) -> str:
    """vLLM's version, else what the server calls itself."""
    try:
        async with server.session.get(f"{server.root}/version") as response:
            called = response.headers.get("Server", "")
            if response.status == 200:
                return f"vllm {json.loads(await response.read())['version']}"
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        return "unknown"
    return called or "unknown"


def check_options(options: Mapping[str, Any]) -> None:
    """Raise `UserError` for an address, a field or a key variable that cannot be right."""
    check_base_url(options["base_url"])
    for name in options["extra_body"]:
        if name in OWN_FIELDS:
            raise UserError(f"backend 'http': extra_body: '{name}' is set by decodebench")
    variable = options["api_key_env"]
    if variable is None:
        return
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", variable):
        # The value is not repeated: it may be the key itself.
        raise UserError("backend 'http': api_key_env: expected the NAME of a variable")
    if not os.environ.get(variable):
        raise UserError(f"backend 'http': api_key_env: ${variable} is not set")


def check_base_url(url: str) -> str:
    """`url` without a trailing slash, ``/v1`` added when it has no path. Raises `UserError`."""
    try:
        parts = urlsplit(url)
        bad = not url.isascii() or any(c <= " " or c == "\x7f" for c in url)
        bad = bad or parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        bad = True
    if bad:
        raise UserError(
            f"backend 'http': base_url {url!r}: expected http(s)://HOST[:PORT][/v1]"
        ) from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "backend 'http': base_url holds more than an address; "
            "name the variable with the key in api_key_env"
        )
    return url.rstrip("/") if parts.path.strip("/") else url.rstrip("/") + "/v1"
