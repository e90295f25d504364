"""What a metric is, and what its formula may look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from harness.core.ceilings import ceilings_from_json
from results.metrics.distribution import SUFFIXES

if TYPE_CHECKING:
    from harness.core.ceilings import Ceilings
    from harness.core.nouns import TrialRecord
    from results.compare.agreement import Agreement
    from results.compare.pairing import Versus
    from results.metrics.arrays import RequestArrays

T = TypeVar("T")
Section = Literal[
    "counts",
    "time",
    "rates",
    "answers",
    "speed",
    "work",
    "batches",
    "prediction",
    "quality",
    "resources",
]
"""The table of docs/metrics.md that a metric stands in."""


class TrialInputs:
    """One trial, and the two that it is set against. What is asked for without being there is a
    fault of the metric, whose `needs` should have said so: `AssertionError`."""

    def __init__(
        self,
        record: TrialRecord,
        requests: RequestArrays | None,
        against: Versus | None = None,
        native: Versus | None = None,
        ceilings: Ceilings | None = None,
    ) -> None:
        self.record, self.against, self.native = record, against, native
        self.ceilings = ceilings or ceilings_from_json(record.environment.get("ceilings"))
        self._requests = requests
        self._kept: dict[Callable[[TrialInputs], Any], Any] = {}

    def has(self, needed: str) -> bool:
        """Whether there is what a metric's `needs` names."""
        if needed == "record":
            return True
        other = {"reference": self.against, "native": self.native}
        return self._requests is not None and other.get(needed, self) is not None

    @property
    def requests(self) -> RequestArrays:
        """The trial's requests; only a trial that ended well has them."""
        assert self._requests is not None
        return self._requests

    @property
    def pairs(self) -> Agreement:
        """Its answers against the reference's."""
        assert self.against is not None
        return self.against.agreement

    @property
    def reference(self) -> RequestArrays:
        """The reference's requests, of the same repeat or of one that stands in for it."""
        assert self.against is not None
        assert self.against.other.requests is not None
        return self.against.other.requests

    def once(self, function: Callable[[TrialInputs], T]) -> T:
        """What `function` says of this trial, computed when first asked for."""
        if function not in self._kept:
            self._kept[function] = function(self)
        found: T = self._kept[function]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a trial, or the distribution of many. All that names, explains, pools or voids
    it is taken from here."""

    name: str
    """Ends in its unit where it has one."""
    section: Section
    text: str
    """What it is, in a sentence or two, for docs/metrics.md and the report; names in backticks."""
    formula: Callable[[TrialInputs], Any] | None
    """A plain number, text or mapping, None where undefined; with `each` a numpy array with NaN
    where undefined. None for a number of the whole cell, which `results.rows` fills in."""
    unit: str = ""
    better: Literal["larger", "smaller", ""] = ""
    """Empty for what is neither good nor bad."""
    each: Literal["", "sample", "request", "token", "commit", "diverging request"] = ""
    """What has one value each, told by percentiles and mean; empty for one value a trial. "sample":
    a request that completed with at least one token (its values are in `run.requests` too);
    "request": every request."""
    needs: Literal["record", "requests", "scores", "reference", "native"] = "requests"
    """None unless there is: a record (a failed trial's will do), requests of a trial that ended
    well, these with task scores, or also a trial of the reference or of `autoregressive`."""
    pooled: Literal["median", "sum", "pairs"] = "median"
    """What a cell has of its repeats: their median; all added up; or a number over all pairs of all
    repeats, which `results.rows` knows how to find."""
    void_with: Literal[
        "", "reference speed", "reference answers", "native speed", "native answers"
    ] = ""
    """What makes it void beside a trial that is unsound itself: doubts about the speed or the
    answers of the trial that it is set against."""
    of_a_load: bool = False
    """Whether all trials of an engine that was loaded once have the same value."""
    unequal_work: bool = False
    """Whether it is another matter where answers are of other lengths than the reference's: void
    then."""
    label: str = ""
    """The heading in the report's table, where it stands there."""
    short: str = ""
    """The heading in `show`'s table: with one it stands there, seconds in milliseconds."""

    @property
    def is_of_answers(self) -> bool:
        """Whether it says something of what the answers are."""
        return self.section in ("answers", "quality") or self.void_with.endswith("answers")

    @property
    def keys(self) -> tuple[str, ...]:
        """Its names in `show --json` and the frames."""
        return tuple(f"{self.name}_{suffix}" for suffix in SUFFIXES) if self.each else (self.name,)
