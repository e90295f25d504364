"""The workload `sharegpt`: conversations as the ShareGPT exports have them.

A row is {"id": ..., "conversations": [{"from": "human", "value": ...}, {"from": "gpt", ...}]}.
Asked is the first turn, after the system's where there is one, as vLLM's benchmark does; the reply
to it is the row's answer. A conversation that does not begin so is left out, and counted: the
exports hold many that were cut, and some that are odd.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UserError, nearest
from workloads.fields import LeftOut, encodable, without_nan
from workloads.own import chats
from workloads.own.json_array import read_array
from workloads.readers import Budget, read_records

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
    path: Path, scorer: str, budget: Budget | None, left_out: LeftOut, *, recorded: bool
) -> Iterator[chats.ReadRow]:
    """Yield the conversations of one file; those that cannot be asked are added to `left_out`.
    Raises `UserError` for a file that cannot be read and for an answer that its scorer cannot use.
    """
    plain = path.name.lower().removesuffix(".gz").endswith(".json")
    for where, record in read_array(path, budget) if plain else read_records(path, budget):
        values = without_nan(record)
        left_out.of += 1
        try:
            fields, reply = _asked(where, values)
        except UserError as error:
            left_out.add(str(error))
            continue
        if recorded:
            fields[RECORDED] = "true"
        yield chats.finished(where, values, fields, reply, scorer)


def _asked(where: str, values: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """The prompt's fields and the reply. What comes after them is not looked at. Raises `UserError`
    for a conversation that does not begin with a question and its reply."""
    found = values.get("conversations", values.get("conversation"))
    if not isinstance(found, list | tuple):
        got = "nothing" if found is None else repr(found)[:40]
        raise UserError(f"{where}: field 'conversations': expected a list of turns, got {got}")
    turns = [_turn(turn, number, where) for number, turn in enumerate(found[:2], start=1)]
    opening = [turns.pop(0)] if turns and turns[0]["role"] == "system" else []
    if opening:
        turns += [_turn(turn, 3, where) for turn in found[2:3]]
    roles = [turn["role"] for turn in turns]
    if roles != ["user", "assistant"]:
        got = " and ".join(f"the {role}'s" for role in roles) or "no turn"
        raise UserError(f"{where}: expected the user's turn and the assistant's, got {got}")
    for number, turn in enumerate(turns, start=len(opening) + 1):
        if not turn["content"].strip():
            raise UserError(f"{where}: turn {number}: expected a text, got nothing")
    system = [turn for turn in opening if turn["content"].strip()]
    asked, reply = turns
    return chats.of_messages([*system, asked], where), reply["content"]


def _turn(turn: Any, number: int, where: str) -> dict[str, str]:
    place = f"{where}: turn {number}"
    if not isinstance(turn, Mapping):
        expected = '{"from": ..., "value": ...}'
        raise UserError(f"{place}: expected {expected}, got {repr(turn)[:40]}")
    speaker, value = turn.get("from"), turn.get("value")
    if not isinstance(value, str):
        raise UserError(f"{place}: field 'value': expected a text, got {repr(value)[:40]}")
    if not isinstance(speaker, str) or speaker not in SPEAKERS:
        near = nearest(str(speaker), SPEAKERS)
        raise UserError(f"{place}: unknown speaker {repr(speaker)[:40]}; {near}")
    return {"role": SPEAKERS[speaker], "content": encodable(value, "value", place)}
