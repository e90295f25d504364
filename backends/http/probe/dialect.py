"""Finds out what an OpenAI-compatible server can do before anything is measured against it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from backends.http.probe.server import (
    FIRM,
    PATIENCE_S,
    REFUSED,
    VLLM,
    AskError,
    Server,
    TooSlowError,
    ask,
    find_model,
    find_version,
    has_connector,
    reset_cache,
    tokenize,
)
from backends.http.probe.texts import SENTENCE, check_ids, check_texts
from backends.http.stream import Counting, StreamError, chunk_text, finish_of
from harness.core.errors import UnavailableError, UserError

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

PINNED: Mapping[str, Any] = {"repetition_penalty": 1.0, "top_k": -1, "min_p": 0.0}
"""Sampling that an experiment does not have, turned off: a server fills in what a request leaves
open, vLLM's from the model's `generation_config.json`."""

REPEATED = 200
"""Makes of the probe's short prompt one that no cache is too coarse for: blocks have 16 to 256
tokens, and SGLang and older versions of vLLM tell of no tokens only by saying nothing."""

Form = Literal["ids", "text", "chat"]
Body = Callable[[str, Mapping[str, Any], bool], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to talk to this server."""

    model: str
    version: str
    prompt: Form
    counting: Counting
    extras: Mapping[str, Any]
    """Fields of each request beside what is asked: one of `EXTRAS`, and `PINNED` where the server
    takes it."""
    reports_cache: bool
    resets_cache: bool
    keeps_prompts: bool
    """Whether a KV connector may hold prompts beside the cache, which may outlast a reset: one that
    is there, or of which a vLLM server tells nothing."""
    ignores_eos: bool
    """Whether it takes the field; a strict server refuses every request that has it."""


@dataclass(frozen=True, slots=True)
class _Asker:
    """Test requests to one server."""

    server: Server
    path: str
    model: str
    body: Body

    def content(
        self, form: Form, extras: Mapping[str, Any], ignore_eos: bool = False
    ) -> dict[str, Any]:
        """A request's body."""
        return {**self.body(form, extras, ignore_eos), "model": self.model}

    async def ask(self, content: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """The chunks, None where the server refuses this form of a request; raises `UserError`."""
        try:
            return await ask(self.server, self.path, content)
        except AskError as failed:
            if failed.status in REFUSED:
                return None
            raise failed.error from None


async def probe(
    server: Server,
    name: str | None,
    path: str,
    body: Body,
    tokenizer: Any,
    usual: str = "",
    *,
    again: bool = False,
) -> Dialect:
    """Ask the server for its models, and for a few tokens in ever plainer terms until it agrees.

    `body(prompt form, extras, ignore_eos)` makes a request's body, but for `model`; `tokenizer` is
    the model's, None where there is none; `name` and `usual`: as in `find_model`. `again`: the
    caller tries again where the server may only be busy; else one that fails at token ids in
    whatever way is asked with text. Raises `UserError` naming the server when it cannot be used.
    """
    asker = _Asker(server, path, await find_model(server, name, usual), body)
    is_chat = path == "chat/completions"
    try:
        return await _agree(asker, "chat" if is_chat else "ids", tokenizer)
    except AskError as error:
        failed = error
    # what another try may bring, or would only wait for once more
    passes = isinstance(failed.error, UnavailableError if again else TooSlowError)
    if is_chat or tokenizer is None or passes or failed.status in FIRM:
        raise failed.error
    try:
        return await _agree(asker, "text", tokenizer)
    except AskError as error:
        raise (error if failed.status in REFUSED else failed).error from None


async def _agree(asker: _Asker, form: Form, tokenizer: Any) -> Dialect:
    """The most that the server takes with prompts of this form. Raises `AskError` where it answers
    none, `UserError` where its answers are of no use."""
    server = asker.server
    refused = AskError(UserError(f"backend 'http': {server.base_url}: nothing was tried"))
    for extras in EXTRAS:
        try:
            events = await ask(server, asker.path, asker.content(form, extras))
        except AskError as error:
            if error.status not in REFUSED:
                raise
            refused = error
            continue
        counting = _counting(server, events)
        if counting is None and extras is RUNNING_USAGE:
            # all of a short answer may have come in one chunk, with its finish_reason
            longer = await asker.ask(asker.content(form, extras, True))
            with contextlib.suppress(UserError):
                counting = _counting(server, longer or ())
        if counting is None and extras in EXTRAS[:2]:
            continue
        if counting is None and tokenizer is None:
            raise UserError(
                f"backend 'http': {server.base_url} reports neither token ids nor running "
                "usage, and there is no tokenizer to count with"
            )
        return await _settle(asker, form, extras, counting or "tokenizer", events, tokenizer)
    raise refused


async def _settle(
    asker: _Asker,
    form: Form,
    extras: Mapping[str, Any],
    counting: Counting,
    events: Sequence[dict[str, Any]],
    tokenizer: Any,
) -> Dialect:
    """What else the server takes and tells, which has answered with `events`."""
    server = asker.server
    pinned = {**extras, **PINNED}
    if await asker.ask(asker.content(form, pinned)) is not None:
        extras = pinned
    endless = await asker.ask(asker.content(form, extras, True))
    if tokenizer is not None:
        where = f"backend 'http': {server.base_url}"
        if counting == "ids":
            check_texts(where, [events, endless or ()], tokenizer)
        else:
            check_ids(where, await tokenize(server, asker.model, SENTENCE), tokenizer)
    version = await find_version(server)
    reports_cache = await _counts_cached(asker, asker.content(form, extras), events)
    connector = await has_connector(server)  # which counts once there was a prompt of a block
    return Dialect(
        model=asker.model,
        version=version,
        prompt=form,
        counting=counting,
        extras=extras,
        reports_cache=reports_cache,
        resets_cache=await reset_cache(server) is not None,
        keeps_prompts=version.startswith(VLLM) if connector is None else connector,
        ignores_eos=endless is not None,
    )


def _counting(server: Server, events: Sequence[dict[str, Any]]) -> Counting | None:
    """How these chunks tell the number of their tokens; None: not at all."""
    choices = [event["choices"][0] for event in events if event["choices"]]
    try:
        endings = [finish_of(choice) for choice in choices]
    except StreamError as error:
        raise UserError(f"backend 'http': {server.base_url}: a test request: {error}") from None
    if not any(endings):
        told = "finish_reason" if any(map(chunk_text, choices)) else "tokens"
        raise UserError(f"backend 'http': {server.base_url} streamed no {told} to a test request")
    if any(isinstance(choice.get("token_ids"), list) for choice in choices):
        return "ids"
    if any(_runs(event) for event in events if event["choices"]):
        return "usage"
    return None


def _runs(event: Mapping[str, Any]) -> bool:
    """Whether a chunk has a usage that counts while the answer runs. One beside the finish_reason
    alone is the whole answer's: by it all tokens would come at the end."""
    usage = event.get("usage")
    if not isinstance(usage, dict) or finish_of(event["choices"][0]) is not None:
        return False
    count = usage.get("completion_tokens")
    return isinstance(count, int) and count > 0


async def _counts_cached(
    asker: _Asker, content: Mapping[str, Any], events: Sequence[dict[str, Any]]
) -> bool:
    """Whether the server counts cached prompt tokens: in these chunks or, as some do only where
    there are any, in those of a longer prompt that is asked twice."""
    longer = {**content}
    if "messages" in content:
        longer["messages"] = [
            {**said, "content": said["content"] * REPEATED} for said in content["messages"]
        ]
    else:
        longer["prompt"] = content["prompt"] * REPEATED
    patience_s = min(PATIENCE_S, asker.server.timeout_s)  # the model is loaded by now
    asker = replace(asker, server=replace(asker.server, timeout_s=patience_s))
    for _ in range(2):
        if any(map(_reports_cache, events)):
            return True
        try:
            again = await asker.ask(longer)
        except UserError:
            again = None
        if again is None:  # such as for a prompt that is too long
            return False
        events = again
    return any(map(_reports_cache, events))


def _reports_cache(event: Mapping[str, Any]) -> bool:
    """Whether it counts the prompt tokens that came from the server's cache; details alone may be
    of something else, such as audio."""
    usage = event.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    return isinstance(details, dict) and type(details.get("cached_tokens")) is int
