"""A server asked before anything is measured: for its models, its version, an answer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from backends.http.client import CONNECT_TIMEOUT_S, NO_STREAM
from backends.http.route import find_proxy, tls_context
from backends.http.stream import EventReader, StreamError, body_message, parse_chunk
from harness.core.errors import UnavailableError, UserError, nearest

REFUSED = (400, 422)
BUSY = 429
BROKEN_OFF = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)


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
    """A pool of connections, by the way that requests take (`find_proxy`)."""
    headers = {"Accept-Encoding": "identity"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls_context()),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        headers=headers,
        auto_decompress=False,
        proxy=find_proxy(base_url),
    ) as session:
        yield Server(session, base_url)


async def ask(
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
                raise await _refused(where, response)
            reader = EventReader()
            events = reader.feed(await response.read()) + reader.finish()
        return [parse_chunk(event) for event in events if event.strip() != b"[DONE]"], ""
    except StreamError as error:
        raise UserError(f"{where}: {error}") from None
    except (aiohttp.ClientError, OSError) as error:
        raise _lost(f"{where}: {str(error) or type(error).__name__}", error, reached=True) from None


async def find_model(server: Server, name: str | None, usual: str) -> str:
    """The model to ask for: `name` if the server has it; without a name the only one there, or of
    several `usual`, as the experiment calls it."""
    where = f"backend 'http': {server.base_url}"
    try:
        async with server.session.get(f"{server.base_url}/models") as response:
            if response.status == 404 and name:
                return name
            if response.status != 200:
                raise await _refused(f"{where}/models", response)
            listed = json.loads(await response.read())["data"]
            served = [str(entry["id"]) for entry in listed]
    except (aiohttp.ClientError, OSError) as error:
        told = f"{where}: no server answers there ({str(error) or type(error).__name__})"
        raise _lost(told, error, reached=False) from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{where}/models: not an OpenAI-compatible answer") from None
    if not served:
        raise UserError(f"{where} serves no model")
    if name is not None:
        if name not in served:
            raise UserError(f"{where} does not serve '{name}': {nearest(name, served)}")
        return name
    if len(served) == 1:
        return served[0]
    if usual in served:
        return usual
    raise UserError(
        f"{where} serves {len(served)} models: set the option 'model' (quick: --served-model); "
        f"{nearest(usual, served)}"
    )


async def find_version(server: Server) -> str:
    """vLLM's version, else what the server calls itself."""
    try:
        async with server.session.get(f"{server.root}/version") as response:
            called = response.headers.get("Server", "")
            if response.status == 200:
                return f"vllm {json.loads(await response.read())['version']}"
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        return "unknown"
    return called or "unknown"


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


def _lost(line: str, error: Exception, *, reached: bool) -> UserError:
    """The error for a connection that was not to be had or broke off. But for a certificate, of
    which another try finds the same, it may be there later."""
    if isinstance(error, BROKEN_OFF) and not isinstance(error, aiohttp.ClientSSLError):
        return UnavailableError(line, reached=reached)
    return UserError(line)


async def _refused(where: str, response: aiohttp.ClientResponse) -> UserError:
    """The error for an answer that is none. A server that is busy or starts may answer later."""
    status = response.status
    told = f"{where}: {_hint(status)}{await _refusal_of(response)}"
    if status == BUSY or status >= 500:
        return UnavailableError(told, reached=True)
    return UserError(told)


async def tokenize(server: Server, model: str, text: str) -> list[int] | None:
    """The server's token ids of `text`, asked for under the names that vLLM (SGLang too), llama.cpp
    and TGI have for it; None where it has no such call."""
    asked = {"model": model, "add_special_tokens": False}
    asked |= dict.fromkeys(("prompt", "content", "inputs"), text)
    try:
        async with server.session.post(f"{server.root}/tokenize", json=asked) as response:
            told = json.loads(await response.read()) if response.status == 200 else None
        found = told["tokens"] if isinstance(told, dict) else told
        return [int(one["id"] if isinstance(one, dict) else one) for one in found or ()] or None
    except (aiohttp.ClientError, OSError, ValueError, TypeError, LookupError):
        return None


async def _refusal_of(response: aiohttp.ClientResponse) -> str:
    """One line about an answer that is no event stream."""
    where = response.headers.get("Location")
    said = body_message(await response.read(), response.reason or "")
    return f"HTTP {response.status}{f' (go to {where})' if where else ''}: {said}"


def _is_stream(response: aiohttp.ClientResponse) -> bool:
    return response.status == 200 and response.content_type not in NO_STREAM


def _hint(status: int) -> str:
    return "needs a key (option api_key_env): " if status in (401, 403) else ""
