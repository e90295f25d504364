"""Reads a streamed OpenAI-style answer: server-sent events, then the tokens that each one brings.

Nothing here waits or times; `backends.http.client` feeds it bytes as they arrive.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from backends.http.encoders import Encode
from harness.core.names import CACHED_TOKENS, COUNTED_TOKENS, SERVER_TOKENS
from harness.core.nouns import UNKNOWN_TOKEN, FinishReason

Counting = Literal["ids", "usage", "tokenizer"]
"""Where token counts come from: ids in each chunk (exact), the running usage in each chunk (exact
counts, no ids), or our own tokenizer over each chunk's text (about right: a chunk may end inside a
token, and the stop token is not seen)."""
LONGEST_EVENT = 16 * 2**20
SHOWN = 200
THOUGHT, THOUGHT_ENDS = "<think>", "</think>"
FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "stop",
    "function_call": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
}
"""OpenAI's words, and those of TGI and others for what ended the answer."""


class StreamError(Exception):
    """The stream broke the protocol or reported an error; the message is one line."""


class EventReader:
    """Cuts a byte stream into the data of its events (HTML Living Standard, section 9.2)."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._held = 0
        """Bytes in `_data`, line ends included."""
        self.has_more = False
        """Whether anything came after the last whole event, a comment too."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that `chunk` completes. Comments and other fields are dropped."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._held += len(line) + 1
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._held = 0
                self.has_more = False
                continue
            self.has_more = True
        self.has_more = self.has_more or bool(self._rest)
        if len(self._rest) + self._held > LONGEST_EVENT:
            raise StreamError(f"an event of more than {LONGEST_EVENT} bytes")
        return events

    def finish(self) -> list[bytes]:
        """At the end of the stream: a last event that no empty line closed."""
        return self.feed(b"\n\n") if self._rest or self._data else []


@dataclass(slots=True)
class StreamedAnswer:
    """What one request's stream has brought so far."""

    counting: Counting
    max_new_tokens: int
    encode: Encode | None = None
    """Text to token ids, for counting "tokenizer"."""
    encode_on: Encode | None = None
    """The same of text that goes on, where that differs (`encoders`)."""
    tokens: int = 0
    """Booked so far."""
    counted: int = 0
    """By our tokenizer, which may be more than were asked for."""
    brings: bool = False
    """Whether the last event had something of the answer. Tokens that are read with the
    finish_reason may be those of an earlier event, the last one that had."""
    finished: FinishReason | None = None
    done: bool = False
    """Nothing more is to come."""
    thoughts: list[str] = field(default_factory=list)
    """What the model thought, where the server tells it apart."""
    texts: list[str] = field(default_factory=list)
    """The rest of its text, in as many pieces as there were chunks."""
    server_tokens: int | None = None
    cached_tokens: int | None = None

    def read(self, event: bytes) -> tuple[int, ...]:
        """The new tokens of one event. Raises `StreamError` for anything but a proper chunk."""
        if event.strip() == b"[DONE]":
            self.done = True
            return ()
        chunk = parse_chunk(event)
        self._read_usage(chunk.get("usage"))
        self.brings = False
        if not chunk["choices"]:
            self.done = self.finished is not None and "usage" in chunk
            return ()
        choice = chunk["choices"][0]
        thought, said = chunk_parts(choice)
        text = thought + said
        tokens = self._tokens(choice, text)
        self.brings = bool(text if self.counting == "tokenizer" else tokens)
        if tokens and self.finished is not None:
            raise StreamError("tokens after the finish_reason")
        self.thoughts.append(thought)
        self.texts.append(said)
        self.tokens += len(tokens)
        if self.tokens > self.max_new_tokens:
            raise StreamError(f"{self.tokens} tokens, {self.max_new_tokens} asked for")
        self._read_finish(choice)
        return tokens

    def text(self) -> str:
        """The answer's text. Thoughts come first, between the tags that a server takes away, so
        that it reads as elsewhere, whenever they came: what is behind the last is the answer."""
        thought, said = "".join(self.thoughts), "".join(self.texts)
        if not thought:
            return said
        return THOUGHT + thought + (THOUGHT_ENDS + said if said else "")

    def telemetry(self) -> dict[str, float]:
        """The server's own counts, where it gave them, and ours where it is too high."""
        counts = {SERVER_TOKENS: self.server_tokens, CACHED_TOKENS: self.cached_tokens}
        if self.counted > self.tokens:
            counts[COUNTED_TOKENS] = self.counted
        return {name: count for name, count in counts.items() if count is not None}

    def _tokens(self, choice: dict[str, Any], text: str) -> tuple[int, ...]:
        if self.counting == "ids":
            ids = choice.get("token_ids")
            if ids is None and text:
                raise StreamError("a chunk with text but without token_ids")
            return checked_ids(ids or ())
        if self.counting == "usage":
            new = (self.server_tokens or 0) - self.tokens
            if new < 0:
                raise StreamError("the usage counts backwards")
            if new > self.max_new_tokens:
                raise StreamError(f"{new} tokens at once, {self.max_new_tokens} asked for")
            return (UNKNOWN_TOKEN,) * new
        if self.encode is None:
            raise ValueError("counting 'tokenizer' needs a tokenizer")
        if text:
            readings = [self.encode_on or self.encode]
            if not self.counted:  # a first chunk may have its blank taken away, or not
                readings.append(self.encode)
            self.counted += min(len(encode(text)) for encode in readings)
        # The last token waits for the end: a count that runs too high leaves none for the last
        # text, which would then have no stamp.
        most = self.max_new_tokens - (finish_of(choice) is None)
        return (UNKNOWN_TOKEN,) * max(min(self.counted, most) - self.tokens, 0)

    def _read_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        if isinstance(usage.get("completion_tokens"), int):
            self.server_tokens = _count(usage["completion_tokens"])
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
            self.cached_tokens = _count(details["cached_tokens"])

    def _read_finish(self, choice: dict[str, Any]) -> None:
        ended = finish_of(choice)
        if ended is None:
            return
        self.finished = ended
        # The tokenizer's count may be one off; the server's own says that it cut the answer short.
        if ended == "length" and self.counting != "tokenizer" and self.tokens < self.max_new_tokens:
            raise StreamError(f"the server's limit came before {self.max_new_tokens} tokens")


def checked_ids(ids: Any) -> tuple[int, ...]:
    """Token ids as they can be stored and decoded: whole numbers of at most 31 bits."""
    if not isinstance(ids, Sequence) or isinstance(ids, str):
        raise StreamError(f"token_ids that are no list: {shorten(ids)}")
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < 2**31:
            raise StreamError(f"{shorten(token)} is no token id")
    return tuple(ids)


def _count(tokens: int) -> int:
    if not 0 <= tokens < 2**53:
        raise StreamError(f"a usage of {shorten(tokens)} tokens")
    return tokens


def parse_chunk(event: bytes) -> dict[str, Any]:
    """One event's JSON, its `choices` a list of objects, an empty one where it has a usage alone.
    Raises `StreamError` otherwise."""
    try:
        chunk = msgspec.json.decode(event)
    except msgspec.DecodeError:
        chunk = _lenient_json(event)
    if not isinstance(chunk, dict):
        raise StreamError(f"malformed chunk: {shorten(event)}")
    if chunk.get("error"):
        raise StreamError(f"the server reports: {error_message(chunk)}")
    choices = chunk.get("choices")
    if choices is None and isinstance(chunk.get("usage"), dict):
        choices = chunk["choices"] = []
    if not isinstance(choices, list) or any(not isinstance(c, dict) for c in choices):
        raise StreamError(f"a chunk without choices: {shorten(event)}")
    return chunk


def _lenient_json(event: bytes) -> Any:
    """What the fast parser refuses may be fine by JSON, such as half a surrogate pair."""
    try:
        return json.loads(event)
    except ValueError:
        raise StreamError(f"malformed chunk: {shorten(event)}") from None


def finish_of(choice: dict[str, Any]) -> FinishReason | None:
    """How a chunk says that the answer ended; None while it runs, which TGI and older SGLang call
    "". Raises `StreamError` for a word that nobody knows."""
    reason = choice.get("finish_reason")
    if reason is None or reason == "":
        return None
    if not isinstance(reason, str) or reason not in FINISH:
        raise StreamError(f"finish_reason {shorten(reason)}")
    return FINISH[reason]


def chunk_text(choice: dict[str, Any]) -> str:
    """The text of a completion's or a chat's chunk, reasoning included."""
    return "".join(chunk_parts(choice))


def chunk_parts(choice: dict[str, Any]) -> tuple[str, str]:
    """(reasoning, answer) of a completion's or a chat's chunk."""
    delta = choice.get("delta")
    if delta is None and isinstance(plain := choice.get("text"), str):
        return "", plain
    source = delta if isinstance(delta, dict) else choice
    thought, also = source.get("reasoning_content"), source.get("reasoning")
    # servers that go over from the one name to the other send the text under both
    thoughts = (thought, None if also == thought else also)
    return _joined(thoughts), _joined((source.get("content"), source.get("text")))


def _joined(parts: Sequence[Any]) -> str:
    return "".join(part for part in parts if isinstance(part, str))


def error_message(body: Any) -> str:
    """What an OpenAI-style error body says, in one line."""
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message", error) if isinstance(error, dict) else error
    return shorten(message)


def body_message(body: bytes, reason: str) -> str:
    """What the body of a refusal says in one line; `reason` where it is empty."""
    try:
        return error_message(json.loads(body))
    except ValueError:
        return error_message(body or reason)


def shorten(value: Any) -> str:
    """`value` as one line of at most `SHOWN` characters, unprintable characters escaped."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    return line if len(line) <= SHOWN else line[: SHOWN - 3] + "..."
