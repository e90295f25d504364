"""The workload `sharegpt`: conversations as the ShareGPT exports have them.

A row is {"id": ..., "conversations": [{"from": "human", "value": ...}, {"from": "gpt", ...}]}.
Asked is the first turn, after the system's where there is one, as vLLM's benchmark does; the reply
to it is the row's answer. A conversation that does not begin so is left out: the exports hold
many that were cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from workloads.fields import encodable
from workloads.own import chats
from workloads.own.json_array import read_array
from workloads.readers import Budget, Record, read_records

NAME = "sharegpt"
SPEAKERS: Mapping[str, str] = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "system": "system",
}
RECORDED = "recorded_lengths"
"""Field of rows whose answers are to be as long as the reply in the file."""


def rows(
    path: Path, scorer: str, budget: Budget | None, *, recorded: bool
) -> Iterator[chats.ReadRow]:
    """Yield the conversations of one file. Raises `UserError` for a row that is none."""
    plain = path.name.lower().removesuffix(".gz").endswith(".json")
    for where, values in read_array(path, budget) if plain else read_records(path, budget):
        turns = _turns((where, values))
        system = [turns.pop(0)] if turns and turns[0]["role"] == "system" else []
        if len(turns) < 2 or [turn["role"] for turn in turns[:2]] != ["user", "assistant"]:
            continue
        asked, reply = turns[:2]
        if not (asked["content"].strip() and reply["content"].strip()):
            continue
        fields = chats.of_messages([*system, asked], where)
        if recorded:
            fields[RECORDED] = "true"
        yield chats.finished(where, values, fields, reply["content"], scorer)


def _turns(record: Record) -> list[dict[str, str]]:
    where, values = record
    found = values.get("conversations", values.get("conversation"))
    if not isinstance(found, list | tuple):
        got = "nothing" if found is None else repr(found)[:40]
        raise UserError(f"{where}: field 'conversations': expected a list of turns, got {got}")
    return [_turn(turn, number, where) for number, turn in enumerate(found, start=1)]


def _turn(turn: Any, number: int, where: str) -> dict[str, str]:
    place = f"{where}: turn {number}"
    if not isinstance(turn, Mapping):
        expected = '{"from": ..., "value": ...}'
        raise UserError(f"{place}: expected {expected}, got {repr(turn)[:40]}")
    value = turn.get("value")
    if not isinstance(value, str):
        raise UserError(f"{place}: field 'value': expected a text, got {repr(value)[:40]}")
    role = SPEAKERS.get(str(turn.get("from")), "other")
    return {"role": role, "content": encodable(value, "value", where)}
