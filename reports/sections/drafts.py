"""Draft and verify: how many drafts stand, what they cost, and what that comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures import drafts as figures
from reports.numbers import percent, ratio, significant
from reports.panels import Panel, Place, folded, panels
from reports.sections import Section
from reports.tables import BodyRow, Column, Group, bounds, build, judged_scope, places
from reports.words.drafts import Drafting, drafting, engine
from reports.words.findings import extremes
from reports.words.ranking.draft_gains import sentences
from reports.words.techniques import predicts_early

_CURVES = (
    "The curves: how often the first drafts of a verification all stand, were as many made (drafts "
    "behind the end of an answer are not judged). Hollow: the last of them was judged fewer than "
    f"{figures.FEWEST_JUDGED} times. Faint: not valid. "
)
_TABLE = (
    "The table: a step makes drafts and verifies them, with the engine around both; its time is in "
    "steps of plain decoding on the same engine, which bring one token each. So tokens over the "
    "time of a step is the predicted speed-up. Needed are as many tokens as make a step as fast as "
    "plain decoding (its tokens over the measured speed-up): so many have to come with your "
    "model's drafts, were as many made. Measured is paired, request by request. If drafting and "
    "further rows were free, a step would take as long as a plain one."
)


def section(seen: Overview, _: Samples) -> Section | None:
    """A fold per load with a panel per workload, and a row per cell; None where nobody drafts."""
    found = drafting(seen)
    if not found:
        return None
    told = [one.cell for one in found if figures.curve(one.cell)]
    groups = folded(panels(seen, _curves, told)) if told else []
    note = _CURVES * bool(groups) + _TABLE
    table = build(COLUMNS, found, _row)
    words = sentences(seen, found)
    cells = [one.cell for one in found]
    accepted = extremes("Drafts accepted:", cells, "acceptance_rate", percent, "%")
    finding = words[0] if words else accepted or "Nothing was drafted."
    return Section("drafts", "Drafts", note, groups, table, words, finding=finding)


def _curves(place: Place) -> Iterator[Panel]:
    title = f"Share of verifications whose first drafts all stand{place.words}"
    yield Panel(partial(figures.against_position, cells=place.cells), title)


def _row(one: Drafting) -> BodyRow:
    return judged_scope(one.cell)


def _no_plain(one: Drafting) -> str:
    name = engine(one.cell)
    if not name:
        return "it is not known which backend decodes plainly on this engine"
    if one.is_apart:
        which = "does not replay" if one.cell.variant.is_replay else "replays"
        return f"{name} {which}, and replays are compared with replays alone"
    return f"there is no one cell of {name}, plain decoding on this engine, to compare with"


def _no_steps(one: Drafting) -> str:
    return "one of the two does not tell of its steps" if one.plain else _no_plain(one)


def _unpaired(one: Drafting) -> str:
    if one.plain is None:
        return _no_plain(one)
    return f"requests are paired with the reference, which {one.plain.variant.name} is not"


def _untimed(one: Drafting) -> str:
    if predicts_early(one.cell):
        return "drafts are made in the model's own passes"
    return "the backend does not tell how long drafts take"


def _unverified(one: Drafting) -> str:
    return _no_steps(one) if one.step_ratio is None else _untimed(one)


def _number(
    title: str, value: Callable[[Drafting], float | None], unit: str, help: str,
    group: Group, why: Callable[[Drafting], str],
) -> Column[Drafting]:  # fmt: skip
    """A ratio of the times of two cells' steps, struck through where one is not valid."""
    return Column(
        title, value, ratio, unit, help, group, why=why,
        marks=lambda one: "struck" * (not one.steps_hold),
    )  # fmt: skip


_VERIFICATION = Group("A verification")
_TIME = Group("Time of a step")
_SPEED = Group("Speed-up over plain", "×")
_PLAIN = "plain steps"
COLUMNS: tuple[Column[Drafting], ...] = (
    *places(lambda one: one.cell),
    Column("drafts", lambda one: one.cell.value("drafts_per_step"), significant,
           group=_VERIFICATION, why="the backend does not tell of its steps",
           help="drafts made for it, on average"),
    Column("accepted", lambda one: one.cell.value("acceptance_rate"), percent, "%",
           group=_VERIFICATION, why="nothing was drafted here", help="of all drafts"),
    Column("tokens", lambda one: one.cell.value("tokens_per_step"), significant,
           group=_VERIFICATION, why="the backend does not tell of its steps",
           help="that it commits, the model's own included"),
    Column("drafts", lambda one: one.cell.value("draft_share"), percent, "%",
           group=_TIME, why=_untimed, help="making drafts, outside the model's own passes"),
    _number("verification", lambda one: one.verification_ratio, _PLAIN,
            "all but the drafts, over a step of plain decoding", _TIME, _unverified),
    _number("all", lambda one: one.step_ratio, _PLAIN,
            "with the drafts, over a step of plain decoding", _TIME, _no_steps),
    Column("if free", lambda one: one.cell.value("tokens_per_step"), ratio,
           group=_SPEED, why="the backend does not tell of its steps",
           help="if drafts and further rows cost nothing: the tokens of a verification"),
    _number("predicted", lambda one: one.predicted, "",
            "tokens of a verification over the time of a step", _SPEED, _no_steps),
    Column("measured", lambda one: one.measured, ratio,
           group=_SPEED, why=_unpaired, help="paired on the same requests, 95% interval",
           small=lambda one: bounds(one.cell, one.metric),
           marks=lambda one: "struck" * (not one.holds)),
    Column("over", lambda one: one.plain.variant.label if one.plain else None,
           group=_SPEED, css="", why=_no_plain, help="plain decoding on the same engine"),
)  # fmt: skip
"""What a verification has, what it takes, and what that comes to."""
