"""The sections of the report with tables and figures, a file each, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from reports.panels import PanelGroup
from reports.tables import Table

if TYPE_CHECKING:
    from reports.cells import Overview
    from reports.collect import Samples

SECTIONS = (
    "speed.sizes",
    "speed.stored_sizes",
    "results",
    "speed.steps",
    "speed.throughput",
    "speed.latency",
    "speed.distributions",
    "speed.load",
    "speed.parts",
    "answers.tradeoff",
    "speed.goodput",
    "speed.sustained",
    "speed.swept",
    "answers.same_text",
    "answers.quality",
    "exits.techniques",
    "exits.gains",
    "exits.batch_price",
    "exits.by_layer",
    "exits.prediction",
    "exits.ablations",
    "exits.gamma",
    "stages",
    "exits.survival",
    "drafts",
    "draft_numbers",
    "published",
    "validity",
    "failures",
)
"""In reading order: each is a file of this folder with a function `section`."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: sentences, a note on how to read it, figures, a table."""

    id: str
    title: str
    note: str = ""
    groups: Sequence[PanelGroup] = ()
    table: Table | None = None
    words: Sequence[str] = ()
    """Sentences that the numbers come to."""
    short: str = ""
    """For the table of contents; without it the title."""
    finding: str = ""
    """What it comes to, in a line with its main number, which stands beside the title while the
    section is folded."""
    is_open: bool = False
    """Whether it is not folded at first."""


def sections(seen: Overview, samples: Samples) -> Iterator[Section]:
    """The sections that the run has something for; of searches and sweeps alone, theirs."""
    for name in SECTIONS if seen.cells else ("speed.sustained", "speed.swept"):
        section: Callable[[Overview, Samples], Section | None]
        section = import_module(f"{__name__}.{name}").section
        if (made := section(seen, samples)) is not None:
            yield made
