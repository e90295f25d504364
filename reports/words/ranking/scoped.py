"""The verdict over the whole run, and over each part of it that the page's filters can choose."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.cells import Overview
from reports.collect import Samples
from reports.words.doubts import few_repeats
from reports.words.quality import AnswerQuality, qualities
from reports.words.ranking.by_size import SizeTable, by_model, by_size
from reports.words.ranking.choices import Choice, choices
from reports.words.ranking.headline import BETWEEN_ENGINES, headline, trust_line
from reports.words.verdict import VerdictLine, verdicts

MOST = 40
"""Parts with a verdict of their own; a run of more has them by workload and by load alone."""


@dataclass(frozen=True, slots=True)
class ScopedVerdict:
    """What the numbers of a part of the run say."""

    workload: str
    """Empty: of all."""
    load: str
    headline: str
    trust: str
    choices: Sequence[tuple[str, Sequence[Choice]]]
    """By model (and machine and settings), whose name is empty where the run has one."""
    by_size: Sequence[SizeTable]
    """By machine and settings."""
    few_repeats: str
    """What its intervals miss; empty where the repeats are enough."""
    verdicts: Sequence[tuple[str, Sequence[VerdictLine]]]

    @property
    def name(self) -> str:
        """What it is about: ``gsm8k, closed c=8``; empty where it is the whole run."""
        return ", ".join(filter(None, (self.workload, self.load)))


def scoped_verdicts(seen: Overview, samples: Samples, margin: float) -> list[ScopedVerdict]:
    """The whole run's first. `margin`: of a task's score, see `qualities`."""
    workloads = seen.workloads if len(seen.workloads) > 1 else []
    loads = seen.loads if len(seen.loads) > 1 else []
    parts = list(itertools.product(["", *workloads], ["", *loads]))
    if len(parts) > MOST:
        parts = [part for part in parts if "" in part]
    found = []
    for workload, load in parts:
        cells = [c for c in seen.cells if workload in ("", c.workload) and load in ("", c.load)]
        if cells:
            own = dataclasses.replace(seen, cells=tuple(cells))
            found.append(_verdict(own, samples, margin, workload, load))
    return found


def _verdict(
    seen: Overview, samples: Samples, margin: float, workload: str, load: str
) -> ScopedVerdict:
    quality = {
        model: qualities(own, seen.variants, samples, margin) for model, own in by_model(seen)
    }
    return ScopedVerdict(
        workload,
        load,
        _headline(seen, quality, samples),
        trust_line(seen.cells),
        [
            (model, found)
            for model, own in by_model(seen)
            if not seen.why_no_speedup
            and (found := choices(own, seen.variants, quality[model], samples))
        ],
        by_size(seen),
        few_repeats.sentence(seen.cells),
        [
            (
                model,
                [
                    line
                    for line in verdicts(own, seen.variants, seen.why_no_speedup, quality[model])
                    if any(cell.variant is line.variant for cell in own)
                ],
            )
            for model, own in by_model(seen)
        ],
    )


def _headline(
    seen: Overview, quality: Mapping[str, Mapping[int, AnswerQuality]], samples: Samples
) -> str:
    found = {
        model: headline(own, seen.variants, seen.why_no_speedup, quality[model], samples)
        for model, own in by_model(seen)
    }
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    # what holds for several models is said once
    apart = [model for model, words in found.items() if BETWEEN_ENGINES in words]
    told = [
        f"{model}: {words}".replace(f"\n{BETWEEN_ENGINES}", "") for model, words in found.items()
    ]
    where = f"{', '.join(apart)}: " * (len(apart) < len(found))
    return "\n".join([*told, *[f"{where}{BETWEEN_ENGINES}"] * bool(apart)])
