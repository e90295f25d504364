"""A pipeline's stages: who comes how far, what a pass is, and how busy each is."""

from __future__ import annotations

from collections.abc import Callable

from reports.cells import Overview
from reports.collect import Samples
from reports.numbers import percent, significant
from reports.sections import Section
from reports.sections.stage_plans import planned
from reports.tables import BodyRow, Column, Group, build, judged_scope, places
from reports.words.findings import NONE_HOLDS
from reports.words.stages import StageWork, sentences, stages

_NOTE = (
    "A stage is a process with some of the layers, or several; whoever is sure behind one leaves "
    "there, or with 'verify' begins the next token and goes on to be verified. A pass "
    "takes whoever waits. Tokens that left earlier have their keys and values filled in before "
    "others need them. The busiest stage bounds the pipeline: if it never waited, it would bring "
    "the throughput divided by its share of the time, at the same passes. Prompts are apart. "
    "Stages that share a GPU wait for one another inside their passes."
)


def section(seen: Overview, samples: Samples) -> Section | None:
    """A row per stage of each cell; None where nothing is a pipeline."""
    found = stages(seen, samples)
    if not found:
        return None
    table = build(COLUMNS, found, _row)
    words = [*sentences(seen, found, samples), *planned(seen)]
    sound = [one.busy for one in found if one.cell.stands_alone]
    busiest = f"The busiest works {percent(max(sound))}% of the time." if sound else NONE_HOLDS
    finding = words[0] if words else busiest
    return Section("stages", "Stages", _NOTE, table=table, words=words, finding=finding)


def _row(one: StageWork) -> BodyRow:
    row = judged_scope(one.cell)
    return row._replace(condition=f"{row.condition}, stage {one.number}")


def _milliseconds(one: StageWork) -> float | None:
    per_pass = one.per("pass_us", "passes")
    return None if per_pass is None else per_pass / 1000


def _why(one: StageWork) -> str:
    return "all tokens go through all stages, drafts too" if one.verifies else _NOBODY


def _busy(title: str, help: str, value: Callable[[StageWork], float]) -> Column[StageWork]:
    return Column(title, value, percent, "%", help, _TIME)


_TOKENS = Group("Tokens after the first, or labels")
_PASS = Group("A pass")
_TIME = Group("Share of the time")
_NOBODY = "nobody came as far"
COLUMNS: tuple[Column[StageWork], ...] = (
    *places(lambda one: one.cell),
    Column("Stage", lambda one: f"{one.number} of {one.of}", css="",
           sort=lambda one: str(one.number), small=lambda one: one.ran_on),
    Column("layers", lambda one: one.per("layers", "rows"), significant, why=_NOBODY),
    Column("arrive", lambda one: None if one.verifies else one.arrive, percent, "%",
           "of all, survival at this stage", _TOKENS, why=_why),
    Column("leave", lambda one: None if one.verifies else one.per("left", "rows"), percent, "%",
           "of those that arrive: their next token is told behind this stage", _TOKENS, why=_why),
    Column("filled", lambda one: one.filled, percent, "%",
           "positions whose keys and values are filled in here, of all tokens", _TOKENS,
           why=_NOBODY),
    Column("rows", lambda one: one.per("rows", "passes"), significant, "", "on average", _PASS,
           why=_NOBODY),
    Column("time", _milliseconds, significant, "ms", "with the fills ahead of it", _PASS,
           why=_NOBODY),
    _busy("passes", "in passes, of first submit to last commit, for each worker of the "
          "stage: how busy it is, not what of a step passes are",
          lambda one: one.of_time("pass_us")),
    _busy("prompts", "reading prompts, and fills alone",
          lambda one: one.of_time("other_us")),
    _busy("idle", "the rest: nobody waited, or word was on its way", lambda one: 1 - one.busy),
)  # fmt: skip
"""Who comes as far, what a pass has and takes, and what the stage does all the time."""
