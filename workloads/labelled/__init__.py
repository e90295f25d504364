"""Workloads whose answers are labels: what the labels are called, and how rows name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.core.errors import UserError, nearest

LABELS: dict[str, tuple[str, ...]] = {
    "sentiment": ("negative", "positive"),
    "shapes": ("disc", "ring", "square", "frame", "triangle", "cross", "tee", "stripes"),
}
"""In the order of the numbers that stand for them: 0 is negative, as in SST-2."""
_GENERIC = re.compile(r"(?:label_)?(\d{1,4})", re.IGNORECASE)
_LONGEST = 100_000
_TURNS = re.compile(
    r"\b(?:not|no|never|nobody|nothing|none|neither|nor|hardly|barely|cannot|without|but|yet"
    r"|although|though|despite|however|while|instead|wrong|far from"
    r"|supposed|expected|should|could|would)\b"
    r"|n't\b",
    re.IGNORECASE,
)


def label_name(workload: str, said: object) -> str | None:
    """The label that a row or a classifier means: by its name in any case, by its number, or by
    the number as transformers writes it, ``LABEL_1``. None where there is no such label."""
    names = LABELS[workload]
    text = str(said).strip().lower() if isinstance(said, str | int) else ""
    if text in names:
        return text
    found = _GENERIC.fullmatch(text)
    return names[int(found[1])] if found and int(found[1]) < len(names) else None


def named(
    workload: str, records: Iterable[tuple[str, Mapping[str, Any]]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the records with their label by name, those without one as they are. Raises `UserError`
    for a label that is none, such as those of SST-2's test split."""
    for where, values in records:
        if (said := values.get("label")) not in (None, ""):
            name = label_name(workload, said)
            if name is None:
                raise UserError(
                    f"{where}: field 'label': {said!r:.40} is no label of {workload}; "
                    f"{nearest(str(said)[:40], LABELS[workload])}"
                )
            yield where, {**values, "label": name}
        else:
            yield where, values


def turns_of_opinion(sentence: str) -> float:
    """How often a sentence may change what its words say (negations, contrasts, what was only
    expected), and by its length in words among those that do so equally often."""
    text = sentence[:_LONGEST]
    return len(_TURNS.findall(text)) + min(len(text.split()), 999) / 1000
