"""One-sentence opinions of films, in SST-2's fields.

Easy ones say what they mean. Hard ones turn it round: negations, two of them at times, a contrast
of which one half counts, what others said, what was hoped for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from workloads.bundled.draw import Draw
from workloads.bundled.labelled.opinion_words import (
    ASIDES,
    ASPECTS,
    BAD,
    BAD_DEEDS,
    DEGREES,
    GOOD,
    GOOD_DEEDS,
    OTHERS,
    WORKS,
)
from workloads.bundled.splits import Subject
from workloads.labelled import LABELS


@dataclass
class Opinion:
    """A sentence under construction. `form` collects what decides the label: words that judge, and
    how they are joined."""

    draw: Draw
    form: list[str] = field(default_factory=list)

    def judging(self, good: bool) -> str:
        """An adjective."""
        return self._told(self.draw.choose(GOOD if good else BAD))

    def deed(self, good: bool) -> str:
        """What a film does, in the third person."""
        return self._told(self.draw.choose(GOOD_DEEDS if good else BAD_DEEDS))

    def joined(self, *variants: str) -> str:
        """One of the ways to join what was drawn."""
        return self._told(self.draw.choose(variants))

    def degree(self) -> str:
        """Nothing, or an adverb with a space after it."""
        return self.draw.choose(DEGREES)

    def aspect(self) -> str:
        """Such as "the plot"."""
        return f"the {self.draw.choose(ASPECTS)}"

    def work(self) -> str:
        """Such as "western"."""
        return self.draw.choose(WORKS)

    def others(self) -> str:
        """Whose opinion does not count."""
        return self.draw.choose(OTHERS)

    def _told(self, word: str) -> str:
        self.form.append(word)
        return word


def opinion(draw: Draw) -> tuple[Subject, dict[str, str]]:
    """Return a drawn row and what it is about."""
    said, good = Opinion(draw), draw.chance(0.5)
    shapes = _EASY if draw.chance(0.5) else _HARD
    text = draw.choose(shapes)(said, good)
    aside = draw.integer(0, 3)
    if aside == 0:
        text = f"{draw.choose(ASIDES)} , {text}"
    elif aside == 1:
        text = f"{text} {draw.choose(ASIDES)}"
    text = re.sub(r"\ba (?=[aeiou])", "an ", text)
    row = {"idx": draw.hexadecimal(16), "sentence": f"{text} .", "label": LABELS["sentiment"][good]}
    return Subject(row["sentence"], " | ".join([*said.form, row["label"]])), row


def _two_adjectives(s: Opinion, good: bool) -> str:
    return f"a {s.degree()}{s.judging(good)} and {s.judging(good)} {s.work()}"


def _aspect_is(s: Opinion, good: bool) -> str:
    return f"{s.aspect()} is {s.degree()}{s.judging(good)} and {s.aspect()} {s.judging(good)}"


def _deed(s: Opinion, good: bool) -> str:
    return f"a {s.judging(good)} {s.work()} that {s.deed(good)}"


def _both(s: Opinion, good: bool) -> str:
    return f"{s.aspect()} {s.deed(good)} and {s.aspect()} is {s.degree()}{s.judging(good)}"


def _exclaimed(s: Opinion, good: bool) -> str:
    return f"what a {s.judging(good)} , {s.judging(good)} piece of work this {s.work()} is"


def _simple(s: Opinion, good: bool) -> str:
    """A judgment, turned round by a negation or not."""
    if s.draw.chance(0.4):
        return f"{s.aspect()} is {s.degree()}{s.judging(good)}"
    how = s.joined("not", "never", "hardly", "far from", "anything but", "not in the least")
    return f"{s.aspect()} is {how} {s.judging(not good)}"


def _negated(s: Opinion, good: bool) -> str:
    how = s.joined("not", "never", "hardly", "far from", "anything but", "by no means")
    return f"this {s.work()} is {how} {s.judging(not good)} and {s.aspect()} is {s.judging(good)}"


def _nobody(s: Opinion, good: bool) -> str:
    kept = s.draw.chance(0.5)
    verb = s.joined("deny", "doubt", "dispute") if kept else s.joined("claim", "say", "pretend")
    return f"nobody could {verb} that {s.aspect()} is {s.judging(good is kept)}"


def _not_true(s: Opinion, good: bool) -> str:
    false = s.joined("it is not true that", "it is wrong to say that", "do not believe that")
    negated = s.draw.chance(0.5)
    how = f"{s.joined('not', 'never', 'hardly')} " if negated else ""
    return f"{false} {s.aspect()} is {how}{s.judging(good is negated)}"


def _contrast(s: Opinion, good: bool) -> str:
    """Of two halves the main one counts, or what comes after a but."""
    but = s.joined("but", "yet", "although", "even though", "although first")
    ours, theirs = _simple(s, good), _simple(s, not good)
    if but in ("but", "yet"):
        return f"{theirs} , {but} {ours}"
    if but == "although first":
        return f"although {theirs} , {ours}"
    return f"{ours} , {but} {theirs}"


def _despite(s: Opinion, good: bool) -> str:
    if s.joined("first", "last") == "first":
        return f"despite its {s.judging(not good)} {s.draw.choose(ASPECTS)} , it {s.deed(good)}"
    return f"it {s.deed(good)} , despite its {s.judging(not good)} {s.draw.choose(ASPECTS)}"


def _reported(s: Opinion, good: bool) -> str:
    """Only the speaker's own opinion counts, or that of others where the speaker agrees."""
    agreed = s.draw.chance(0.5)
    theirs = f"{s.others()} called it {s.judging(good is agreed)}"
    if agreed:
        return f"{theirs} , and {s.joined('they are right', 'i can only agree', 'so it is')}"
    denied = s.joined("they are wrong", "i cannot agree", "it is nothing of the kind")
    return f"{theirs} , and {denied}"


def _hoped(s: Opinion, good: bool) -> str:
    """What might have been is what it is not."""
    way = s.joined("could", "should", "expected", "supposed")
    wished = s.judging(not good)
    if way in ("could", "should"):
        return f"{s.aspect()} {way} have been {wished}"
    if way == "expected":
        return f"i expected {s.aspect()} to be {wished} and it is {_twisted(s, good)}"
    return f"{s.aspect()} , supposed to be {wished} , is {_twisted(s, good)}"


def _twisted(s: Opinion, good: bool) -> str:
    if s.draw.chance(0.5):
        return s.judging(good)
    return f"{s.joined('not', 'hardly', 'far from')} {s.judging(not good)}"


Shape = Callable[[Opinion, bool], str]
_EASY: tuple[Shape, ...] = (_two_adjectives, _aspect_is, _deed, _both, _exclaimed)
_HARD: tuple[Shape, ...] = (
    _simple, _negated, _nobody, _not_true, _contrast, _contrast, _despite, _reported, _reported,
    _hoped,
)  # fmt: skip
