"""The result table as texts: which columns there are, and which of them fit into a width."""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.cells.values import (
    EMPTY,
    LABELS,
    THROUGHPUT,
    VOID,
    doubts,
    has_objective,
    heading_of,
    is_void,
    label_kinds,
    metric_text,
    number,
    options_apart,
    speedup_text,
)
from harness.core.names import COUNTED_BY, TOKEN_COUNTING
from harness.core.nouns import REPLAYED, SAMPLES_NEEDED, canonical_json
from results.compare.reasons import NO_MEDIAN, slug

if TYPE_CHECKING:
    from results.registry import Metric

NUMBERS = {
    "speedup": 17,
    "consistency_ratio": 5,
    THROUGHPUT: 7,
    "ttft_s": 13,
    "tpot_s": 13,
    "e2e_s": 13,
    "goodput_req_per_s": 7,
}
"""Metrics of the result table and the least widths of their columns, so that tables line up. Any
other whose entry in the registry has a short heading comes after them."""
QUALITY_WIDTH = 7
VALID_WIDTH = len("yes (2 of 3)")
ENOUGH_REPEATS = 3
"""The table of coverage in docs/metrics.md: with fewer, under 90% where the machine drifts."""
FOLDING = ("backend", "valid")
"""Columns whose texts may go on in the next line."""
KEPT_FIRST = (
    *("speed-up", "same", "quality", "TPOT ms", "tok/s", LABELS),
    *("TTFT ms", "goodput", "e2e ms"),
)
"""By heading, what a narrow table keeps of columns that say something; the rest comes after."""
SETTINGS = (
    *("requests", "duration_s", "seed", "slo_ttft_ms", "slo_tpot_ms", "slo_e2e_ms"),
    *("max_new_tokens", "ignore_eos", "reload", "temperature", "top_p", "dtype"),
    *("workload_checksum", "load_checksum", "model_checksum", "machine"),
)
"""What cells that stand in one table have in common, beside its title."""
SHORT_DIGEST = 8
GAP = 3
LEAST_NAME = 12


@dataclass(frozen=True, slots=True)
class CellTable:
    """The cells of one workload and load."""

    title: str
    rows: Sequence[Sequence[str]]
    """Texts under the headings."""


@dataclass(frozen=True, slots=True)
class CellTables:
    """The tables of a run, which have the same columns."""

    headings: Sequence[str]
    widths: Sequence[int]
    """The least of each column."""
    tables: Sequence[CellTable]
    notes: Sequence[str]
    """What the columns mean, a line each."""


@dataclass(frozen=True, slots=True)
class _TextColumn:
    heading: str
    least: int
    texts: Sequence[str]
    """One for each cell."""

    @property
    def width(self) -> int:
        if self.heading in FOLDING:
            words = [word for text in self.texts for word in text.split()]
            return max(map(len, [self.heading, *words]))
        return max(self.least, *map(len, self.texts), len(self.heading))


def fitted(cells: Sequence[Mapping[str, Any]], width: int | None = None) -> CellTables:
    """The result tables of cells with all columns, or with those that fit into `width` characters:
    without p99s first, then without empty columns, then without those that matter least."""
    columns, left_out, compact = _columns(cells, compact=False), [], False
    if width is not None and _width(columns) > width:
        columns, compact = _columns(cells, compact=True), True
        order = {heading: place for place, heading in enumerate(KEPT_FIRST)}
        while _width(columns) > width and len(columns) > len(FOLDING) + 1:
            free = [column for column in columns if column.heading not in FOLDING]
            last = max(
                free, key=lambda c: (set(c.texts) <= EMPTY, order.get(c.heading, len(order)))
            )
            columns.remove(last)
            left_out.append(last.heading)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, cell in enumerate(cells):
        key = (cell["model"], cell["workload"], cell.get("source", ""), cell["load"])
        groups.setdefault((*key, *map(cell.get, SETTINGS)), []).append(place)
    titles = _titles([[cells[place] for place in places] for places in groups.values()])
    tables = [
        CellTable(title, [[column.texts[place] for column in columns] for place in places])
        for title, places in zip(titles, groups.values(), strict=True)
    ]
    widths = [
        c.width if c.heading not in FOLDING or width is not None else _whole(c) for c in columns
    ]
    notes = list(_notes(cells, compact, left_out))
    return CellTables([column.heading for column in columns], widths, tables, notes)


def _whole(column: _TextColumn) -> int:
    return max(map(len, column.texts)) if column.heading == "backend" else VALID_WIDTH


def _width(columns: Sequence[_TextColumn]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _columns(cells: Sequence[Mapping[str, Any]], *, compact: bool) -> list[_TextColumn]:
    names = variant_names(cells)
    found = [_TextColumn("backend", LEAST_NAME, [names[_variant(cell)] for cell in cells])]
    for metric in _metrics():
        heading, texts = heading_of(metric, cells), [metric_text(c, metric, compact) for c in cells]
        least = 0 if compact else NUMBERS.get(metric.name, len(heading))
        found.append(_TextColumn(heading, least, texts))
    found.append(_TextColumn("quality", QUALITY_WIDTH, [_quality(cell) for cell in cells]))
    marks = _marks(cells) if compact else {}
    texts = [_validity(cell, marks) for cell in cells]
    found.append(_TextColumn("valid", 0 if compact else VALID_WIDTH, texts))
    return found


def _titles(tables: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Of each table's cells. Those of one title have the settings in it in which they differ."""
    plain = [_title(cells) for cells in tables]
    firsts = [cells[0] for cells in tables]
    found = []
    for title, own in zip(plain, firsts, strict=True):
        alike = [cell for other, cell in zip(plain, firsts, strict=True) if other == title]
        names = [n for n in SETTINGS if any(c.get(n) != own.get(n) for c in alike)]
        told = setting_text({name: own.get(name) for name in names})
        found.append(", ".join(filter(None, (title, told))))
    return found


def setting_text(setting: Mapping[str, Any]) -> str:
    """``max_new_tokens=4, machine=f00dbeef``."""
    return ", ".join(f"{name}={_setting(value)}" for name, value in setting.items())


def _setting(value: Any) -> str:
    return value[:SHORT_DIGEST] if isinstance(value, str) else json.dumps(value)


def _title(cells: Sequence[Mapping[str, Any]]) -> str:
    """Workload, load, model, and where the prompts are from."""
    first = cells[0]
    told = prompts_of(first.get("source", ""), first.get("chat"))
    return f"{first['workload']}, {first['load']}{_realised(cells)}, {first['model']}{told}"


def prompts_of(source: str, chat: str | None = None) -> str:
    """Where prompts are from, to follow a title: `` (bundled prompts)``; and how they use the
    model's chat template (`chat_words`), where they say so."""
    named = Path(source).name if "/" in source else source
    if named in ("bundled", "generated"):
        named = f"{named} prompts"
    told = ", ".join(filter(None, [named, chat]))
    return f" ({told})" if told else ""


def _notes(
    cells: Sequence[Mapping[str, Any]], compact: bool, left_out: Sequence[str]
) -> Iterator[str]:
    ms = "ms: p50" if compact else "ms: p50 / p99"
    yield f"{ms}; same: share of answers equal to the reference's; goodput: requests/s"
    if len(label_kinds(cells)) > 1:
        yield f"tok/s: of answers that are labels, {LABELS}"
    if not all(map(has_objective, cells)):
        yield "goodput –: there was no objective (slo); it would be throughput"
    needed = SAMPLES_NEEDED["p99"]
    if not compact and any((c["n_completed"] or needed) < needed for c in cells):
        yield f"?: fewer than {needed} requests, too few for a p99"
    bounded = [c["speedup_repeats"] for c in cells if c["speedup_low"] is not None]
    if bounded and max(bounded) == 1:
        yield "[ ]: 95%, over the requests only: one repeat does not tell what the machine does"
    elif bounded and max(bounded) < ENOUGH_REPEATS:
        yield f"[ ]: 95%, too narrow where the machine drifts: below {ENOUGH_REPEATS} repeats"
    if any(is_void(c, metric) for c in cells for metric in _metrics()):
        yield f"{VOID}: not to be believed, for what is counted below"
    if any("[0, ∞]" in speedup_text(c) for c in cells):
        yield "[0, ∞]: the repeats differ so much that their 95% interval leaves everything open"
    if any(c["valid"] and c["repeats_used"] < c["repeats"] for c in cells):
        yield "valid (2 of 3): so many repeats used; the others were disturbed and are left out"
    if any(c["valid"] and not c["noise_checked"] for c in cells):
        yield "not checked: nobody can see from here what others did on the machine or its GPU"
    for way in dict.fromkeys(c.get(TOKEN_COUNTING) for c in cells):
        if way is not None:
            yield f"a server's tokens are counted by {COUNTED_BY.get(way, way)}"
    marks = _marks(cells) if compact else {}
    for name, count in _counted(cells).items():
        told = f"{marks[name]} = {name}" if name in marks else name
        yield f"{told}: {count} of {len(cells)} rows; the report has the reasons in full"
    if compact:
        without = ", ".join(["p99", *left_out])
        yield f"not shown for want of width: {without}; show --wide has all"


def _metrics() -> list[Metric]:
    """What the columns of numbers show, but for the quality."""
    from results import registry

    others = [m for m in registry.METRICS if m.short and m.name not in NUMBERS]
    return [*map(registry.find, NUMBERS), *others]


def _realised(cells: Sequence[Mapping[str, Any]]) -> str:
    """What the arrivals of an open load came to, beside the rate asked for."""
    rates = sorted(cell["realised_rate_per_s"] for cell in cells if cell["realised_rate_per_s"])
    shown = list(dict.fromkeys(number(rate) for rate in (rates[:1] + rates[-1:])))
    return f" (realised {' to '.join(shown)}/s)" if rates else ""


def _variant(cell: Mapping[str, Any]) -> str:
    return canonical_json([cell["backend"], cell["options"]])


def variant_names(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By backend and options as JSON: backend, the options in which its variants differ, and
    whether it is other than official code or lossy."""
    variants = {_variant(cell): cell for cell in cells}
    names = {}
    for variant, cell in variants.items():
        others = [c["options"] for c in variants.values() if c["backend"] == cell["backend"]]
        options = options_apart(cell["options"], others)
        kind = [] if cell["provenance"] == "official code" else [cell["provenance"] or "failed"]
        if cell["provenance"] not in (None, REPLAYED):
            kind += {False: ["lossy"], None: ["unverified"]}.get(cell["lossless"], [])
        told = f"({', '.join(kind)})" if kind else ""
        own_name = [cell["label"]] if cell.get("label") else [cell["backend"], options]
        names[variant] = " ".join(filter(None, [*own_name, told]))
    return names


def _quality(cell: Mapping[str, Any]) -> str:
    from results import registry

    scores = (cell.get(metric.name) for metric in registry.scores())
    return number(next((score for score in scores if score is not None), None))


def _counted(cells: Sequence[Mapping[str, Any]]) -> Counter[str]:
    return Counter(name for cell in cells for name in _slugs(cell["invalid_reasons"]))


def _marks(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A letter for each reason for which a cell is not valid."""
    found = dict.fromkeys(name for cell in cells for name in _slugs(doubts(cell)))
    return dict(zip(found, string.ascii_lowercase, strict=False))


def _validity(cell: Mapping[str, Any], marks: Mapping[str, str]) -> str:
    failed = {name: count for name, count in cell["statuses"].items() if name != "ok"}
    if failed:
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in failed.items())
    if not cell["valid"]:
        return ", ".join(marks.get(name, name) for name in _slugs(doubts(cell)) or [NO_MEDIAN])
    used, repeats = cell["repeats_used"], cell["repeats"]
    sound = "yes" if cell["noise_checked"] else "not checked"
    return sound if used == repeats else f"{sound} ({used} of {repeats})"


def _slugs(reasons: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(map(slug, reasons)))
