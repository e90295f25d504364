"""Where the time of a step goes, and so which ratios would not survive a larger model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.figures import sizes as figures
from reports.figures.sizes import StepParts
from reports.numbers import counted, milliseconds, percent
from reports.panels import Panel, Place, group, panels
from reports.sections import Section
from reports.tables import LOAD, WORKLOAD, BodyRow, Column, Group, build, judged_scope
from reports.words.doubts.overhead import BOUND, CHANGES, is_overhead_bound, overhead_share
from reports.words.findings import NONE_HOLDS, place, span

_NOTE = (
    "A step is what a request waits for one pass through the model; what it waits while others' "
    "prompts are read is no part of it. Dark: the floor, which is the "
    "time to read (or multiply with) what the pass uses at this machine's measured rates. Lighter: "
    "the rest of the passes. Lightest: the engine around them. Faint as a whole: not valid. The "
    "shares are of a step as timed in the trial itself and add up to 1; a bar has the making of "
    "drafts among the passes, the table apart. Where the floor is less than half of what is not "
    f"the making of drafts, the step is {BOUND}: kernels, launches and the engine decide there, of "
    "which a larger model need not have the same share, and every ratio with it changes as models "
    "grow."
)
_UNKNOWN = (
    "The floor is not known: 'decodebench doctor --bandwidth' measures this machine once, and runs "
    "after it have one."
)
_MUCH = 0.1


def section(seen: Overview, _: Samples) -> Section | None:
    """A bar and a row per cell; None where no backend tells of its steps."""
    cells = [cell for cell in seen.cells if cell.value("overhead_share") is not None or floor(cell)]
    if not cells:
        return None
    known = [cell for cell in cells if floor(cell)]
    groups = group(panels(seen, _bars, known, per="load")) if known else ()
    drafted = any(drafts(cell) for cell in cells)
    table = build([c for c in COLUMNS if c is not DRAFTS or drafted], cells, _row)
    note = _NOTE if known else _UNKNOWN
    title = "Where the time of a step goes"
    words = sentences(cells)
    return Section("steps", title, note, groups, table, words, "Step time", _finding(cells))


def floor(cell: Cell) -> float | None:
    """The share of a step that its floor takes; no more than all of it."""
    share = cell.value("floor_share")
    return None if share is None else min(share, 1.0)


def parts(cell: Cell) -> StepParts:
    """What a step of a cell with a floor is made of."""
    least, engine = floor(cell) or 0.0, cell.value("overhead_share")
    if engine is not None:
        engine = min(engine, 1 - least)
    return StepParts(least, max(1 - least - (engine or 0.0), 0.0), engine)


def _sound(cells: Sequence[Cell]) -> list[Cell]:
    """Those whose numbers may be believed, and of whose overhead something is known."""
    return [c for c in cells if c.stands_alone and overhead_share(c) is not None]


def sentences(cells: Sequence[Cell]) -> list[str]:
    """How many valid cells are far from their floor, and what follows; and who waits for prompts
    most."""
    own = _sound(cells)
    bound = [cell for cell in own if is_overhead_bound(cell)]
    said = []
    if bound:
        names = list(dict.fromkeys(cell.variant.label for cell in bound))
        listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        said.append(
            f"In {len(bound)} of {counted(len(own), 'valid cell')} over half of a step "
            f"{_above(bound)} ({listed}): a ratio with one of these changes as models grow."
        )
    most = max(own, key=lambda cell: cell.value("prompts_share") or 0.0, default=None)
    if most is not None and (share := most.value("prompts_share") or 0.0) > _MUCH:
        said.append(
            f"Requests wait for others' prompts up to {percent(share)}% of the time between their "
            f"tokens ({place(most)})."
        )
    return said


def _finding(cells: Sequence[Cell]) -> str:
    times = [s for c in cells if c.stands_alone and (s := c.value("step_s")) is not None]
    took = f"A step takes {span(times, milliseconds)} ms" if times else ""
    if not (own := _sound(cells)):
        return f"{took}." if took else NONE_HOLDS
    bound = sum(map(is_overhead_bound, own))
    steps = f"{took}; over half of it" if took else "Over half of a step"
    return f"{steps} {_above(own)} in {bound} of {counted(len(own), 'valid cell')}."


def _above(cells: Sequence[Cell]) -> str:
    known = any(floor(cell) is not None for cell in cells)
    return "lies above its floor" if known else "is the engine's overhead"


def _bars(place: Place) -> Iterator[Panel]:
    shown = [(cell, parts(cell)) for cell in place.cells]
    title = f"What a step is made of, by workload and backend{place.words}"
    yield Panel(partial(figures.step_parts, cells=shown), title)


def _row(cell: Cell) -> BodyRow:
    return judged_scope(cell)._replace(group=cell.workload)


def drafts(cell: Cell) -> float | None:
    """The share of a step in which drafts were made outside the model's passes, of a cell whose
    passes are told apart from the engine; None where none were. `parts` has it among the passes."""
    share = cell.value("draft_share")
    if not share or floor(cell) is None or cell.value("overhead_share") is None:
        return None
    return min(share, parts(cell).passes)


def _passes(cell: Cell) -> float | None:
    known = floor(cell) is not None and cell.value("overhead_share") is not None
    return parts(cell).passes - (drafts(cell) or 0.0) if known else None


def _undrafted(cell: Cell) -> str:
    return "no drafts outside the model's passes" if _passes(cell) is not None else _UNTOLD


_PARTS = Group("Share of a step", "%")
_UNTOLD = "the backend does not tell how long its passes take"
_UNMEASURED = "this machine's bandwidth was never measured: 'decodebench doctor --bandwidth'"
DRAFTS: Column[Cell] = Column(
    "drafts", drafts, percent, group=_PARTS, why=_undrafted,
    help="making drafts, outside the model's passes: a draft model's own passes are here",
)  # fmt: skip
COLUMNS: tuple[Column[Cell], ...] = (
    WORKLOAD,
    LOAD,
    Column("Step", lambda cell: cell.value("step_s"), milliseconds, "ms", why="no steps were told"),
    Column("for prompts", lambda cell: cell.value("prompts_share"), percent, "%",
           "of the time between tokens: what others' prompts took, beside the steps",
           why="no steps were told"),
    Column("floor", floor, percent, group=_PARTS, why=_UNMEASURED,
           help="reading or multiplying, at this machine's measured rates"),
    Column("passes", _passes, percent, group=_PARTS, why=_UNTOLD,
           help="of the model itself, beyond the floor"),
    DRAFTS,
    Column("engine", lambda cell: parts(cell).engine, percent, group=_PARTS, why=_UNTOLD,
           help="around the model's passes and drafts"),
    Column("", lambda cell: CHANGES if is_overhead_bound(cell) else "", css=""),
)  # fmt: skip
