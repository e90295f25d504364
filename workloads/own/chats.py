"""The workload `jsonl`: a row has `prompt` or `messages`, and may have the others of `KEYS`.

`messages` are those of the chat API: a list of {"role", "content"}, the content a text or parts
that are texts. They may begin with the system's, and end with the user's. Where the assistant's
stand last, as in files for fine-tuning, that is the answer. What is sound and cannot be asked, such
as a chat with pictures or calls of tools, is left out, and counted.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.errors import UserError, nearest
from harness.core.nouns import canonical_json
from workloads.fields import LeftOut, UnaskableError, encodable, text_of, without_nan
from workloads.own.scorers import NONE, SCORERS, check_answer, is_scorer
from workloads.own.synthetic import MOST_OUTPUT
from workloads.readers import Budget, Record, read_records

ROLES = ("system", "developer", "user", "assistant")
OF_TOOLS = ("tool", "function")
"""Roles of messages that answer a call, which is no text."""
LENGTHS = ("output_tokens", "max_new_tokens")
"""Keys of a row for its answer's tokens: exactly so many, and at most."""
KEYS = ("prompt", "messages", "id", "answer", "scorer", *LENGTHS)

ReadRow = tuple[str, str, dict[str, str]]
"""Where a row stands, its id, and its fields (`id` among them where the file gave it)."""


def rows(
    path: Path, scorer: str, budget: Budget | None, left_out: LeftOut, unread: Counter[str]
) -> Iterator[ReadRow]:
    """Yield the rows of one file (JSON lines, JSON, CSV, TSV or Parquet). `scorer` is for rows that
    name none. Those that cannot be asked are added to `left_out`, and the keys of the others that
    nobody reads to `unread`. Raises `UserError` for a row that is none."""
    for record in read_records(path, budget):
        left_out.of += 1
        try:
            row = _row(record, scorer)
        except UnaskableError as error:
            left_out.add(str(error))
            continue
        unread.update(str(key) for key in record[1] if key not in KEYS)
        yield row


def _row(record: Record, scorer: str) -> ReadRow:
    where, values = record[0], without_nan(record[1])
    both = [key for key in ("prompt", "messages") if values.get(key) is not None]
    if len(both) == 2:
        raise UserError(f"{where}: expected 'prompt' or 'messages', got both")
    if not both and not {"prompt", "messages"} & values.keys():
        has = ", ".join(map(str, values))[:200] or "nothing"
        other = "; workload 'sharegpt' reads such a file" if "conversations" in values else ""
        raise UserError(
            f"{where}: expected 'prompt' or 'messages', got neither (the row has: {has}){other}"
        )
    answer = _optional(values, "answer", where)
    if both == ["messages"]:
        messages = checked_messages(values["messages"], where)
        if messages[-1]["role"] == "assistant":
            last = messages.pop()["content"]
            answer = last if answer is None else answer
        fields = of_messages(messages, where)
    else:
        fields = {"prompt": text_of(values, "prompt", where)}
    fields |= _lengths(values, where)
    named = values.get("scorer")
    if named is not None and not is_scorer(named):
        near = nearest(str(named), SCORERS)
        raise UserError(f"{where}: field 'scorer': unknown scorer {named!r}; {near}")
    return finished(where, values, fields, answer, scorer if named is None else named)


def _lengths(values: Mapping[str, Any], where: str) -> dict[str, str]:
    """The tokens of a row's answer, as CSV files and data frames may have them too."""
    found = {}
    for key in LENGTHS:
        if (value := values.get(key)) is None:
            continue
        text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
        text = text.lstrip("0")
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:10]) <= MOST_OUTPUT):
            expected = f"a whole number from 1 to {MOST_OUTPUT}"
            raise UserError(f"{where}: field '{key}': expected {expected}, got {_shown(value)}")
        found[key] = str(int(text))
    return found


def _optional(values: Mapping[str, Any], field: str, where: str) -> str | None:
    """A field's text; a number or a truth value as JSON writes it."""
    value = values.get(field)
    if value is None:
        return None
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return text_of(values, field, where)


def finished(
    where: str,
    values: Mapping[str, Any],
    fields: dict[str, str],
    answer: str | None,
    scorer: str,
) -> ReadRow:
    """A row with its id, its answer where it has one and its scorer, checked. Without an id of its
    own it is named by its content."""
    check_answer(scorer, answer, values, where)
    told = {} if answer is None else {"answer": answer}
    data = {**fields, "scorer": scorer} | told
    named = values.get("id")
    if named is None or named == "":
        # as of a row without a scorer: how answers are judged says nothing of what is asked
        content = canonical_json({**fields, "scorer": NONE} | told)
        return where, hashlib.sha256(content.encode()).hexdigest()[:16], data
    if not isinstance(named, str | int) or isinstance(named, bool):
        raise UserError(f"{where}: field 'id': expected a text or a whole number, got {named!r}")
    identity = encodable(str(named), "id", where)
    return where, identity, {**data, "id": identity}


def checked_messages(value: Any, where: str) -> list[dict[str, str]]:
    """The messages of a chat, each with `role` and `content` alone. Raises `UserError`, for a chat
    that is sound and cannot be asked `UnaskableError`."""
    place = f"{where}: field 'messages'"
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        kind = UnaskableError if value == [] else UserError
        raise kind(f"{place}: expected a list of messages, got {_shown(value)}")
    found = []
    for number, message in enumerate(value, start=1):
        if not isinstance(message, Mapping):
            expected = '{"role": ..., "content": ...}'
            raise UserError(
                f"{place}: message {number}: expected {expected}, got {_shown(message)}"
            )
        role = message.get("role")
        if role in OF_TOOLS:
            raise UnaskableError(f"{place}: message {number}: is a {role}'s; chats are texts alone")
        if role not in ROLES:
            near = nearest(str(role), ROLES)
            raise UserError(f"{place}: message {number}: unknown role {role!r}; {near}")
        content = _content(message.get("content"), f"{place}: message {number}")
        found.append({"role": role, "content": encodable(content, "messages", where)})
    if found[-1]["role"] not in ("user", "assistant"):
        raise UnaskableError(f"{place}: the last is the {found[-1]['role']}'s; expected the user's")
    return found


def _content(value: Any, where: str) -> str:
    """A message's text; of parts their texts as lines, as vLLM's server has it."""
    if isinstance(value, list) and value:
        parts: list[Any] = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else part
            for part in value
        ]
        if all(isinstance(part, str) for part in parts):
            value = "\n".join(parts)
    if not isinstance(value, str) or not value.strip():
        raise UnaskableError(f"{where}: expected a text as 'content', got {_shown(value)}")
    return value


def of_messages(messages: list[dict[str, str]], where: str) -> dict[str, str]:
    """The fields of a prompt that is a chat: one message of the user is a plain prompt. Raises
    `UserError` where no user asks last."""
    if not messages or messages[-1]["role"] != "user":
        raise UnaskableError(
            f"{where}: field 'messages': expected the user's message before the answer"
        )
    if len(messages) == 1:
        return {"prompt": messages[0]["content"]}
    whole = "\n\n".join(message["content"] for message in messages)
    return {"prompt": whole, "messages": json.dumps(messages, ensure_ascii=False)}


def messages_of(row: Mapping[str, str]) -> list[dict[str, str]] | None:
    """The chat of a row that is more than one message; None for a plain prompt."""
    found = row.get("messages")
    return None if found is None else json.loads(found)


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:40]
