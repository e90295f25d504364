"""The tables of ``show`` on the answers of all loads together, where more were asked than timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.cli.cells.table import CellTable, prompts_of, setting_text, variant_names
from harness.cli.cells.values import NONE, number
from harness.core.names import QUALITY, chat_words
from harness.core.nouns import QUALITY_MARGIN, canonical_json, to_json

if TYPE_CHECKING:
    from results import Run
    from results.compare.judged import PooledQuality

HEADINGS = ("backend", "score", "reference's", "prompts", "judged")
LEFT = ("backend", "judged")
"""Columns of words."""


def timed(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The cells of loads; what was asked for quality alone has no times."""
    return [cell for cell in cells if cell["load_kind"] != QUALITY]


def quality_tables(run: Run, cells: Sequence[Mapping[str, Any]]) -> list[CellTable]:
    """A table for each workload, model and setting of the run with a row under `HEADINGS` for each
    backend that has a score; none of a run in which no prompts were asked for quality alone."""
    from results import registry
    from results.compare.judged import pooled_quality
    from results.compare.machines import workload_asked
    from results.compare.quality import quality_keys
    from results.goodput.stored import without_probes

    if not quality_keys(run):
        return []
    named, names = variant_names(cells), [metric.name for metric in registry.scores()]
    margin = float(run.experiment.get("quality_margin", QUALITY_MARGIN))
    groups: dict[tuple[Any, ...], list[PooledQuality]] = {}
    for one in pooled_quality(without_probes(run), names):
        place = (workload_asked(one.trial), one.score, *one.setting.items())
        groups.setdefault(place, []).append(one)
    return [_table(own, named, margin) for own in groups.values()]


def _table(own: Sequence[PooledQuality], named: Mapping[str, str], margin: float) -> CellTable:
    from results import registry

    trial, score = own[0].trial, registry.find(own[0].score)
    workload = trial.workload
    title = (
        f"{workload.name}, {score.label or score.name} of all answers, {trial.model.label()}"
        f"{prompts_of(workload.source, chat_words(workload.options))}"
    )
    title = ", ".join(filter(None, (title, setting_text(own[0].setting))))
    return CellTable(title, list(_rows(own, named, margin)))


def _rows(
    own: Sequence[PooledQuality], named: Mapping[str, str], margin: float
) -> Iterator[list[str]]:
    for one in own:
        key = canonical_json([one.trial.backend, to_json(one.trial.options)])
        theirs = NONE if one.pair is None else number(one.pair.reference)
        prompts = one.prompts if one.pair is None else one.pair.prompts
        mean = one.mean if one.pair is None else one.pair.own
        yield [named[key], number(mean), theirs, f"{prompts:,}", _judged(one, margin)]


def _judged(one: PooledQuality, margin: float) -> str:
    from results.compare.judged import would_settle

    pair = one.pair
    if pair is None:
        return NONE
    if one.is_lossless and pair.own == pair.reference:
        return "the same, as promised"
    if pair.judgement == "as good":
        return f"as good, within {margin:g}"
    if pair.judgement == "worse":
        return f"worse, by over {margin:g}"
    if pair.judgement == "nothing to lose":
        return f"nothing to lose: the reference scores {number(pair.reference)}"
    return f"too few; {would_settle([pair])}"
