"""Loads a workload's rows, from the hub, local files or the bundled generators, and draws.

Which rows are drawn depends on the seed and on the rows' ids alone: rows are ranked by a hash of
both, so the order of files, the machine and library versions do not matter, and a larger draw with
the same seed contains the smaller one. (Bundled rows come in their generator's seeded order.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from harness.core.errors import UserError, nearest
from harness.core.names import BUNDLED
from harness.core.nouns import Workload, canonical_json
from workloads import (
    LABELLED,
    OWN,
    UNSCORED,
    WORKLOADS,
    WorkloadInfo,
    labelled,
    speed_bench,
    workload_info,
)
from workloads.chat import OPTION, chat_of
from workloads.fields import (
    EmptyFieldError,
    LeftOut,
    check_worked_answer,
    encodable,
    refuse_repeats_ids,
    text_of,
)
from workloads.fields import Row as Row
from workloads.files.local import local_records
from workloads.hardness import SUMMARIES
from workloads.hardness import difficulty as difficulty
from workloads.hardness.mix import mixed, parse_mix
from workloads.hub import hub_records
from workloads.labelled import images
from workloads.own import rows as own
from workloads.readers import Budget, Record

NO_HUB = "expected 'bundled', a file or a folder as source"
_MIN_MIX_POOL = 400
"""Bundled rows generated, at the least, to find the median difficulty."""
PROMPT_LIMIT = "prompt_limit"
_LIMITS = ("article_limit", "max_article_tokens", PROMPT_LIMIT)
OF_TEXT = (PROMPT_LIMIT, OPTION)
"""Options of all workloads whose prompts are texts."""
_OWN_KEYS = ("name", "source", "rows", "max_new_tokens")
"""Of a workload in an experiment file, beside its options."""


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The options of a workload in an experiment file."""

    mix: tuple[int, int] | None = None
    """Parts easy and hard. Easy is a difficulty up to the median of the rows loaded."""
    split: str | None = None
    revision: str | None = None
    """Hub only: another commit, branch or tag than the pinned one."""
    article_limit: int | None = None
    """Summaries only: rows whose article has fewer tokens than this."""
    max_article_tokens: int | None = None
    """Summaries only: tokens of the article that are kept in the prompt (`prompts.encode_prompt`).
    With `article_limit: 1024` and 512 here this is the early-exit paper's rule."""
    category: str | Sequence[str] | None = None
    """SPEED-Bench only, as is `subset`: rows of these categories alone."""
    subset: str | None = None
    prompt_limit: int | None = None
    """Texts only: rows whose prompt has up to so many tokens."""

    @property
    def counts_tokens(self) -> bool:
        """Whether which rows are drawn depends on a tokenizer."""
        return self.article_limit is not None or self.prompt_limit is not None


def row_options(workload: Workload) -> RowOptions:
    """Check a workload's name and options.

    Raises:
        UserError: for an unknown workload or option, a wrong value, or an option out of place.
    """
    workload_info(workload.name)
    if workload.name in OWN:
        own.check(workload)
        return RowOptions(prompt_limit=workload.options.get(PROMPT_LIMIT))
    fields = [*RowOptions.__dataclass_fields__, OPTION]
    known = [key for key in fields if key not in OF_TEXT or takes(workload.name, key)]
    for key, value in workload.options.items():
        where = f"workload {workload.name}: option '{key}'"
        if key not in known:
            hint = nearest(key, [*known, *_OWN_KEYS])
            raise UserError(f"workload {workload.name}: unknown option '{key}'; {hint}")
        if key in _LIMITS:
            if key != PROMPT_LIMIT and workload.name not in SUMMARIES:
                raise UserError(f"{where} is for {' and '.join(SUMMARIES)} only")
            if type(value) is not int or value < 1:
                raise UserError(f"{where}: expected a positive whole number, got {value!r}")
        elif key in speed_bench.OPTIONS:
            speed_bench.check_option(workload.name, key, value, where)
        elif key not in ("mix", OPTION) and not (isinstance(value, str) and value):
            raise UserError(f"{where}: expected text, got {value!r}")
        if key == "revision" and workload.source != "hub":
            raise UserError(f"{where} needs 'source: hub', got source '{workload.source}'")
    if workload.name == speed_bench.NAME:
        speed_bench.chosen(workload.options, workload.source)
    chat_of(workload)
    chosen = {key: value for key, value in workload.options.items() if key != OPTION}
    if "mix" in chosen:
        chosen["mix"] = parse_mix(chosen["mix"], f"workload {workload.name}: option 'mix'")
    return RowOptions(**chosen)


def takes(name: str, option: str) -> bool:
    """Whether a workload, or training source, takes one of `OF_TEXT`."""
    return option in own.OPTIONS[name] if name in OWN else name in {*WORKLOADS, *UNSCORED}


def load_rows(
    workload: Workload,
    seed: int,
    count: int,
    *,
    count_tokens: Callable[[str], int] | None = None,
    prompt_tokens: Callable[[Row], int] | None = None,
    budget: Budget | None = None,
) -> list[Row]:
    """The rows of `count` requests, drawn without replacement, then from the start again.

    Args:
        workload: name, source, options and number of distinct rows (None: as many as requests).
        seed: decides which rows are drawn and their order.
        count: number of requests.
        count_tokens: the number of tokens in a text; needed with the option `article_limit`.
        prompt_tokens: the number in a row's whole prompt; needed with the option `prompt_limit`.
        budget: how much is read of local files; gets a remark on rows that are left out.

    Raises:
        UserError: for bad options, an unreachable hub, bad or too large files, or too few rows.
        ValueError: without a count of tokens where it is needed, or for a count below 1.
    """
    if count < 1:
        raise ValueError(f"count: expected at least 1, got {count}")
    options = row_options(workload)
    distinct = min(workload.rows or count, count)
    rows: Iterable[Row] = _ranked_rows(workload, options, seed, distinct, budget)
    if options.article_limit is not None:
        if count_tokens is None:
            raise ValueError("article_limit needs count_tokens")
        field, limit = workload_info(workload.name).content, options.article_limit
        rows = (row for row in rows if count_tokens(row.data[field]) < limit)
    left_out = LeftOut("rows drawn")
    rows = own.within(rows, options.prompt_limit, prompt_tokens, left_out)
    if options.mix is not None:
        hard = [replace(row, difficulty=difficulty(workload.name, row.data)) for row in rows]
        drawn = mixed(hard, options.mix, distinct, workload.name)
    else:
        drawn = list(islice(rows, distinct))
    wanted = 1 if workload.rows is None else distinct
    if len(drawn) < wanted:
        raise UserError(
            f"workload {workload.name}: {wanted} distinct rows asked for, but only {len(drawn)} of "
            f"source '{workload.source}' fit{f'; {left_out}' if left_out.count else ''}"
        )
    left_out.tell(workload.name, budget)
    return [drawn[number % len(drawn)] for number in range(count)]


def checksum(rows: Sequence[Row]) -> str:
    """SHA-256, in hex, of the rows' ids and fields in their order: equal rows, equal checksum."""
    content = canonical_json([[row.id, dict(row.data)] for row in rows])
    return hashlib.sha256(content.encode()).hexdigest()


def _ranked_rows(
    workload: Workload, options: RowOptions, seed: int, distinct: int, budget: Budget | None
) -> Iterable[Row]:
    """Distinct rows of the source in the order of drawing."""
    info = workload_info(workload.name)
    split = options.split or info.split
    if workload.name in OWN:
        found = own.own_rows(workload, seed, distinct, budget)
        return found if workload.source in own.NO_FILE else _shuffled(found, seed)
    if workload.source == BUNDLED:
        return islice(_bundled_rows(workload, info, split, seed), _pool(options, distinct))
    if workload.name == speed_bench.NAME:
        info = replace(info, config=speed_bench.chosen(workload.options, workload.source)[0])
    if workload.source == "hub":
        if not info.hub:
            raise UserError(f"workload {workload.name}: is not on the hub; {NO_HUB}")
        records = hub_records(workload.name, info, split, options.revision or info.revision)
    else:
        records = local_records(workload, info, options.split, budget)
    if workload.name == speed_bench.NAME:
        asked = speed_bench.chosen(workload.options, workload.source)
        records = speed_bench.mapped(records, *asked)
    if workload.name in LABELLED:
        records = labelled.named(workload.name, records)
    return _shuffled(_rows(workload.name, info, records, budget), seed)


def _shuffled(rows: Iterable[Row], seed: int) -> list[Row]:
    return sorted(rows, key=lambda row: hashlib.sha256(f"{seed}:{row.id}".encode()).digest())


def _pool(options: RowOptions, distinct: int) -> int:
    """How many bundled rows are made, so that a selection among them finds enough."""
    selects = options.mix is not None or options.counts_tokens
    return max(4 * distinct, _MIN_MIX_POOL) if selects else distinct


def rows_made(workload: Workload, count: int) -> int:
    """How many rows `load_rows` lets the bundled generators make; 0 for another source."""
    if workload.source != BUNDLED:
        return 0
    return _pool(row_options(workload), min(workload.rows or count, count))


def _rows(
    name: str, info: WorkloadInfo, records: Iterable[Record], budget: Budget | None = None
) -> Iterator[Row]:
    """Distinct rows: files of one split may overlap. Left out is what has nothing in a field, or
    another row's id; `budget` gets a remark. Raises `UserError` for an id that another's repeats
    have."""
    left_out, seen = LeftOut("rows"), dict[str, Mapping[str, str]]()
    places: dict[str, str] = {}
    for left_out.of, record in enumerate(records, start=1):
        try:
            row = _row(name, info, record)
        except EmptyFieldError as error:
            left_out.add(str(error))
            continue
        if (first := seen.setdefault(row.id, row.data)) is row.data:
            places[row.id] = record[0]
            yield row
        elif first != row.data:
            left_out.add(f"{record[0]}: the id {row.id!r} is another row's")
    if left_out.count and not seen:
        raise UserError(f"workload {name}: no row can be asked: {left_out}")
    refuse_repeats_ids(places, info.id_field)
    left_out.tell(name, budget)


def _bundled_rows(workload: Workload, info: WorkloadInfo, split: str, seed: int) -> Iterator[Row]:
    from workloads import bundled

    name = workload.name
    if name not in bundled.ALL and name != speed_bench.NAME:
        raise UserError(
            f"workload {name}: no bundled rows; give a file, a folder or 'hub' as source"
        )
    split = "test" if split == info.split else split  # SST-2's own test split has no labels
    if split not in ("train", "test"):
        raise UserError(f"workload {name}: bundled rows have splits train and test, not '{split}'")
    if name == speed_bench.NAME:
        asked = speed_bench.chosen(workload.options, workload.source)
        rows = speed_bench.mapped(speed_bench.stand_ins(split, seed, asked[1]), *asked)
        return _rows(name, info, rows)
    records = bundled.iter_rows(name, "train" if split == "train" else "test", seed)
    return _rows(name, info, ((BUNDLED, record) for record in records))


def _row(name: str, info: WorkloadInfo, record: Record) -> Row:
    where, values = record
    data = {field: text_of(values, field, where) for field in info.fields}
    named = values.get(info.id_field)
    if named is None or named == "":
        content = canonical_json([data[field] for field in info.fields])
        named = hashlib.sha256(content.encode()).hexdigest()[:16]
    if name == "gsm8k":
        check_worked_answer(data["answer"], where)
    if name == "shapes":
        images.check(data["image"], f"{where}: field 'image'")
    data.setdefault(info.id_field, encodable(str(named), info.id_field, where))
    place = "" if where == BUNDLED else where
    return Row(id=str(named), data=data, place=place)
