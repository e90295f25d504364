"""What an experiment's entry for own prompts may say, and the rows that it means."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from harness.core.errors import UserError, nearest
from harness.core.files import looked_for, user_path
from harness.core.nouns import Workload, canonical_json
from workloads.chat import OPTION, chat_of
from workloads.fields import LeftOut, Row, refuse_repeats_ids
from workloads.files.folders import data_files
from workloads.own import chats, sharegpt, synthetic
from workloads.own.scorers import SCORERS, is_scorer
from workloads.readers import Budget

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "jsonl": ("scorer", "prompt_limit", OPTION),
    "sharegpt": ("scorer", "recorded_lengths", "prompt_limit", OPTION),
    "synthetic": synthetic.OPTIONS,
}
"""By workload, beside `source`, `rows` and `max_new_tokens`."""
CONVERSATIONS = "conversations"
GENERATED = "generated"
"""The source of `synthetic`."""
MOST_KEYS = 10
"""Of those that nobody reads, in a remark."""
NO_FILE = ("", "bundled", "hub", GENERATED)
"""Sources that are no file."""


def check(workload: Workload) -> None:
    """Check the source and the options of own prompts. Raises `UserError`."""
    name, known = workload.name, OPTIONS[workload.name]
    for key, value in workload.options.items():
        where = f"workload {name}: option '{key}'"
        if key not in known:
            hint = nearest(key, [*known, "name", "source", "rows", "max_new_tokens"])
            raise UserError(f"workload {name}: unknown option '{key}'; {hint}")
        if key == "scorer" and not is_scorer(value):
            raise UserError(f"{where}: unknown scorer {value!r}; {nearest(str(value), SCORERS)}")
        if key == "recorded_lengths" and not isinstance(value, bool):
            raise UserError(f"{where}: expected true or false, got {value!r}")
        if key == "prompt_limit" and (type(value) is not int or value < 1):
            raise UserError(f"{where}: expected a positive whole number, got {value!r}")
    chat_of(workload)
    if name == synthetic.NAME:
        synthetic.check(workload.options)
        if workload.source not in (GENERATED, "bundled"):
            raise UserError(
                f"workload {name}: source '{workload.source}': its prompts are made; leave "
                "'source' out"
            )
    elif workload.source in NO_FILE:
        given = f", got '{workload.source}'" if workload.source else ""
        raise UserError(f"workload {name}: expected 'source: FILE' with your prompts{given}")


def own_rows(workload: Workload, seed: int, count: int, budget: Budget | None) -> Iterator[Row]:
    """Yield the rows of checked own prompts, each once: all of a file, in its order, or `count`
    made-up ones, which have no place. Rows that are left out, rows that equal another and keys that
    nobody reads are remarks of the `budget`'s.

    Raises:
        UserError: for a file that cannot be read, a row that is none, an id that stands twice (of
            conversations, whose exports have such, the first is asked), or
            one that another row's repeats have.
    """
    if workload.name == synthetic.NAME:
        for identity, data in synthetic.rows(workload.options, seed, count):
            yield Row(identity, data)
        return
    scorer = workload.options.get("scorer", "none")
    places, contents = dict[str, str](), dict[str, str]()
    what = CONVERSATIONS if workload.name == sharegpt.NAME else "rows"
    left_out, equal, unread = LeftOut(what), 0, Counter[str]()
    for file in _files(workload):
        if workload.name == sharegpt.NAME:
            recorded = bool(workload.options.get("recorded_lengths", False))
            found = sharegpt.rows(file, scorer, budget, left_out, recorded=recorded)
        else:
            found = chats.rows(file, scorer, budget, left_out, unread)
        for where, identity, data in found:
            content = _digest(data) if workload.name == sharegpt.NAME else ""
            if identity not in places:
                places[identity], contents[identity] = where, content
                yield Row(identity, data | {"id": identity}, place=where)
            elif "id" not in data or (content and content == contents[identity]):
                equal += 1
            elif workload.name == sharegpt.NAME:
                why = f"the id {identity!r} is another conversation's: {places[identity]}"
                left_out.add(f"{where}: {why}")
            else:
                raise UserError(f"{where}: the id {identity!r} stands twice: {places[identity]}")
    if not places:
        why = f"; {left_out}" if left_out.count else ""
        raise UserError(f"workload {workload.name}: {workload.source} holds no prompt{why}")
    left_out.tell(workload.name, budget)
    if budget is not None:
        budget.remarks += [
            f"workload {workload.name}: {line}" for line in _told(what, equal, unread)
        ]
    refuse_repeats_ids(places)


def _digest(data: Mapping[str, str]) -> str:
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def _told(what: str, equal: int, unread: Counter[str]) -> Iterator[str]:
    """What was read otherwise than its writer may think."""
    if equal:
        with_ids = "" if what == CONVERSATIONS else " and have no id"
        more = "" if what == CONVERSATIONS else "; with ids of their own they are"
        yield f"{what} that equal another{with_ids} are not asked again: {equal:,}{more}"
    if unread:
        keys = ", ".join(repr(key[:40]) for key in list(unread)[:MOST_KEYS])
        more = ", ..." if len(unread) > MOST_KEYS else ""
        system = "; a system's text is a message of 'messages'" if "system" in unread else ""
        yield (
            f"keys of {what} that are not read: {keys}{more}, in {max(unread.values()):,} of them; "
            f"read are {', '.join(chats.KEYS)}{system}"
        )


def within(
    rows: Iterable[Row],
    limit: int | None,
    prompt_tokens: Callable[[Row], int] | None,
    left_out: LeftOut,
) -> Iterator[Row]:
    """Yield the rows whose prompt has up to `limit` tokens (None: all); the others are added to
    `left_out`. Raises `ValueError` where there is nothing to count them with."""
    if limit is None:
        yield from rows
        return
    if prompt_tokens is None:
        raise ValueError("prompt_limit needs prompt_tokens")
    for left_out.of, row in enumerate(rows, start=1):
        if (count := prompt_tokens(row)) <= limit:
            yield row
        else:
            place = row.place or f"row '{row.id}'"
            left_out.add(f"{place}: a prompt of {count:,} tokens, beyond 'prompt_limit'")


def _files(workload: Workload) -> list[Path]:
    path = user_path(workload.source, f"workload {workload.name}: source")
    if path.is_dir():
        return data_files(path)
    if not path.exists():
        raise UserError(
            f"workload {workload.name}: source '{workload.source}' does not exist{looked_for(path)}"
        )
    return [path]
