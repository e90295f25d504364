"""What a trial asks: its rows as prompts, pinned by content, and when they arrive."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UserError
from harness.core.names import QUALITY
from harness.core.nouns import Load, Trial, Workload, canonical_json
from workloads import datasets, prompts
from workloads.chat import OPTION, chat_of
from workloads.own import sharegpt, synthetic
from workloads.readers import Budget


@dataclass(frozen=True, slots=True)
class MeasuredPrompt:
    """One measured request's row, with the id that pairs it across backends."""

    request_id: str
    row: datasets.Row
    text: str
    token_ids: tuple[int, ...]
    output_tokens: int | None = None
    """The answer has exactly so many, whatever it says; None: it ends where the model ends it."""
    most_tokens: int | None = None
    """The answer has at most so many; None: as many as the experiment allows."""
    messages: tuple[tuple[str, str], ...] = ()
    """(role, content) of the chat that the prompt was written from, for a server that writes it
    itself; empty for tokens that were drawn."""

    def longest(self, most: int) -> int:
        """Tokens that the answer may have where the experiment allows `most`."""
        return min(most, self.output_tokens or most, self.most_tokens or most)


def load_prompts(trial: Trial, tokenizer: Any) -> list[MeasuredPrompt]:
    """The prompts of a trial, in request order. Equal for every backend, repeat and load; where
    answers alone count, those that the timed trials leave out."""
    workload = trial.workload
    if trial.load.kind == QUALITY:
        rows = more_rows(workload, trial.seed, trial.requests, tokenizer)
    else:
        rows = load_rows(workload, trial.seed, trial.requests, tokenizer)
    if rows_checksum(workload, rows) != workload.checksum:
        raise UserError(f"workload {workload.name}: its data changed while the experiment ran")
    make = _maker(workload, tokenizer)
    seen: dict[str, int] = {}
    found = []
    for row in rows:
        seen[row.id] = count = seen.get(row.id, 0) + 1
        suffix = f"#{count}" if count > 1 else ""
        found.append(make(f"{workload.name}-{row.id}{suffix}", row))
    return found


def _maker(workload: Workload, tokenizer: Any) -> Callable[[str, datasets.Row], MeasuredPrompt]:
    """What makes a request's prompt of its id and its row."""
    limit, chat = workload.options.get("max_article_tokens"), chat_of(workload)

    def drawn(request_id: str, row: datasets.Row) -> MeasuredPrompt:
        ids = tuple(synthetic.token_ids(ordinary, row.data))
        length = answer_length(row, tokenizer)
        return MeasuredPrompt(request_id, row, str(tokenizer.decode(ids)), ids, length)

    def written(request_id: str, row: datasets.Row) -> MeasuredPrompt:
        prompt = prompts.written_prompt(tokenizer, workload.name, row.data, limit, chat)
        ids = tuple(prompts.encode_text(tokenizer, prompt.text, chat))
        length, most = answer_length(row, tokenizer), answer_bound(row)
        return MeasuredPrompt(request_id, row, prompt.text, ids, length, most, prompt.messages)

    if workload.name != synthetic.NAME:
        return written
    ordinary = synthetic.ordinary_ids(tokenizer)
    return drawn


def answer_length(row: datasets.Row, tokenizer: Any) -> int | None:
    """Tokens that the answer to a row is to have, where they were chosen or recorded."""
    if "output_tokens" in row.data:
        return int(row.data["output_tokens"])
    if sharegpt.RECORDED not in row.data:
        return None
    return max(len(tokenizer.encode(row.data["answer"], add_special_tokens=False)), 1)


def answer_bound(row: datasets.Row) -> int | None:
    """Tokens that the answer to a row may have at most, where the row says so."""
    found = row.data.get("max_new_tokens")
    return None if found is None else int(found)


def cut_lengths(lengths: Sequence[int | None], most: int) -> str | None:
    """One line on the answers that are to have more than `most` tokens, None if there is none."""
    longer = [length for length in lengths if length is not None and length > most]
    if not longer:
        return None
    return (
        f"'max_new_tokens', {most}, cuts {len(longer)} of {len(lengths)} answers, whose lengths "
        f"are given (the longest: {max(longer)})"
    )


def cut_answers(rows: Sequence[datasets.Row], most: int, tokenizer: Any) -> str | None:
    """What `cut_lengths` says of the lengths and bounds that rows give their answers. `tokenizer`:
    None where no row asks for its recorded length."""
    return cut_lengths([answer_length(row, tokenizer) or answer_bound(row) for row in rows], most)


def load_rows(
    workload: Workload, seed: int, count: int, tokenizer: Any, budget: Budget | None = None
) -> list[datasets.Row]:
    """The rows of `count` requests, articles and prompts counted in the tokens of `tokenizer` (None
    where no option asks for that). Raises `UserError` for data that cannot be used."""

    limit, chat = workload.options.get("max_article_tokens"), chat_of(workload)

    def count_tokens(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    def prompt_tokens(row: datasets.Row) -> int:
        return len(prompts.encode_prompt(tokenizer, workload.name, row.data, limit, chat))

    return datasets.load_rows(
        workload,
        seed,
        count,
        count_tokens=count_tokens,
        prompt_tokens=prompt_tokens,
        budget=budget,
    )


def more_rows(workload: Workload, seed: int, count: int, tokenizer: Any) -> list[datasets.Row]:
    """The last `count` of the `rows` that a workload names: those that are no rows of as many
    requests as there are others. Raises `UserError` as `load_rows`."""
    every = workload.rows or count
    drawn = load_rows(workload, seed, every, tokenizer)
    if every == count:
        return drawn
    first = load_rows(workload, seed, every - count, tokenizer)
    known = {row.id for row in first}
    return [row for row in drawn if row.id not in known][:count]


def rows_checksum(workload: Workload, rows: Sequence[datasets.Row]) -> str:
    """Of rows and prompts, as far as the model's tokenizer and template (which the model's own
    checksum pins) do not decide them: the wording, and how articles are cut."""
    whole = hashlib.sha256(datasets.checksum(rows).encode())
    whole.update(str(workload.options.get("max_article_tokens", "whole")).encode())
    if OPTION in workload.options:
        whole.update(canonical_json(workload.options[OPTION]).encode())
    for row in rows if workload.name != synthetic.NAME else ():
        whole.update(prompts.instruction(workload.name, row.data).encode())
        whole.update(prompts.plain_text(workload.name, row.data).encode())
    return whole.hexdigest()


def trace_checksum(load: Load, times: Sequence[float]) -> str | None:
    """Of the arrival times that a trace holds; None for loads that their numbers pin."""
    return times_checksum(times) if load.kind == "trace" else None


def times_checksum(times: Sequence[float]) -> str:
    """Of arrival times, as a trace's `Load.checksum` has it."""
    return hashlib.sha256(canonical_json(times).encode()).hexdigest()
