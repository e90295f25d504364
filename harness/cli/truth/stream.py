"""The bytes of the server of known truth: requests cut out of a stream, answers made of chunks."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

TOKEN = 5
"""Every token of every answer."""
PROMPT_TOKENS = 8
"""What the usage says of every prompt."""
DEFAULT_TOKENS = 16
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


@dataclass(slots=True)
class Call:
    """One request of a client."""

    method: str
    path: str
    body: bytes


@dataclass(slots=True)
class Wish:
    """What a request for tokens asks for."""

    name: int
    """The first token id of the prompt, -1 for a prompt of text."""
    tokens: int
    streams: bool
    chat: bool
    ids: bool
    usage: bool

    def chunk(self, tokens: int, finish: str | None = None) -> bytes:
        """An event with so many tokens, framed as a piece of the body."""
        return _chunk(tokens, finish, self.chat, self.ids)

    def end(self) -> bytes:
        """What follows the last token."""
        return _end(self.tokens if self.usage else 0, self.chat)

    def whole(self) -> dict[str, Any]:
        """The answer of a request that does not stream."""
        choice = _choice(self.tokens, self.chat, self.ids, "message")
        answer = {**_event(self.chat), "choices": [{**choice, "finish_reason": "length"}]}
        return {**answer, "object": answer["object"].removesuffix(".chunk")} | _usage(self.tokens)


def cut(received: bytearray) -> Call | None:
    """Take the first whole request out of `received`; None while a part of it is missing."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(received[:end])
    first, *lines = head.split(b"\r\n")
    length = 0
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    whole = end + 4 + length
    if len(received) < whole:
        return None
    body = bytes(received[end + 4 : whole])
    del received[:whole]
    method, path, _ = first.decode("latin-1").split(" ", 2)
    return Call(method, path.partition("?")[0], body)


def read_wish(call: Call) -> Wish:
    """Raises `ValueError`, `TypeError`, `KeyError` or `AttributeError` for what is no request."""
    body = json.loads(call.body)
    prompt = body.get("prompt")
    is_ids = isinstance(prompt, list) and prompt and isinstance(prompt[0], int)
    limit = body.get("max_tokens") or body.get("max_completion_tokens") or DEFAULT_TOKENS
    return Wish(
        prompt[0] if is_ids else -1,
        int(limit),
        bool(body.get("stream")),
        "chat" in call.path,
        bool(body.get("return_token_ids")),
        bool((body.get("stream_options") or {}).get("include_usage")),
    )


def plain(content: Any, *, head_only: bool = False, status: str = "200 OK") -> bytes:
    """A whole answer with `content` as JSON."""
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + (b"" if head_only else body)


@functools.cache
def _chunk(tokens: int, finish: str | None, chat: bool, ids: bool) -> bytes:
    choice = _choice(tokens, chat, ids, "delta")
    return _framed({**_event(chat), "choices": [{**choice, "finish_reason": finish}]})


@functools.cache
def _end(usage: int, chat: bool) -> bytes:
    if not usage:
        return DONE
    return _framed({**_event(chat), "choices": []} | _usage(usage)) + DONE


def _choice(tokens: int, chat: bool, ids: bool, part: str) -> dict[str, Any]:
    text = " a" * tokens
    content = {part: {"role": "assistant", "content": text}} if chat else {"text": text}
    return {"index": 0, **content} | ({"token_ids": [TOKEN] * tokens} if ids else {})


def _usage(tokens: int) -> dict[str, Any]:
    counts = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens}
    return {"usage": counts | {"total_tokens": PROMPT_TOKENS + tokens}}


def _event(chat: bool) -> dict[str, Any]:
    kind = "chat.completion.chunk" if chat else "text_completion"
    return {"id": "truth-0123456789abcdef", "object": kind, "created": 1700000000, "model": "m"}


def _framed(event: dict[str, Any]) -> bytes:
    data = f"data: {json.dumps(event, separators=(',', ':'))}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)
