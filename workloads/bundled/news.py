"""News-like rows: articles with highlights (CNN/DailyMail) or with one sentence (XSum)."""

from workloads.bundled.draw import Draw
from workloads.bundled.events import EventTemplates, company, facts
from workloads.bundled.events_business import BUSINESS
from workloads.bundled.events_public import PUBLIC
from workloads.bundled.splits import Subject
from workloads.bundled.words import MONTHS, person, place

EVENTS: tuple[EventTemplates, ...] = PUBLIC + BUSINESS
_TOLD = tuple(event.told for event in EVENTS)
_ASIDES = (
    "{who}, who lives nearby, said it was the talk of the town.",
    "Nothing like it has happened since {year}.",
    "In {month}, {n} people had signed a letter about it.",
    "The news was first reported by a paper in {where}.",
    "Reporter {who} was there with {n} others.",
    "{firm} had no comment.",
    "Traffic was slow for {n} minutes.",
    "More will be known in {month}.",
    "A visitor from {where}, {who}, took {n} pictures.",
    "It was {n} degrees outside and the sun was shining.",
    "The town of {where} had a similar case in {year}.",
    "{who} of {firm} said that this was a surprise.",
)


def _aside(draw: Draw, template: str) -> str:
    """Return a sentence whose names and numbers belong to no summary."""
    return template.format(
        who=person(draw),
        where=place(draw),
        firm=company(draw),
        month=draw.choose(MONTHS),
        year=draw.integer(1901, 2019),
        n=draw.integer(2, 60),
    )


def _article(draw: Draw, event: EventTemplates, known: dict[str, str], asides: int) -> str:
    """Return the lead, then the details with asides between them, in random order."""
    told = [draw.choose(variants).format(**known) for variants in event.details]
    told += [_aside(draw, template) for template in draw.pick(_ASIDES, asides)]
    return " ".join([draw.choose(event.lead).format(**known), *draw.pick(told, len(told))])


def _event(draw: Draw) -> tuple[Subject, EventTemplates, dict[str, str], str]:
    """Draw an event: what it is about, templates, facts and article.

    The key is its kind and all facts, told or not; the form leaves out those that no template of
    its kind tells. Names stay in: an article without them is a template. Asides and wording are in
    neither.
    """
    number = draw.integer(0, len(EVENTS) - 1)
    event = EVENTS[number]
    known = facts(draw, event)
    asides = draw.choose((0, 0, 1, 1, 1, 2, 2, 3, 4, 8))
    key = "/".join([str(number), *(f"{name}={known[name]}" for name in sorted(known))])
    form = "/".join(["news", str(number), *(f"{name}={known[name]}" for name in _TOLD[number])])
    return Subject(key, form), event, known, _article(draw, event, known, asides)


def highlighted(draw: Draw) -> tuple[Subject, dict[str, str]]:
    """Return the subject and the row of an article with two or three highlights, one per line."""
    subject, event, known, article = _event(draw)
    lines = [line.format(**known) for line in event.highlights]
    row = {"article": article, "highlights": "\n".join(lines), "id": draw.hexadecimal(40)}
    return subject, row


def summarized(draw: Draw) -> tuple[Subject, dict[str, str]]:
    """Return the subject and the row of an article with a summary of one sentence."""
    subject, event, known, article = _event(draw)
    row = {"document": article, "summary": event.summary.format(**known)}
    return subject, row | {"id": str(draw.integer(10_000_000, 41_999_999))}
