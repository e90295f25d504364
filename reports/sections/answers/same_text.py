"""Whether each backend's text is the reference's: lossless, within the noise, or lossy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reports.cells import Overview
from reports.collect import Samples
from reports.numbers import counted, interval, percent, significant
from reports.sections import Section
from reports.tables import BodyRow, Column, build
from reports.text import visible
from reports.variants import Variant
from results.compare.lossless.verdicts import BackendText
from results.compare.pairing import variant as identity

_NOTE = (
    "Over all workloads, loads and repeats of one machine and its settings. Equal answers have the "
    "same token ids, or the same label, with the 95% interval over different prompts; the noise "
    "floor is the share at which the reference equals itself in another repeat. A margin is the "
    "reference's top-2 logit margin where the texts part (a variant of it with margins: true "
    "records them). Sampled text of engines that draw otherwise is compared as a distribution: "
    "next tokens after the beginnings that both reached."
)
_NAMED = 3
"""Backends of one verdict that stand in the line of the section."""
_MARKS = {"lossless": "mark good", "within noise": "mark good", "lossy": "mark bad"}


class _JudgedText(NamedTuple):
    """A verdict and whose it is."""

    variant: Variant
    text: BackendText
    setting: str
    """In words; empty where the run has one."""


def section(seen: Overview, _: Samples) -> Section | None:
    """A row per backend and what it is held against; None where only the reference ran."""
    by_name = {identity(v.backend, v.options): v for v in seen.variants}
    found = [
        _JudgedText(variant, text, setting)
        for setting, text in seen.texts
        if (variant := by_name.get(identity(text.backend, text.options)))
        and (text.is_reference or text.pairs or text.p_value is not None)
    ]
    if all(row.text.is_reference for row in found):
        return None
    several = {
        "Model": len({row.text.model for row in found}) > 1,
        "Setting": any(row.setting for row in found),
    }
    columns = [column for column in _COLUMNS if several.get(column.title, True)]
    settings = list(dict.fromkeys(row.setting for row in found))
    found.sort(
        key=lambda row: (
            row.text.model, settings.index(row.setting), row.variant.index,
            not row.text.is_reference,
        )
    )  # fmt: skip
    table = build(columns, found, _row)
    return Section(
        "same_text",
        "Is it the same text?",
        _NOTE,
        table=table,
        short="Same text?",
        finding=_finding([row for row in found if not row.text.is_reference]),
    )


def _finding(rows: Sequence[_JudgedText]) -> str:
    verdicts: dict[str, list[str]] = {}
    for row in rows:
        equal = row.text.consistency
        share = "" if equal is None else f" ({percent(equal)}% equal)"
        name = ", ".join(filter(None, (row.variant.label, row.setting)))
        verdicts.setdefault(row.text.verdict, []).append(f"{name}{share}")
    found = "; ".join(f"{verdict}: {_listed(own)}" for verdict, own in verdicts.items())
    return f"{found[:1].upper()}{found[1:]}."


def _listed(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _NAMED
    return ", ".join(distinct[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _row(row: _JudgedText) -> BodyRow:
    place = f"{row.text.model}.{row.text.against}" if row.text.is_reference else row.text.against
    parts = filter(None, (row.text.model, place, row.setting))
    return BodyRow(row.variant, None, "", condition=".".join(parts))


def _verdict(row: _JudgedText) -> str:
    return "the noise floor" if row.text.is_reference else row.text.verdict


def _equal(row: _JudgedText) -> float | None:
    text = row.text
    return text.noise_floor if text.is_reference else text.consistency


def _bounds(row: _JudgedText) -> str:
    low, high = row.text.low, row.text.high
    return "" if low is None or high is None else interval(low, high, percent)


def _place(row: _JudgedText) -> str | None:
    fork = row.text.fork
    return None if fork is None else f"token {fork['token']}"


def _request(row: _JudgedText) -> str:
    return "" if row.text.fork is None else visible(row.text.fork["request"])


def _margin(row: _JudgedText) -> float | None:
    return None if row.text.fork is None else row.text.fork["margin"]


def _surest(row: _JudgedText) -> str:
    surest = row.text.surest
    return "" if surest is None else f"at most {significant(surest)} anywhere"


def _distribution(row: _JudgedText) -> str:
    return "" if row.text.distance is None else f"distance {significant(row.text.distance, 2)}"


_COLUMNS: tuple[Column[_JudgedText], ...] = (
    Column("Model", lambda row: visible(row.text.model), css=""),
    Column("Setting", lambda row: row.setting, css=""),
    Column("Against", lambda row: visible(row.text.against), css=""),
    Column(
        "Verdict", _verdict, css="", small=lambda row: visible(row.text.why),
        marks=lambda row: "" if row.text.is_reference else _MARKS.get(row.text.verdict, ""),
    ),
    Column(
        "Equal answers", _equal, percent, "%", small=_bounds,
        why="no answers could be compared token by token",
    ),
    Column(
        "Noise floor", lambda row: row.text.noise_floor, percent, "%",
        why="the reference was run once",
    ),
    Column(
        "Compared", lambda row: float(row.text.pairs), lambda value: f"{value:,.0f}",
        unit="pairs", small=lambda row: counted(row.text.requests, "prompt"),
    ),
    Column("First fork", _place, css="", small=_request, why="no answer differs"),
    Column("Margin there", _margin, small=_surest, why="nobody recorded it"),
    Column(
        "Distribution", lambda row: row.text.p_value, lambda value: f"p = {significant(value, 2)}",
        small=_distribution, why="texts are compared themselves",
    ),
)  # fmt: skip
