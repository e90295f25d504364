"""Task quality per workload."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures import tradeoff
from reports.numbers import counted, significant
from reports.panels import Panel, Place, beside, group, panels, rows
from reports.sections import Section
from reports.tables import QUALITY
from reports.words.findings import named, span
from reports.words.quality import qualities
from results.compare.judged import score_interval


def section(seen: Overview, samples: Samples) -> Section:
    """A panel per workload and score."""
    groups = group(panels(seen, partial(_scores, seen, samples), per="workload"))
    note = (
        "Mean task score over the prompts, all loads and repeats together, with its 95% interval."
        if groups
        else "No task scores were stored."
    )
    note += _more(samples, asked=bool(groups))
    return Section("quality", "Quality", note, groups, finding=_finding(seen, samples))


def _finding(seen: Overview, samples: Samples) -> str:
    """The score that is farthest below the reference's; without one, how far scores reach."""
    found = qualities(seen.cells, seen.variants, samples)
    tasks = [
        (seen.variants[index], task)
        for index, own in found.items()
        for task in own.tasks
        if task.judgement != "nothing to lose"
    ]
    if not tasks:
        scores = [score_interval(means)[0] for means in samples.scores.values()]
        return f"Mean scores of {span(scores, significant)}." if scores else "No task scores."
    variant, most = min(tasks, key=lambda pair: pair[1].pair.own - pair[1].pair.reference)
    if most.pair.own >= most.pair.reference:
        pairs = counted(len({(v.index, task.workload) for v, task in tasks}), "pair")
        return f"No score of {pairs} of backend and task is below the reference's."
    return f"The greatest loss beside the reference: {most.change} with {variant.label}."


def _more(samples: Samples, *, asked: bool) -> str:
    """On prompts that were asked once, beside the loads; where there are none, how to have some."""
    told = " The key quality_requests of an experiment judges answers on more prompts." * asked
    if samples.more_prompts:
        counts = sorted({f"{count:,}" for count in samples.more_prompts.values()})
        told = (
            f" Among them are {' or '.join(counts)} prompts of a workload that were asked once "
            "behind the timed trials, for their answers alone."
        )
    if samples.more_failed:
        told += f" {counted(samples.more_failed, 'trial')} of such prompts failed."
    return told


def _scores(seen: Overview, samples: Samples, place: Place) -> Iterator[Panel]:
    """Of each machine and its settings by themselves."""
    for apart in dict.fromkeys(cell.apart for cell in place.cells):
        first = {cell.variant.index: cell for cell in reversed(place.cells) if cell.apart == apart}
        cells = [cell for _, cell in sorted(first.items())]
        where = named(cells[0], cells[0].task)
        for metric, name in QUALITY.items():
            found = [
                (cell, *score_interval(means))
                for cell in cells
                if (means := samples.scores_of(cell, metric))
            ]
            if found:
                title = f"{name} on {where} by backend"
                paint = partial(tradeoff.quality, rows=found, metric_label=name)
                size = rows(len(found), 0)._replace(width=beside(seen).width, right=0.42)
                yield Panel(paint, title, f"{where}: {name}", size)
