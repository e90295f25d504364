"""A server asked before anything is measured: for its models, its version, an answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
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
FIRM = (401, 403, BUSY)
"""Of who asks and how often, whatever is asked."""
PATIENCE_S = 60.0
"""For an answer that needs no model."""
METRICS_TIMEOUT_S, LONGEST_METRICS = 5.0, 16 * 2**20
REFUSAL_TIMEOUT_S = 2.0
"""For the rest of an answer that nobody asks for."""
VLLM = "vllm "
"""Begins its versions (`find_version`)."""
RESET, EXTERNAL = "/reset_prefix_cache", "?reset_external=true"
CONNECTOR = re.compile(rb"^vllm:external_prefix_cache_queries(?:_total)?(?:\{.*\})? (\S+)$", re.M)
"""Prompt tokens that vLLM has looked up in a KV connector, by its metrics; 0 without one."""
BROKEN_OFF = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)


@dataclass(frozen=True, slots=True)
class Server:
    """An open connection pool and where it leads."""

    session: aiohttp.ClientSession
    base_url: str
    timeout_s: float
    """For an answer of the model's, which a server may have to load first."""

    @property
    def root(self) -> str:
        """The address without the API's ``/v1``."""
        return self.base_url.removesuffix("/v1")


@contextlib.asynccontextmanager
async def connect(base_url: str, key: str | None, timeout_s: float) -> AsyncIterator[Server]:
    """A pool of connections, by the way that requests take (`find_proxy`).

    An answer that is of no interest is read to its end all the same (`_drain`): the connection of
    one that was left early closes by and by (TLS says goodbye), for which nothing waits, and stays
    behind when the event loop ends.
    """
    headers = {"Accept-Encoding": "identity"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls_context()),
        timeout=_limit(min(PATIENCE_S, timeout_s)),
        headers=headers,
        auto_decompress=False,
        proxy=find_proxy(base_url),
    ) as session:
        yield Server(session, base_url, timeout_s)


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read what nobody asks for, if it comes soon."""
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async with asyncio.timeout(REFUSAL_TIMEOUT_S):
            await response.read()


def _limit(timeout_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)


class TooSlowError(UnavailableError):
    """Another try would be waited for as long."""


class AskError(Exception):
    """A request for an answer that brought none: `error` is what to tell of it, `status` HTTP's,
    None where the connection broke off or what came was no answer."""

    def __init__(self, error: UserError, status: int | None = None) -> None:
        super().__init__(str(error))
        self.error, self.status = error, status


async def ask(server: Server, path: str, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The chunks of an answer. Raises `AskError`."""
    where = f"backend 'http': {server.base_url}/{path}"
    try:
        async with server.session.post(
            f"{server.base_url}/{path}",
            json=content,
            allow_redirects=False,
            timeout=_limit(server.timeout_s),
        ) as response:
            if response.status in REFUSED:
                told = f"refused a test request: {await _refusal_of(response)}"
                refused = UserError(f"backend 'http': {server.base_url} {told}")
                raise AskError(refused, response.status)
            if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
                await _drain(response)
                raise AskError(UserError(f"{where}: the answer is encoded ({encoding}), unasked"))
            if not _is_stream(response):
                raise AskError(await _refused(where, response), response.status)
            reader = EventReader()
            events = reader.feed(await response.read()) + reader.finish()
        return [parse_chunk(event) for event in events if event.strip() != b"[DONE]"]
    except StreamError as error:
        raise AskError(UserError(f"{where}: {error}")) from None
    except (aiohttp.ClientError, OSError) as error:
        raise AskError(_lost(where, error, server.timeout_s)) from None


async def find_model(server: Server, name: str | None, usual: str) -> str:
    """The model to ask for: `name` if the server has it; without a name the only one there, or of
    several `usual`, as the experiment calls it."""
    where = f"backend 'http': {server.base_url}"
    try:
        async with server.session.get(f"{server.base_url}/models") as response:
            if response.status == 404 and name:
                await _drain(response)
                return name
            if response.status != 200:
                raise await _refused(f"{where}/models", response)
            listed = await response.read()
    except (aiohttp.ClientError, OSError) as error:
        limit_s = min(PATIENCE_S, server.timeout_s)
        raise _lost(where, error, limit_s, reached=False) from None
    try:
        served = [str(entry["id"]) for entry in json.loads(listed)["data"]]
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
                return f"{VLLM}{json.loads(await response.read())['version']}"
            await _drain(response)
    except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError):
        return "unknown"
    return called or "unknown"


async def reset_cache(server: Server, *, external: bool = False) -> bool | None:
    """Ask a vLLM server to drop its prefix cache: whether it did, None when it has no such call.

    `external`: and what a KV connector holds beside it. Where that fails the cache alone is
    dropped: not every connector can, and older versions say that one that is not there could not.
    """
    if external and await _reset(server, RESET + EXTERNAL):
        return True
    return await _reset(server, RESET)


async def _reset(server: Server, call: str) -> bool | None:
    try:
        async with server.session.post(f"{server.root}{call}") as response:
            if response.status != 200:
                await _drain(response)
                return None
            answer = json.loads(await response.read() or b"{}")
            return bool(answer.get("success", True))
    except (aiohttp.ClientError, OSError, ValueError, AttributeError):
        return None


async def has_connector(server: Server) -> bool | None:
    """Whether a vLLM server looks prompts up in a KV connector (offloading, LMCache), once it has
    had some; None where its metrics do not tell. Not all of these drop what they hold, and the
    server says all the same that it did."""
    told = bytearray()
    try:
        async with server.session.get(
            f"{server.root}/metrics", timeout=_limit(min(METRICS_TIMEOUT_S, server.timeout_s))
        ) as response:
            if response.status != 200:
                await _drain(response)
                return None
            async for piece in response.content.iter_any():
                told += piece
                if len(told) > LONGEST_METRICS:
                    return None
        counts = [float(count) for count in CONNECTOR.findall(told)]
    except (aiohttp.ClientError, OSError, ValueError):
        return None
    return any(count > 0 for count in counts) if counts else None


def _lost(where: str, error: Exception, limit_s: float, *, reached: bool = True) -> UserError:
    """The error for a connection that was not to be had, broke off or was silent for `limit_s`. But
    for a certificate, of which another try finds the same, it may be there later."""
    if type(error) is TimeoutError:  # those to connect are of other types
        return TooSlowError(f"{where} did not answer within {limit_s:g} s", reached=reached)
    why = str(error) or type(error).__name__
    line = f"{where}: {why}" if reached else f"{where}: no server answers there ({why})"
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
            await _drain(response)
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
