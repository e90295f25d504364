"""What a kind of news event is made of, and the facts that one event draws."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter

from workloads.bundled.draw import Draw
from workloads.bundled.words import DAYS, person, place, surname

_BRANCHES = ("Foods", "Motors", "Group", "Systems", "Works", "Stores", "Energy", "Media", "Steel")


@dataclass(frozen=True)
class EventTemplates:
    """Templates of one kind of event; fields in braces are facts (see `facts`).

    Every entry of `lead` and of each of `details` is a phrasing of the same facts. `choices` and
    `shared` name the words to draw from.
    """

    choices: Mapping[str, tuple[str, ...]]
    lead: tuple[str, ...]
    details: tuple[tuple[str, ...], ...]
    highlights: tuple[str, ...]
    summary: str
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def told(self) -> tuple[str, ...]:
        """The names of the facts that some template holds, in alphabetical order."""
        details = (template for variants in self.details for template in variants)
        templates = (*self.lead, *details, *self.highlights, self.summary)
        fields = (name for text in templates for _, name, _, _ in Formatter().parse(text))
        return tuple(sorted({name for name in fields if name}))


def company(draw: Draw) -> str:
    """Return the name of a firm."""
    return f"{surname(draw)} {draw.choose(_BRANCHES)}"


def facts(draw: Draw, event: EventTemplates) -> dict[str, str]:
    """Draw an event's facts, with the ones that follow from two numbers (who won, rose or fell)."""
    known: dict[str, str] = {}
    for name, words in (*event.choices.items(), *event.shared.items()):
        known[name] = draw.choose(words)
        known[f"{name}_title"] = known[name][0].upper() + known[name][1:]
    names = ("official", "person", "left", "right")
    known |= {name: person(draw) for name in names}
    known |= {"company": company(draw), "rival": company(draw), "prize": surname(draw)}
    known |= {"town": place(draw), "other_town": place(draw)}
    known["day"], known["other_day"] = draw.pick(DAYS, 2)
    x, y = draw.pick(range(21, 50), 2)
    known |= {"n": str(draw.integer(2, 99)), "k": str(draw.integer(2, 60))}
    known |= {"x": str(x), "y": str(y), "trend": "rose" if x > y else "fell"}
    sides = (
        ("winner", "loser", "left", "right"),
        ("winner_town", "loser_town", "town", "other_town"),
    )
    for won, lost, one, other in sides:
        known[won], known[lost] = known[one if x > y else other], known[other if x > y else one]
    return known
