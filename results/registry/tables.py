"""The tables of docs/metrics.md, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import get_args

from results import registry
from results.compare.reasons import REASONS
from results.registry.metric import Metric, Section

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n\n).*?(\n\n<!-- end of table -->)", re.DOTALL)
_POOLED = {
    "median": "",
    "sum": " In a cell: added up over its repeats.",
    "pairs": " In a cell: over all pairs of all repeats.",
}
_DOUBTS = {
    "reference speed": "`reference-not-valid`, `pairs-apart`",
    "reference answers": "`reference-not-valid`, where the reference's answers are in doubt",
    "native speed": "`native-not-valid`, `native-pairs-apart`",
    "native answers": "`native-not-valid`, where the answers of `autoregressive` are in doubt",
}


def metrics_table(section: str) -> str:
    """The metrics of one section of the doc: name, unit, which way is better, definition."""
    rows = [_row(metric) for metric in registry.METRICS if metric.section == section]
    return _table(("name", "unit", "better", "definition"), rows)


def void_table() -> str:
    """What a doubt about another trial makes void."""
    rows = [
        (why, ", ".join(f"`{name}`" for name in registry.void_with(doubt)))
        for doubt, why in _DOUBTS.items()
    ]
    return _table(("reason", "void"), rows)


def reasons_table() -> str:
    """Every reason that speaks against a trial or its comparison."""
    return _table(
        ("reason", "what was found"), [(f"`{reason.slug}`", reason.text) for reason in REASONS]
    )


def tables() -> Iterator[tuple[str, str]]:
    """Name and text of every table that the doc takes from here."""
    for section in get_args(Section):
        yield section, metrics_table(section)
    yield "reasons", reasons_table()
    yield "void", void_table()


def rewritten(doc: str) -> str:
    """The doc with its tables as they are now: each stands between ``<!-- table: NAME -->`` and
    ``<!-- end of table -->``. Raises `ValueError` when one is missing, unknown or there twice."""
    new = dict(tables())
    found = [match[2] for match in _MARKED.finditer(doc)]
    if sorted(found) != sorted(new):
        raise ValueError(f"tables {sorted(found)}; expected each of {sorted(new)} once")
    return _MARKED.sub(lambda match: match[1] + new[match[2]] + match[3], doc)


def _row(metric: Metric) -> tuple[str, str, str, str]:
    name = f"`{metric.name}`" + (f", per {metric.each}" if metric.each else "")
    return name, metric.unit, metric.better, metric.text + _POOLED[metric.pooled]


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "\n".join("|" + "".join(f" {cell} |" if cell else " |" for cell in c) for c in lines)
