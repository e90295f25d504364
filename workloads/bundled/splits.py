"""The rule that puts a row into the train split, the test split or neither."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

Split = Literal["train", "test"]
TEST_SHARE = 10
"""One form in this many belongs to the test split, and one key in this many stays out of train."""
SEEN = Path(__file__).parent / "seen.bin"
"""Marks of the forms that would be test but that the demo model, or what was fitted to it, saw."""
MARK_BYTES = 4


class Subject(NamedTuple):
    """What a row is about, as two texts.

    `key` is all that was drawn for it but its wording. `form` is the same for all rows that are
    equal up to names, distractors and wording.
    """

    key: str
    form: str


def split_of(subject: Subject) -> Split | None:
    """Return the split of a row about this; None for a row of neither.

    A form is test or it is not, and a row is train only when its form is not test: so no train
    row, whatever seed drew it, is equal to a test row up to names, distractors and wording. Train
    was once chosen by the key alone; the key still keeps a tenth out of it, so that the bundled
    weights' own seeds give the rows that they were trained on, and forms among those are no test.
    """
    if chosen(subject.form) and mark(subject.form) not in _seen():
        return "test"
    return None if chosen(subject.key) else "train"


def chosen(text: str) -> bool:
    """Return whether a key or a form is the one in TEST_SHARE that train may not have."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") % TEST_SHARE == 0


def mark(form: str) -> bytes:
    """Return what stands for a form in the file SEEN."""
    return hashlib.sha256(form.encode()).digest()[8 : 8 + MARK_BYTES]


@cache
def _seen() -> frozenset[bytes]:
    marks = SEEN.read_bytes()
    return frozenset(
        marks[start : start + MARK_BYTES] for start in range(0, len(marks), MARK_BYTES)
    )
