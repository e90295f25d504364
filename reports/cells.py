"""What the report shows numbers for: a cell is one variant on one workload under one load."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.core.names import BUNDLED
from harness.core.nouns import SAMPLES_NEEDED, Measured, Slo, TrialRecord, canonical_json
from reports.text import clipped, distinct, visible
from reports.variants import Variant, named_engines, variants, workload_key, workload_labels
from reports.words.doubts.apart import apart, setting_words
from reports.words.doubts.reasons import by_slug, stands_alone
from reports.words.doubts.reference import why_no_speedup
from reports.words.doubts.texts import by_cell
from results import rows as metrics
from results.compare.intervals.several import CellEffects
from results.compare.lossless.verdicts import BackendText
from results.compare.pairing import group_key
from results.compare.pairing import variant as identity
from results.compare.reasons import LEFT_OUT
from results.registry import METRIC_NAMES

if TYPE_CHECKING:
    from reports.sections.searched import SearchedSystem, SweptCurve
    from results import Run


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One row of the results: its repeats pooled as `results.rows.cells` does it."""

    variant: Variant
    workload: str
    """Its label, with the model's where the run has several models."""
    load: str
    load_kind: str
    load_value: float | None
    """Rate or concurrency; None for a trace."""
    order: int
    """Place of the load among the loads of the run, for sorting."""
    metrics: Mapping[str, Any]
    keys: tuple[str, ...]
    slo: Slo
    trials: int
    failed: int
    valid_trials: int
    left_out: int = 0
    """Trials that are not valid and that a valid cell does without."""
    partly_valid: int = 0
    """Trials of which only what compares them is void."""
    effective: Mapping[str, Any] = field(default_factory=dict)
    """The backend's options as they took effect; empty where it never came up."""
    measured: Measured = field(default_factory=Measured)
    reasons: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Slug of a reason -> trials that have it, and its text in the first of them."""
    model: str = ""
    """Its label where the run has several models, else empty."""
    is_bundled: bool = False
    """Whether the prompts are this package's own, and no rows of the data set of that name."""
    effects: Mapping[str, CellEffects] = field(default_factory=dict)
    """By speed-up: what pooling it with other cells' takes."""
    sampled: bool = False
    """Whether its answers are drawn, and not the most probable tokens."""
    group: str = ""
    """Equal for cells that may be compared: of one machine, asked alike. A folder may hold several
    machines' trials, and those of an experiment before it was changed."""
    apart: str = ""
    """What tells its machine and settings from others of the run, else empty."""
    texts: Mapping[str, BackendText] = field(default_factory=dict)
    """`consistency_ratio` and `consistency_native` -> the verdict, over all of its setting's."""

    @property
    def place(self) -> tuple[str, str, str]:
        """Equal for cells of one workload and load that may be compared."""
        return self.workload, self.load, self.group

    @property
    def asked(self) -> str:
        """`group` without the load: equal for the points of one line over loads."""
        machine, alike, *rest = json.loads(self.group or "[null, {}]")
        alike.pop("load", None)
        return canonical_json([machine, alike, *rest])

    @property
    def task(self) -> str:
        """The workload as tables and scores name it."""
        return f"{self.workload} (bundled)" if self.is_bundled else self.workload

    @property
    def part(self) -> str:
        """Its model, machine and settings, as far as the run has several: no sentence pools two."""
        return ", ".join(filter(None, (self.model, self.apart)))

    @property
    def condition(self) -> str:
        """What cells have in common that sentences may pool: the load and the part."""
        return f"{self.load} on {self.part}" if self.part else self.load

    @property
    def valid(self) -> bool:
        """Whether every trial of the cell is that it uses."""
        return self.valid_trials + self.left_out == self.trials

    @property
    def noise_checked(self) -> bool:
        """Whether somebody looked at the machine that computed."""
        return bool(self.metrics.get("noise_checked", True))

    def holds(self, name: str) -> bool:
        """Whether a metric may be believed: a comparison may be void where all else stands."""
        self._check(name)
        void = self.metrics.get("void_metrics") or ()
        return name not in void and (self.valid or len(void) > 0)

    @property
    def stands_alone(self) -> bool:
        """Whether the numbers that compare the cell with nothing may be believed."""
        return self.holds("output_tok_per_s")

    @property
    def is_measured(self) -> bool:
        """Whether any trial ended well."""
        return self.failed < self.trials

    @property
    def has_slo(self) -> bool:
        """Whether the objective bounds anything."""
        return self.slo != Slo()

    @property
    def samples(self) -> int:
        """Completed requests of a trial, the median over the repeats."""
        return int(self.metrics.get("n_completed") or 0)

    def has_samples_for(self, percentile: str) -> bool:
        """Whether a trial has enough requests for "p50", "p95" or "p99"; true of all else."""
        return self.samples >= SAMPLES_NEEDED.get(percentile, 0)

    def value(self, name: str) -> float | None:
        """A metric, None where it is undefined, and goodput's without an objective, where it would
        be throughput."""
        self._check(name)
        if name.startswith("goodput") and not self.has_slo:
            return None
        if name == "consistency_ratio" and self.variant.is_reference:
            name = "noise_floor"
        value = self.metrics.get(name)
        return None if value is None else float(value)

    def _check(self, name: str) -> None:
        """Raise `KeyError` for a name that no metric has."""
        if name not in METRIC_NAMES and name not in self.metrics:
            raise KeyError(f"no metric '{name}'")

    def low(self, name: str) -> float | None:
        """The lower end of the interval of a metric: see `high`."""
        return self._end(name, "low", 0)

    def high(self, name: str) -> float | None:
        """The upper end of the 95% interval, or of the range of the repeats where there is none."""
        return self._end(name, "high", 1)

    def _end(self, name: str, suffix: str, place: int) -> float | None:
        if f"{name}_{suffix}" in self.metrics:
            end = self.metrics[f"{name}_{suffix}"]
            return None if end is None else float(end)
        spread = self.metrics["spread"].get(name)
        return None if spread is None or self.metrics["repeats"] < 2 else float(spread[place])


@dataclass(frozen=True, slots=True)
class Overview:
    """All cells of a run in the order of the experiment, and the variants they compare."""

    cells: tuple[Cell, ...]
    variants: tuple[Variant, ...]
    rows: Sequence[Mapping[str, Any]]
    """One mapping per trial: `results.rows.summaries`."""
    why_no_speedup: str
    """Empty when the reference has finished trials."""
    published: Mapping[str, Any] | None = None
    """A paper's table that the experiment has: see `harness.experiment.published`."""
    searched: tuple[SearchedSystem, ...] = ()
    swept: tuple[SweptCurve, ...] = ()
    """Their probes are in no cell of `cells`, as those of `searched`."""
    texts: tuple[tuple[str, BackendText], ...] = ()
    """Setting in words, and whether a backend's text is the reference's there."""

    @property
    def workloads(self) -> list[str]:
        """Labels in the order of the experiment."""
        return list(dict.fromkeys(cell.workload for cell in self.cells))

    @property
    def models(self) -> list[str]:
        """Labels in the order of the experiment; one empty text where the run has one model."""
        return list(dict.fromkeys(cell.model for cell in self.cells))

    @property
    def loads(self) -> list[str]:
        """Labels by kind, then by concurrency or rate."""
        ordered = sorted(self.cells, key=lambda cell: cell.order)
        return list(dict.fromkeys(cell.load for cell in ordered))

    def by_key(self) -> dict[str, Cell]:
        """Trial key -> its cell."""
        return {key: cell for cell in self.cells for key in cell.keys}


def overview(run: Run, known: Sequence[Variant] = ()) -> Overview:
    """The cells of a run that has at least one trial; `known`: its variants, where it is a part."""
    raw, effects = metrics.cells(run), run.evaluated["effects"]
    rows = {row["key"]: row for row in metrics.summaries(run)}
    groups = {stored.record.key: group_key(stored) for stored in run.stored}
    records = {stored.record.key: stored.record for stored in run.stored}
    parts = apart(list(records.values()))
    trials = {key: record.trial for key, record in records.items()}
    found = known or variants(list(named_engines(raw, run.experiment)))
    place = {identity(v.backend, v.options): v for v in found}
    labels = workload_labels([trial.workload for trial in trials.values()])
    several = len({trial.model.label() for trial in trials.values()}) > 1
    loads = sorted({trial.load for trial in trials.values()}, key=_load_order)
    load_labels = distinct(load.label() for load in loads)
    cells = [
        _cell(
            one,
            place[identity(one["backend"], one["options"])],
            [rows[key] for key in one["keys"]],
            [records[key] for key in one["keys"]],
            labels,
            loads.index(trials[one["keys"][0]].load),
            load_labels[trials[one["keys"][0]].load.label()],
            visible(clipped(one["model"], 80)) if several else "",
        )
        for one in raw
    ]
    texts = metrics.text_verdicts(run)
    cells = [
        replace(
            cell,
            effects={name: CellEffects.from_plain(found) for name, found in own.items()},
            group=groups[cell.keys[0]],
            apart=parts[cell.keys[0]],
            texts=held,
        )
        for cell, own, held in zip(cells, effects, by_cell(texts, raw, run), strict=True)
    ]
    at = list(dict.fromkeys(text for c in cells for text in (c.workload, c.apart))).index
    cells.sort(key=lambda c: (at(c.workload), c.order, at(c.apart), c.variant.index))
    why, published = why_no_speedup(run, cells), run.experiment.get("published")
    words = setting_words(list(records.values()), [text.setting for text in texts])
    judged = tuple(zip(words, texts, strict=True))
    return Overview(tuple(cells), tuple(found), list(rows.values()), why, published, texts=judged)


def _cell(
    one: Mapping[str, Any],
    variant: Variant,
    rows: Sequence[Mapping[str, Any]],
    records: Sequence[TrialRecord],
    labels: Mapping[str, str],
    order: int,
    load_label: str,
    model: str,
) -> Cell:
    reasons = by_slug(rows)
    left_out = sum(not row["valid"] for row in rows) if one["valid"] else 0
    if left_out:
        reasons[LEFT_OUT] = (left_out, one["invalid_reasons"][-1])
    trial = records[0].trial
    load, workload = trial.load, labels[workload_key(trial.workload)]
    return Cell(
        variant=variant,
        workload=f"{workload} on {model}" if model else workload,
        load=load_label,
        load_kind=load.kind,
        load_value=load.rate if load.is_open else load.concurrency,
        order=order,
        metrics=one,
        keys=tuple(one["keys"]),
        slo=trial.slo,
        trials=len(rows),
        failed=sum(row["status"] != "ok" for row in rows),
        valid_trials=sum(bool(row["valid"]) for row in rows),
        left_out=left_out,
        partly_valid=0 if left_out else sum(map(stands_alone, rows)),
        effective=next((dict(r.backend.options) for r in records if r.backend), {}),
        measured=next((r.backend.measured for r in records if r.backend), Measured()),
        reasons=reasons,
        model=model,
        is_bundled=trial.workload.source == BUNDLED,
        sampled=trial.sampling.temperature > 0,
    )


def _load_order(load: Any) -> tuple[str, float, int, str]:
    return load.kind, float(load.rate or 0.0), load.concurrency or 0, load.label()
