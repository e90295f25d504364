"""What the report compares: a backend with one set of options, and how it looks in every plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.core.names import chat_words
from harness.core.nouns import REPLAYED, Workload, canonical_json, to_json
from reports.svg import SERIES_COUNT, series_colour
from reports.text import clipped, visible
from results.compare.pairing import variant as identity

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2)), (0, (1, 3)))
LOSSY_MARK = "†"
KINDS = ("method", "measure")
"""Options that say what kind of a backend it is: always told, first, by their value alone."""
_ABSENT = object()
_SWEEP = 3
_MARKS = (
    "M18.5 6a3.5 3.5 0 1 1-7 0a3.5 3.5 0 1 1 7 0z",
    "M12 3h6v6h-6z",
    "M15 2l4 7.5h-8z",
    "M15 1.6l4.4 4.4-4.4 4.4-4.4-4.4z",
    "M15 10l-4-7.5h8z",
    "M13.5 2h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z",
    "M15 4l2-2 2 2-2 2 2 2-2 2-2-2-2 2-2-2 2-2-2-2 2-2z",
)
"""The markers of `MARKERS`, in their order, as SVG paths in the middle of 30 x 12."""
_DASHES = ("none", "5 2.5", "1.2 1.8", "6 2 1.2 2", "7 2 1.5 2 1.5 2", "1.2 4")


@dataclass(frozen=True, slots=True)
class Variant:
    """One backend with its options. `index` is its place in the report; the reference is first."""

    index: int
    backend: str
    options: Mapping[str, Any]
    provenance: str
    slot: int
    """Which of the page's series colours: one for each backend, or for each kind of a backend where
    there are colours enough."""
    style: int
    """Tells the variants of one colour apart: line style and marker."""
    telling: tuple[str, ...] = ()
    """The options that tell it from the other variants of this backend: those that differ between
    them, less those where it has the value that most of them have (three numbers are a sweep, where
    each is told)."""
    is_reference: bool = False
    lossy: bool = False
    """Its text is not promised to equal plain decoding's; marked wherever its numbers stand. Of a
    replay, whose text is chance, nothing is said."""
    given: str = ""
    """What the experiment calls it."""
    is_replay: bool = False
    """Its decisions were replayed: it has a cost and no answers."""
    beside_real: bool = False
    """It is a replay where others decided for themselves."""

    @property
    def id(self) -> str:
        """What the page's filters know it by."""
        return f"v{self.index}"

    @property
    def colour(self) -> str:
        """For matplotlib: becomes the page's series colour."""
        return series_colour(self.slot)

    @property
    def line(self) -> Any:
        """Line style for matplotlib."""
        return _LINES[self.style % len(_LINES)]

    @property
    def marker(self) -> str:
        """Marker for matplotlib."""
        return MARKERS[self.style % len(MARKERS)]

    @property
    def dashes(self) -> str:
        """The same line style for the SVG of the legend."""
        return _DASHES[self.style % len(_DASHES)]

    @property
    def mark(self) -> str:
        """Its marker, for the SVG of the legend."""
        return _MARKS[self.style % len(_MARKS)]

    @property
    def name(self) -> str:
        """The backend's name, safe to show."""
        return visible(clipped(self.backend, 60))

    @property
    def short_options(self) -> str:
        """Only the options that tell it from its siblings: ``softmax, threshold=0.9``."""
        return _words(
            plain(value) if key in KINDS else f"{key}={plain(value)}"
            for key, value in self._told.items()
        )

    @property
    def _told(self) -> dict[str, Any]:
        return {key: self.options[key] for key in self.telling if key in self.options}

    @property
    def all_options(self) -> str:
        """Every option: ``measure=softmax, threshold=0.9``."""
        return _words(f"{key}={plain(value)}" for key, value in self.options.items())

    @property
    def label(self) -> str:
        """Name and the options that tell it apart: ``vllm-early-exit softmax, threshold=0.9``; or
        what the experiment calls it."""
        told = self.given or " ".join(filter(None, (self.name, self.short_options)))
        return told + self._replayed

    @property
    def short_label(self) -> str:
        """For the rows of a plot: the values of the options only, ``vllm-early-exit 0.9``. A yes
        or no keeps the option's name."""
        if self.given:
            return self.given + LOSSY_MARK * self.lossy + self._replayed
        values = [
            f"{key}={plain(value)}" if isinstance(value, bool) else plain(value)
            for key, value in self._told.items()
        ]
        return visible(" ".join([self.name, *values])) + LOSSY_MARK * self.lossy + self._replayed

    @property
    def _replayed(self) -> str:
        """Said wherever its numbers stand beside real ones, and its options do not tell."""
        silent = self.given or "replay" not in self.telling
        return " (replayed)" if self.beside_real and silent else ""


def _words(parts: Iterable[str]) -> str:
    return visible(clipped(", ".join(parts), 120))


def plain(value: Any) -> str:
    """An option's value as people read it: ``yes``, ``0.75``, ``[2, 4]``. Not made safe."""
    if isinstance(value, Mapping):
        if "name" in value:  # rates, whose numbers are too many for a label
            return str(value["name"])
        return "{" + ", ".join(f"{k}={plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(plain, value)) + "]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


class NamedOptions(NamedTuple):
    """A backend with its options, as the run has it."""

    backend: str
    options: Mapping[str, Any]
    provenance: str
    is_reference: bool
    lossy: bool = False
    unverified: bool = False
    label: str = ""


def named_engines(
    raw: Sequence[Mapping[str, Any]], experiment: Mapping[str, Any]
) -> Iterator[NamedOptions]:
    """The backends with their options that a run's cells (`results.rows.cells`) are of."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for one in raw:
        grouped.setdefault(identity(one["backend"], one["options"]), []).append(one)
    compared = any(one["is_reference"] for one in raw)
    named = experiment.get("reference")
    for cells in grouped.values():
        first, is_reference = cells[0], any(one["is_reference"] for one in cells)
        if not compared and first["backend"] == named:
            is_reference, compared = True, True
        known = [one for one in cells if one["provenance"]]
        provenance = known[0]["provenance"] if known else "never started"
        told = {one["lossless"] for one in known}
        # a replay promises no text at all: its method is lossy where tokens leave for good
        leaves = any(one.get("mean_exit_layer") is not None for one in known)
        yield NamedOptions(
            first["backend"],
            first["options"],
            provenance,
            is_reference,
            lossy=leaves if provenance == REPLAYED else False in told,
            unverified=told == {None},
            label=first.get("label") or "",
        )


def variants(engines: Sequence[NamedOptions]) -> list[Variant]:
    """The variants of a run, the reference first, else in the given order.

    The reference has colour 0, and nothing else has. Every other family gets one colour, by order
    of appearance, and its variants differ in line style; a family is a backend's kind, or a backend
    where there are more kinds than colours.
    """
    others = [e for e in engines if not e.is_reference]
    families = list(dict.fromkeys(map(_kind, others)))
    by_kind = len(families) < SERIES_COUNT
    if not by_kind:
        families = list(dict.fromkeys((e.backend, ()) for e in others))
    options = {e.backend: [o.options for o in engines if o.backend == e.backend] for e in engines}
    mixed = len({e.provenance == REPLAYED for e in engines}) > 1
    found: list[Variant] = []
    for engine in sorted(engines, key=lambda e: not e.is_reference):
        # replays have a reference of their own
        alike = [v for v in found if v.is_reference == engine.is_reference]
        family = _kind(engine) if by_kind else (engine.backend, ())
        siblings = [v for v in alike if (_kind(v) if by_kind else (v.backend, ())) == family]
        slot = 0 if engine.is_reference else 1 + families.index(family) % (SERIES_COUNT - 1)
        found.append(
            Variant(
                index=len(found),
                backend=engine.backend,
                options=dict(engine.options),
                provenance=_told(engine),
                slot=slot,
                style=len(siblings),
                telling=_telling(engine.options, options[engine.backend]),
                is_reference=engine.is_reference,
                lossy=engine.lossy,
                is_replay=engine.provenance == REPLAYED,
                beside_real=mixed and engine.provenance == REPLAYED,
                given=visible(clipped(engine.label, 60)),
            )
        )
    return found


def _kind(one: NamedOptions | Variant) -> tuple[str, tuple[str, ...]]:
    return one.backend, tuple(plain(one.options[key]) for key in KINDS if key in one.options)


def _told(engine: NamedOptions) -> str:
    unverified = engine.unverified and engine.provenance != REPLAYED
    return engine.provenance + f", lossy{LOSSY_MARK}" * engine.lossy + ", unverified" * unverified


def _telling(own: Mapping[str, Any], all_: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    keys = dict.fromkeys([*KINDS, *(key for one in all_ for key in one)])
    varying = tuple(k for k in keys if any(one.get(k) != all_[0].get(k) for one in all_))
    usual = {
        key: [] if key in KINDS else _most_frequent([one.get(key, _ABSENT) for one in all_])
        for key in varying
    }

    def told(one: Mapping[str, Any]) -> dict[str, Any]:
        return {k: one[k] for k in varying if k in one and [one[k]] != usual[k]}

    labels = [told(one) for one in all_]
    distinct = all(labels.count(label) == 1 for label in labels)
    return tuple(told(own)) if distinct else varying


def _most_frequent(values: Sequence[Any]) -> list[Any]:
    """The value that occurs most often, more than once and more often than any other, in a list;
    an empty one where there is none, or three different numbers."""
    numbers = {v for v in values if isinstance(v, int | float) and not isinstance(v, bool)}
    if len(numbers) >= _SWEEP:
        return []
    counts = [(values.count(value), value) for value in values]
    most = max(count for count, _ in counts)
    found = [value for count, value in counts if count == most]
    return [found[0]] if most > 1 and found.count(found[0]) == len(found) else []


def workload_labels(workloads: Sequence[Workload]) -> dict[str, str]:
    """A label for each workload: its name, what sets it apart where the name is used twice, and how
    its option `chat` has prompts written."""
    distinct = {workload_key(workload): workload for workload in workloads}
    names = Counter(workload.name for workload in distinct.values())
    labels: dict[str, str] = {}
    for key, workload in distinct.items():
        parts = [workload.name]
        if names[workload.name] > 1:
            apart = {k: v for k, v in workload.options.items() if k != "chat"}
            parts += [workload.source, *(f"{k}={v}" for k, v in apart.items())]
        if words := chat_words(workload.options):
            parts.append(f"({words})")
        label = visible(clipped(" ".join(parts), 80))
        labels[key] = label if label not in labels.values() else f"{label} ({len(labels) + 1})"
    return labels


def workload_key(workload: Workload) -> str:
    """Tells workloads apart."""
    return canonical_json(to_json(workload))
