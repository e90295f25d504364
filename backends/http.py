"""Any OpenAI-compatible server, measured from outside: one streamed request per answer.

A background thread talks to the server; `poll` hands out what has arrived. Each server-sent event
becomes one commit with as many tokens as it brought.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from backends import Option, models
from backends.http_stream import Answer, EventReader, StreamError, shorten
from harness.core import BackendInfo, Commit, Model, Request, UserError
from workloads.prompts import user_message

if TYPE_CHECKING:
    from backends.http_probe import Dialect, Server

PATHS = {"completions": "completions", "chat": "chat/completions"}
PROBE_TIMEOUT_S = 60.0
PROBE_IDS = (1, 1)
PROBE_TEXT = "Hello"
PROBE_TOKENS = 2
LINGER_S = 1.0
"""How long usage, [DONE] and the end of the body may take after the finish_reason. Only then is a
request over: the next one finds its connection free."""
RESET_TIMEOUT_S = 10.0
T = TypeVar("T")


class HttpBackend:
    """A running server. It is not started here, and its engine options are its own affair."""

    OPTIONS: ClassVar[dict[str, Option]] = {
        "base_url": Option(str, "http://127.0.0.1:8000/v1", "the server's address, with /v1"),
        "api": Option(str, "completions", "which API to use", choices=tuple(PATHS)),
        "model": Option(str, None, "name on the server; default: the one that it serves"),
        "api_key_env": Option(str, None, "name of the environment variable with the API key"),
        "timeout_s": Option(float, 600.0, "longest wait for a whole answer", minimum=0.001),
        "prefix_caching": Option(
            bool, False, "the server reuses shared prompt beginnings, and that is meant"
        ),
        "extra_body": Option(dict, {}, "fields for each request's body; null removes a field"),
    }
    needs_model = False

    def __init__(self, settings: Mapping[str, Any], tokenizer: Any) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._arrived: deque[Commit] = deque()
        self._news = threading.Event()
        self._texts: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http", daemon=True)
        self._thread.start()
        self._server: Server = self._wait(self._connect())
        try:
            self._dialect: Dialect = self._wait(self._probe())
        except UserError as error:
            self.close()
            raise UserError(self._redact(str(error))) from None

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for an address or a key variable that cannot be right."""
        from backends.http_probe import check_options

        check_options(options)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> HttpBackend:
        """Connect and find out what the server can do. Raises `UserError` when it cannot serve.

        `model_dir` needs to hold a tokenizer only: for servers that take or report text.
        """
        from backends.http_probe import check_base_url

        settings = {name: option.default for name, option in cls.OPTIONS.items()} | dict(options)
        cls.check(settings)
        settings["base_url"] = check_base_url(settings["base_url"])
        tokenizer = None if model_dir is None else models.load_tokenizer(model_dir)
        return cls(settings, tokenizer)

    @property
    def info(self) -> BackendInfo:
        """What is served where, and how its tokens are counted."""
        dialect = self._dialect
        capabilities = {"server", "token-ids" if dialect.counting == "ids" else "server-text"}
        if dialect.reports_cache:
            capabilities.add("cache-telemetry")
        if dialect.resets_cache:
            capabilities.add("cold-reset")
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
            lossless=False,
            capabilities=frozenset(capabilities),
        )

    def submit(self, request: Request) -> None:
        """Hand the request to the background thread, which sends it at once."""
        self._loop.call_soon_threadsafe(self._start, request)

    def poll(self) -> list[Commit]:
        """What has arrived since the last poll; never waits."""
        commits = []
        while self._arrived:
            commits.append(self._arrived.popleft())
        return commits

    def wait(self, timeout_s: float) -> None:
        """Sleep until something has arrived, at most `timeout_s`: cheaper and prompter than naps,
        whose processor time a server on this machine would miss."""
        if not self._arrived:
            self._news.wait(timeout_s)
        self._news.clear()

    def reset(self) -> None:
        """Drop unfinished requests and, where the server has a call for it, its prefix cache."""
        self._wait(self._cancel())
        self._arrived.clear()
        self._texts.clear()
        if self._dialect.resets_cache:
            self._wait(self._reset_server())

    def close(self) -> None:
        """Close every connection and end the thread."""
        self._wait(self._cancel())
        self._wait(self._server.session.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def texts(self) -> dict[str, str]:
        """The server's own text by request id since `reset`, for when it reports no token ids."""
        return dict(self._texts)

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _start(self, request: Request) -> None:
        task = self._loop.create_task(self._serve(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _reset_server(self) -> None:
        """The server refuses while it is still dropping the requests that were just cancelled."""
        from backends.http_probe import reset_cache

        give_up = time.monotonic() + RESET_TIMEOUT_S
        while not await reset_cache(self._server):
            if time.monotonic() > give_up:
                raise RuntimeError(f"{self._server.base_url} does not drop its prefix cache")
            await asyncio.sleep(0.05)

    async def _connect(self) -> Server:
        from backends.http_probe import connect

        variable = self._settings["api_key_env"]
        return connect(self._settings["base_url"], os.environ[variable] if variable else None)

    async def _probe(self) -> Dialect:
        from backends.http_probe import probe

        def body(form: str, extras: Mapping[str, Any]) -> dict[str, Any]:
            ids = PROBE_IDS if form == "ids" else tuple(self._encode(PROBE_TEXT))
            return self._body(form, Request("probe", ids, PROBE_TOKENS), extras)

        settings = self._settings
        path = PATHS[settings["api"]]
        if settings["api"] == "chat" and self._tokenizer is None:
            raise UserError("backend 'http': api 'chat' needs a model with a tokenizer")
        limit = min(PROBE_TIMEOUT_S, settings["timeout_s"])
        try:
            async with asyncio.timeout(limit):
                found = self._tokenizer is not None
                return await probe(self._server, settings["model"], path, body, found)
        except TimeoutError:
            raise UserError(
                f"backend 'http': {settings['base_url']} did not answer within {limit:g} s"
            ) from None

    async def _serve(self, request: Request) -> None:
        """One request from send to finish; whatever goes wrong becomes its error commit."""
        encode = None if self._tokenizer is None else self._encode
        answer = Answer(self._dialect.counting, request.max_new_tokens, encode)
        limit = asyncio.timeout(self._settings["timeout_s"])
        error = None
        try:
            async with limit:
                await self._stream(request, answer, limit)
        except StreamError as problem:
            error = str(problem)
        except Exception as problem:  # whatever it is, the request must not be lost
            late = f"no complete answer within {self._settings['timeout_s']:g} s"
            other = f"{type(problem).__name__}: {shorten(problem)}"
            error = None if answer.finished else late if limit.expired() else other
        self._finish(request.id, answer, error)

    async def _stream(self, request: Request, answer: Answer, limit: asyncio.Timeout) -> None:
        """Send the request and read its answer to the end, so that the connection is kept."""
        from backends.http_probe import is_stream, refusal_of

        dialect = self._dialect
        url = f"{self._server.base_url}/{PATHS[self._settings['api']]}"
        body = {**self._body(dialect.prompt, request, dialect.extras), "model": dialect.model}
        if dialect.counting == "ids" and request.stop_ids and not request.ignore_eos:
            body["stop_token_ids"] = list(request.stop_ids)
        async with self._server.session.post(url, json=body) as response:
            if not is_stream(response):
                raise StreamError(await refusal_of(response))
            reader = EventReader()
            async for chunk in response.content.iter_any():
                self._read(request.id, answer, reader.feed(chunk))
                if answer.finished is not None:
                    limit.reschedule(self._loop.time() + LINGER_S)
            self._read(request.id, answer, reader.finish())

    def _read(self, request_id: str, answer: Answer, events: Sequence[bytes]) -> None:
        for event in events:
            if answer.done:
                return
            tokens = answer.read(event)
            if tokens:
                self._arrive(Commit(request_id, tokens))

    def _finish(self, request_id: str, answer: Answer, error: str | None) -> None:
        self._texts[request_id] = "".join(answer.texts)
        if error is None and answer.finished is not None:
            commit = Commit(request_id, (), answer.finished, answer.telemetry())
        else:
            line = error or "the stream ended without a finish_reason"
            line = self._redact(f"{line} (after {answer.tokens} tokens)")
            commit = Commit(request_id, (), "error", error=line)
        self._arrive(commit)

    def _arrive(self, commit: Commit) -> None:
        self._arrived.append(commit)
        self._news.set()

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
            text = user_message(self._tokenizer, request.prompt_ids)
            body["messages"] = [{"role": "user", "content": text}]
        body |= {**extras, **self._settings["extra_body"]}
        return {name: value for name, value in body.items() if value is not None}

    def _text(self, ids: Sequence[int]) -> str:
        """A prompt for a server that takes text, which puts the first special token itself."""
        begins = len(ids) > 0 and ids[0] == getattr(self._tokenizer, "bos_token_id", None)
        return str(self._tokenizer.decode(ids[begins:]))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _redact(self, line: str) -> str:
        """Keep the key out of stored errors, should the server echo it."""
        key = os.environ.get(self._settings["api_key_env"] or "")
        return line.replace(key, "***") if key else line
