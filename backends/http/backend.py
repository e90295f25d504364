"""The `http` backend: one streamed request per answer, each server-sent event one commit."""

from __future__ import annotations

import asyncio
import bisect
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from backends.checkpoints import models
from backends.http.client import CONNECT_TIMEOUT_S, Client
from backends.http.encoders import Encode, encode, encoders
from backends.http.route import find_route
from backends.http.stream import StreamedAnswer
from backends.http.workers import ClientProcesses
from harness.core.backend import Backend, Option
from harness.core.errors import UnavailableError, UserError
from harness.core.names import CACHE_TELEMETRY, COLD_RESET, ENDS_AT_EOS, KEEPS_PROMPTS, SERVER
from harness.core.nouns import BackendInfo, Commit, Load, Model, Request
from workloads.prompts import user_message

if TYPE_CHECKING:
    from backends.http.probe.dialect import Dialect

PATHS = {"completions": "completions", "chat": "chat/completions"}
WAITS_S = (0.5, 1.5, 3.0)
"""Between the tries to reach a server: one that is busy or starts anew is there again by then."""
PROBE_IDS = (1, 1)
PROBE_TEXT = "Hello"
PROBE_TOKENS, LONGER_PROBE = 2, 16
RESET_TIMEOUT_S = 10.0
"""For so long a server that says it could not drop its cache is asked again."""
USUAL_ANSWER_S = 10.0
"""Of an open loop so many seconds of arrivals may be under way at once."""
HANDSHAKE_S = 0.25
"""TCP's and TLS's with a server across an ocean. Who arrives within it needs a connection that is
open already; more of them would only keep threads of the server waiting."""
STREAMS_OF_A_CLIENT = 1000


class HttpBackend(Backend):
    """A running server. It is not started here, and its engine options are its own affair."""

    OPTIONS: ClassVar[dict[str, Option]] = {
        "base_url": Option(str, "http://127.0.0.1:8000/v1", "the server's address, with /v1"),
        "api": Option(str, "completions", "which API to use", choices=tuple(PATHS)),
        "model": Option(str, None, "served name; default: the only one, else the experiment's"),
        "api_key_env": Option(str, None, "name of the environment variable with the API key"),
        "timeout_s": Option(float, 600.0, "longest wait for a whole answer", minimum=0.001),
        "clients": Option(
            int, None, "processes that talk to it; default: by the number of streams", minimum=1
        ),
        "prefix_caching": Option(
            bool,
            False,
            "true: the server reuses shared prompt beginnings, which is meant; none: it never does",
            words=("none",),
        ),
        "extra_body": Option(dict, {}, "fields for each request's body; null removes a field"),
    }
    needs_model = False
    CONTEXT = math.inf

    def __init__(self, settings: Mapping[str, Any], tokenizer: Any, model: str = "") -> None:
        self._settings, self._tokenizer, self._model = settings, tokenizer, model
        self._key = os.environ.get(settings["api_key_env"] or "") or None
        self._base_url: str = settings["base_url"]
        try:
            self._dialect: Dialect = asyncio.run(self._probe())
        except UserError as error:
            error.args = (self._redact(str(error)),)
            raise
        try:
            self._route = find_route(self._base_url, self._key, CONNECT_TIMEOUT_S)
        except OSError as error:
            told = f"backend 'http': {self._base_url}: {error}"
            raise UnavailableError(told, reached=True) from None
        self._encoders: tuple[Encode | None, Encode | None] = (None, None)
        if self._dialect.counting == "tokenizer":
            self._encoders = encoders(tokenizer)
        self._client: Client | ClientProcesses = Client(self._route, settings["timeout_s"])
        self._payloads: dict[str, bytes] = {}
        self.info = self._describe()

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for an address or a key variable that cannot be right."""
        from backends.http.probe.options import check_options

        check_options(options)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Connect and find out what the server can do. Raises `UserError` when it cannot serve.

        `model_dir` needs to hold a tokenizer only: for servers that take or report text.
        """
        from backends.http.probe.options import check_base_url

        settings = {**options, "base_url": check_base_url(options["base_url"])}
        tokenizer = None if model_dir is None else models.prompt_tokenizer(model_dir)
        return cls(settings, tokenizer, model.name)

    def _describe(self) -> BackendInfo:
        """What is served where, and how its tokens are counted."""
        dialect = self._dialect
        capabilities = {SERVER}
        if dialect.reports_cache:
            capabilities.add(CACHE_TELEMETRY)
        if dialect.resets_cache:
            capabilities.add(KEEPS_PROMPTS if dialect.keeps_prompts else COLD_RESET)
        if not dialect.ignores_eos:
            capabilities.add(ENDS_AT_EOS)
        return BackendInfo(
            name="http",
            version=dialect.version,
            provenance="official code",
            options={
                **self._settings,
                "model": dialect.model,
                "prompt_form": dialect.prompt,
                "token_counting": dialect.counting,
            },
            lossless=None,  # what runs behind the address is not known
            capabilities=frozenset(capabilities),
        )

    def prepare(self, requests: Sequence[Request], load: Load) -> None:
        """Before the clock starts: write the requests out and open the connections of the first."""
        self._payloads = {request.id: self._payload(request) for request in requests}
        times = [request.arrival_s for request in requests]
        streams, ready = (
            min(load.concurrency or most_at_once(times, within_s), len(requests))
            for within_s in (USUAL_ANSWER_S, HANDSHAKE_S)
        )
        self._use(min(self._settings["clients"] or clients_for(streams), max(streams, 1)))
        self._client.open(ready, streams)

    def submit(self, request: Request) -> None:
        """Send the request."""
        payload = self._payloads.pop(request.id, None) or self._payload(request)
        self._client.send(request.id, payload, self._answer(request))

    def poll(self) -> list[Commit]:
        """What has arrived since the last poll; never waits."""
        commits = self._client.poll()
        if self._key is not None and any(commit.error for commit in commits):
            return [replace(c, error=self._redact(c.error)) if c.error else c for c in commits]
        return commits

    def wait(self, timeout_s: float) -> None:
        """Sleep until something has arrived, at most `timeout_s`: cheaper and prompter than naps,
        whose processor time a server on this machine would miss."""
        self._client.wait(timeout_s)

    def reset(self) -> None:
        """Drop unfinished requests and, where the server has a call for it, its prefix cache."""
        self._payloads.clear()
        if isinstance(self._client, ClientProcesses) and not self._client.is_alive():
            self._use(1)
        self._client.cancel()
        if self._dialect.resets_cache:
            asyncio.run(self._reset_server())

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def texts(self) -> dict[str, str] | None:
        """The server's own text by request id since `reset`, where it reports no token ids."""
        return None if self._dialect.counting == "ids" else dict(self._client.texts)

    def _use(self, clients: int) -> None:
        """Talk to the server from this process (1) or from processes of their own."""
        have = self._client.count if isinstance(self._client, ClientProcesses) else 1
        if clients == have:
            return
        self._client.close()
        timeout_s = self._settings["timeout_s"]
        if clients == 1:
            self._client = Client(self._route, timeout_s)
        else:
            self._client = ClientProcesses(self._route, timeout_s, clients)

    def _answer(self, request: Request) -> StreamedAnswer:
        return StreamedAnswer(self._dialect.counting, request.max_new_tokens, *self._encoders)

    def _payload(self, request: Request) -> bytes:
        dialect = self._dialect
        body = {**self._body(dialect.prompt, request, dialect.extras), "model": dialect.model}
        if dialect.counting == "ids" and request.stop_ids and not request.ignore_eos:
            body["stop_token_ids"] = list(request.stop_ids)
        return self._route.request(PATHS[self._settings["api"]], body)

    async def _reset_server(self) -> None:
        """The server refuses while it is still dropping the requests that were just cancelled.

        What a connector holds may be other servers' too, and is left alone where the experiment
        does not need it empty.
        """
        from backends.http.probe.server import connect, reset_cache

        external = self._settings["prefix_caching"] is False
        give_up = time.monotonic() + RESET_TIMEOUT_S
        async with connect(self._base_url, self._key, self._settings["timeout_s"]) as server:
            while not await reset_cache(server, external=external):
                if time.monotonic() > give_up:
                    raise RuntimeError(f"{self._base_url} does not drop its prefix cache")
                await asyncio.sleep(0.05)

    async def _probe(self) -> Dialect:
        from backends.http.probe.dialect import probe
        from backends.http.probe.server import TooSlowError, connect

        def body(form: str, extras: Mapping[str, Any], ignore_eos: bool) -> dict[str, Any]:
            ids: tuple[int, ...] = PROBE_IDS
            if form != "ids":
                ids = tuple(encode(self._tokenizer, PROBE_TEXT))
            tokens = LONGER_PROBE if ignore_eos else PROBE_TOKENS
            asked = Request("probe", ids, tokens, ignore_eos=ignore_eos)
            return self._body(form, asked, extras)

        settings, model = self._settings, self._model
        path = PATHS[settings["api"]]
        if settings["api"] == "chat" and self._tokenizer is None:
            raise UserError("backend 'http': api 'chat' needs a model with a tokenizer")

        async def once(*, again: bool) -> Dialect:
            async with connect(self._base_url, self._key, settings["timeout_s"]) as server:
                return await probe(
                    server, settings["model"], path, body, self._tokenizer, model, again=again
                )

        for wait_s in WAITS_S:
            try:
                return await once(again=True)
            except TooSlowError:
                raise
            except UnavailableError:
                await asyncio.sleep(wait_s)
        return await once(again=False)

    def _body(self, form: str, request: Request, extras: Mapping[str, Any]) -> dict[str, Any]:
        """What a request asks for, but for the model and stops; the user's `extra_body` wins."""
        sampling = request.sampling
        body: dict[str, Any] = {
            "max_tokens": request.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stream": True,
        }
        if sampling.temperature > 0:
            body["seed"] = sampling.seed
        if request.ignore_eos:
            body["ignore_eos"] = True
        if form == "ids":
            body["prompt"] = list(request.prompt_ids)
        elif form == "text":
            body["prompt"] = self._text(request.prompt_ids)
        else:
            said = request.messages or (
                ("user", user_message(self._tokenizer, request.prompt_ids)),
            )
            body["messages"] = [{"role": role, "content": content} for role, content in said]
        body |= {**extras, **self._settings["extra_body"]}
        return {name: value for name, value in body.items() if value is not None}

    def _text(self, ids: Sequence[int]) -> str:
        """A prompt for a server that takes text, which puts the first special token itself."""
        begins = len(ids) > 0 and ids[0] == getattr(self._tokenizer, "bos_token_id", None)
        return str(self._tokenizer.decode(ids[begins:]))

    def _redact(self, line: str) -> str:
        """Keep the key out of stored errors, should the server echo it."""
        return line.replace(self._key, "***") if self._key else line


def most_at_once(arrivals_s: Sequence[float], within_s: float) -> int:
    """The most arrivals within so many seconds."""
    times = sorted(arrivals_s)
    return max(
        (i - bisect.bisect_right(times, t - within_s) + 1 for i, t in enumerate(times)), default=1
    )


def clients_for(streams: int) -> int:
    """Processes to follow so many streams with: a second one for every further thousand, as long as
    half of the processors stay free."""
    return max(1, min(math.ceil(streams / STREAMS_OF_A_CLIENT), (os.cpu_count() or 1) // 2))
