"""Finds out what an OpenAI-compatible server can do before anything is measured against it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from backends.http.probe.server import (
    Server,
    ask,
    find_model,
    find_version,
    reset_cache,
    tokenize,
)
from backends.http.probe.texts import SENTENCE, check_ids, check_texts
from backends.http.stream import Counting, StreamError, chunk_text, finish_of
from harness.core.errors import UserError

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


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to talk to this server."""

    model: str
    version: str
    prompt: Literal["ids", "text", "chat"]
    counting: Counting
    extras: Mapping[str, Any]
    """Fields of each request beside what is asked: one of `EXTRAS`, and `PINNED` where the server
    takes it."""
    reports_cache: bool
    resets_cache: bool
    ignores_eos: bool
    """Whether it takes the field; a strict server refuses every request that has it."""


async def probe(
    server: Server,
    name: str | None,
    path: str,
    body: Callable[[str, Mapping[str, Any], bool], dict[str, Any]],
    tokenizer: Any,
    usual: str = "",
) -> Dialect:
    """Ask the server for its models, and for a few tokens in ever plainer terms until it agrees.

    `body(prompt form, extras, ignore_eos)` makes a request's body, but for `model`; `tokenizer` is
    the model's, None where there is none; `name` and `usual`: as in `find_model`. Raises
    `UserError` naming the server when it cannot be used.
    """
    model = await find_model(server, name, usual)
    forms: tuple[Literal["ids", "text", "chat"], ...] = ("ids", "text")
    if path == "chat/completions":
        forms = ("chat",)
    refusal = "nothing was tried"
    for form in forms[:1] if tokenizer is None else forms:
        for extras in EXTRAS:
            content = {**body(form, extras, False), "model": model}
            events, refusal = await ask(server, path, content)
            if events is None:
                continue
            counting = _counting(server, events)
            if counting is None and extras is RUNNING_USAGE:
                # all of a short answer may have come in one chunk, with its finish_reason
                longer, _ = await ask(server, path, {**body(form, extras, True), "model": model})
                with contextlib.suppress(UserError):
                    counting = _counting(server, longer or ())
            if counting is None and extras in EXTRAS[:2]:
                continue
            if counting is None and tokenizer is None:
                raise UserError(
                    f"backend 'http': {server.base_url} reports neither token ids nor running "
                    "usage, and there is no tokenizer to count with"
                )
            pinned = {**extras, **PINNED}
            taken, _ = await ask(server, path, {**body(form, pinned, False), "model": model})
            extras = extras if taken is None else pinned
            endless, _ = await ask(server, path, {**body(form, extras, True), "model": model})
            if tokenizer is not None:
                where = f"backend 'http': {server.base_url}"
                if counting == "ids":
                    check_texts(where, [events, endless or ()], tokenizer)
                else:
                    check_ids(where, await tokenize(server, model, SENTENCE), tokenizer)
            return Dialect(
                model=model,
                version=await find_version(server),
                prompt=form,
                counting=counting or "tokenizer",
                extras=extras,
                reports_cache=any(_reports_cache(event) for event in events),
                resets_cache=await reset_cache(server) is not None,
                ignores_eos=endless is not None,
            )
    raise UserError(f"backend 'http': {server.base_url} refused a test request: {refusal}")


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


def _reports_cache(event: Mapping[str, Any]) -> bool:
    """Whether it counts the prompt tokens that came from the server's cache; details alone may be
    of something else, such as audio."""
    usage = event.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    return isinstance(details, dict) and type(details.get("cached_tokens")) is int
