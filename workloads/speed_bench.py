"""SPEED-Bench, the benchmark of speculative decoding (arXiv 2604.09557): its rows and options.

A row has `question_id`, `category` and what a user says turn by turn: as a list of texts in `turns`
(the hub's Parquet files) or of chat messages in `messages` (JSON lines as the preparing script of
NeMo-Skills writes them). Asked is the first turn alone, as vLLM's own benchmark does: a later one
would need the model's answer to the one before. There are no reference answers, so nothing is
scored.

Most texts belong to other data sets, so the hub has a notice in their place until the user runs the
authors' preparing script: such a row is refused, never asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

from harness.core.errors import UserError, nearest
from workloads import prompts
from workloads.readers import SUFFIXES, Record

NAME = "speed_bench"
QUALITATIVE = "qualitative"
QUALITATIVE_CATEGORIES = (
    "coding", "humanities", "math", "multilingual", "qa", "rag", "reasoning", "roleplay", "stem",
    "summarization", "writing",
)  # fmt: skip
THROUGHPUT_CATEGORIES = ("low_entropy", "mixed", "high_entropy")
SUBSETS: dict[str, tuple[str, ...]] = {
    QUALITATIVE: QUALITATIVE_CATEGORIES,
    **{f"throughput_{k}k": THROUGHPUT_CATEGORIES for k in (1, 2, 8, 16, 32)},
}
"""The hub's configurations with their categories; those of throughput are named after the length of
their prompts."""
NOTICE = "FULL BENCHMARK DATA SHOULD BE FETCHED"
"""What a text begins with that is not there."""
STAND_INS = {"coding": "humaneval", "math": "gsm8k", "summarization": "xsum"}
"""Categories that bundled rows have, each with the workload whose generator makes them."""
OPTIONS = ("category", "subset")


def check_option(workload: str, key: str, value: Any, where: str) -> None:
    """Raise `UserError`, which begins with `where`, for an option of another workload's entry and
    for a value that it cannot have."""
    if workload != NAME:
        raise UserError(f"{where} is for {NAME} only")
    if key == "subset":
        if not isinstance(value, str) or value not in SUBSETS:
            raise UserError(f"{where}: unknown subset {value!r}; {nearest(str(value), SUBSETS)}")
        return
    named = [value] if isinstance(value, str) else value
    if not isinstance(named, (list, tuple)) or not named:
        raise UserError(f"{where}: expected a category or a list of them, got {value!r}")
    known = [*QUALITATIVE_CATEGORIES, *THROUGHPUT_CATEGORIES]
    for name in named:
        if name not in known:
            raise UserError(f"{where}: unknown category {name!r}; {nearest(str(name), known)}")


def chosen(options: Mapping[str, Any], source: str) -> tuple[str, tuple[str, ...]]:
    """The subset and the categories that checked options of a workload ask for.

    Raises:
        UserError: for categories of another subset, and for what no bundled row has.
    """
    subset, value = options.get("subset", QUALITATIVE), options.get("category")
    bundled = source == "bundled"
    if bundled and subset != QUALITATIVE:
        raise UserError(
            f"workload {NAME}: option 'subset': bundled rows are of '{QUALITATIVE}', not '{subset}'"
        )
    there = tuple(STAND_INS) if bundled else SUBSETS[subset]
    named = there if value is None else (value,) if isinstance(value, str) else tuple(value)
    for name in named:
        if name not in there:
            whose = "bundled rows have" if bundled else f"subset '{subset}' has"
            raise UserError(
                f"workload {NAME}: option 'category': {whose} no category '{name}'; "
                f"{nearest(name, there)}"
            )
    return subset, named


def place(folder: Path, subset: str) -> Path:
    """What of a folder holds a subset: the file or folder of its name, else the whole folder."""
    names = [subset, *(f"{subset}{suffix}" for suffix in SUFFIXES)]
    return next((folder / name for name in names if (folder / name).exists()), folder)


def mapped(records: Iterable[Record], subset: str, categories: Sequence[str]) -> Iterator[Record]:
    """Yield the records of these categories as `question_id`, `category` and `prompt`, the first
    turn. Raises `UserError` for a row that is not of the subset, or has no text."""
    found = False
    for where, values in records:
        category = values.get("category")
        if category not in SUBSETS[subset]:
            known = nearest(str(category), SUBSETS[subset])
            raise UserError(
                f"{where}: field 'category': {subset} has no category {category!r}; {known}"
            )
        if category not in categories:
            continue
        found = True
        prompt = _first_turn(values, where)
        yield where, {**_named(values, where), "category": category, "prompt": prompt}
    if not found:
        raise UserError(f"workload {NAME}: no row of category {' or '.join(categories)}")


def _named(values: Mapping[str, Any], where: str) -> dict[str, str]:
    if values.get("question_id") in (None, ""):
        raise UserError(f"{where}: field 'question_id' is missing")
    return {"question_id": str(values["question_id"])}


def _first_turn(values: Mapping[str, Any], where: str) -> str:
    """What the user says first."""
    field = "messages" if "messages" in values else "turns"
    turns = values.get(field)
    if not isinstance(turns, (list, tuple)) or not turns:
        got = "nothing" if not turns else repr(turns)[:40]
        raise UserError(
            f"{where}: field '{field}': expected a list of what the user says, got {got}"
        )
    first = turns[0]
    if field == "messages":
        if not isinstance(first, Mapping) or first.get("role") != "user":
            raise UserError(f"{where}: field 'messages': the first is not the user's")
        first = first.get("content")
    if not isinstance(first, str) or not first.strip():
        raise UserError(f"{where}: field '{field}': the first has no text")
    if first.startswith(NOTICE):
        raise UserError(
            f"{where}: its text belongs to another data set and is not there; prepare the data as "
            "nvidia/SPEED-Bench says, and give the files as source"
        )
    return first


def stand_ins(split: str, seed: int, categories: Sequence[str]) -> Iterator[Record]:
    """Yield bundled rows of these categories in turn, without end, in the hub's schema. Split is
    "train" or "test"; the same seed gives the same rows."""
    from workloads import bundled

    streams = [
        bundled.iter_rows(STAND_INS[name], "train" if split == "train" else "test", seed)
        for name in categories
    ]
    for number in count():
        for name, rows in zip(categories, streams, strict=True):
            (row,) = islice(rows, 1)
            turn = prompts.instruction(STAND_INS[name], row)
            identity = f"{name}-{split}-{seed}-{number}"
            yield "bundled", {"question_id": identity, "category": name, "turns": [turn]}
