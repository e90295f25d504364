"""The tables that the terminal shows. rich is imported when needed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core.files import size
from harness.core.nouns import REPLAYED, SAMPLES_NEEDED, Trial

if TYPE_CHECKING:
    from rich.table import Table

    from harness.cli.doctor import Finding
    from results.registry import Metric

NONE = "–"


def print_plan(trials: Sequence[Trial], note: Callable[[Trial], str]) -> None:
    """What a run would do, a trial a line, with a note on each."""
    several = len({trial.model for trial in trials}) > 1
    for trial in trials:
        options = json.dumps(dict(trial.options)) if trial.options else ""
        model = trial.model.label() if several else ""
        parts = (trial.backend, options, model, trial.workload.name, trial.load.label())
        line = "  ".join(part for part in parts if part) + f"  repeat {trial.repeat}"
        print("  ".join(filter(None, (line, note(trial)))))
    print(f"{len(trials)} trials of {trials[0].requests} requests; nothing was run")


NUMBERS = {
    "speedup": 17,
    "consistency_ratio": 5,
    "output_tok_per_s": 7,
    "ttft_s": 13,
    "tpot_s": 13,
    "e2e_s": 13,
    "goodput_req_per_s": 7,
}
"""Metrics of the result table and the least widths of their columns, so that tables line up. Any
other whose entry in the registry has a short heading comes after them."""
QUALITY_WIDTH = 7
WIDTH = 160
ENOUGH_REPEATS = 5
"""The table of coverage in docs/metrics.md: with fewer, under 85% where the machine drifts."""


def print_cells(cells: Sequence[Mapping[str, Any]]) -> None:
    """The result tables: one for each workload and load, a row per cell, repeats pooled."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault((cell["model"], cell["workload"], cell["load"]), []).append(cell)
    names = _variant_names(cells)
    for (model, workload, load), members in groups.items():
        table = _table()
        title = f"{workload}, {load}{_realised(members)}, {model}"
        table.title, table.title_justify = title, "left"
        rows = [_cell_row(cell, names[_variant(cell)]) for cell in members]
        table.add_column("backend", min_width=max(map(len, names.values())), no_wrap=True)
        for number, (heading, least) in enumerate(_headings(), start=1):
            width = max(least, *(len(row[number]) for row in rows))
            table.add_column(heading, justify="right", no_wrap=True, min_width=width)
        table.add_column("valid", overflow="fold")
        for row in rows:
            table.add_row(*row)
        _print(table)
    print("ms: p50 / p99; same: share of answers equal to the reference's; goodput: requests/s")
    print(f"?: fewer than {SAMPLES_NEEDED['p99']} requests, too few for a p99")
    bounded = [c["repeats"] for c in cells if c["speedup_low"] is not None]
    if bounded and max(bounded) < ENOUGH_REPEATS:
        print(f"[ ]: 95%, too narrow where the machine drifts: below {ENOUGH_REPEATS} repeats")
    slugs = Counter(slug for cell in cells for slug in _slugs(cell))
    for slug, count in slugs.items():
        print(f"{slug}: {count} of {len(cells)} rows; the report has the reasons in full")


def _metrics() -> list[Metric]:
    """What the columns of numbers show, but for the quality."""
    from results import registry

    others = [m for m in registry.METRICS if m.short and m.name not in NUMBERS]
    return [*map(registry.find, NUMBERS), *others]


def _headings() -> Iterator[tuple[str, int]]:
    """Headings of the columns of numbers, and their least widths."""
    for metric in _metrics():
        heading = f"{metric.short} ms" if metric.unit == "s" else metric.short
        yield heading, NUMBERS.get(metric.name, len(heading))
    yield "quality", QUALITY_WIDTH


def _realised(cells: Sequence[Mapping[str, Any]]) -> str:
    """What the arrivals of an open load came to, beside the rate asked for."""
    rates = [cell["realised_rate_per_s"] for cell in cells if cell["realised_rate_per_s"]]
    return f" (realised {_number(rates[0])}/s)" if rates else ""


def _variant(cell: Mapping[str, Any]) -> str:
    return json.dumps([cell["backend"], cell["options"]], sort_keys=True)


def _variant_names(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Backend, the options in which its variants differ, and whether it is other than official code
    or lossy."""
    variants = {_variant(cell): cell for cell in cells}
    names = {}
    for variant, cell in variants.items():
        others = [c["options"] for c in variants.values() if c["backend"] == cell["backend"]]
        keys = sorted(set().union(*others))
        varying = [k for k in keys if any(o.get(k) != cell["options"].get(k) for o in others)]
        own = {key: cell["options"].get(key, "default") for key in varying}
        options = " ".join(f"{key}={_named(value)}" for key, value in own.items())
        kind = [] if cell["provenance"] == "official code" else [cell["provenance"] or "failed"]
        if cell["provenance"] not in (None, REPLAYED):
            kind += {False: ["lossy"], None: ["unverified"]}.get(cell["lossless"], [])
        told = f"({', '.join(kind)})" if kind else ""
        own_name = [cell["label"]] if cell.get("label") else [cell["backend"], options]
        names[variant] = " ".join(filter(None, [*own_name, told]))
    return names


def _named(value: Any) -> Any:
    """Of rates, whose numbers are too many for a row, their name where they have one."""
    return value.get("name", value) if isinstance(value, Mapping) else value


def _cell_row(cell: Mapping[str, Any], name: str) -> list[str]:
    from results import registry

    scores = (cell.get(metric.name) for metric in registry.scores())
    quality = next((score for score in scores if score is not None), None)
    numbers = [_metric(cell, metric) for metric in _metrics()]
    return [name, *numbers, _number(quality), _validity(cell)]


def _metric(cell: Mapping[str, Any], metric: Metric) -> str:
    if metric.name == "speedup":
        return _speedup(cell)
    if metric.each:
        return _percentiles(cell, metric)
    value = cell[metric.name]
    return _number(value * 1e3 if metric.unit == "s" and value is not None else value)


def _percentiles(cell: Mapping[str, Any], metric: Metric) -> str:
    """Median and p99, seconds in milliseconds."""
    middle, tail = cell[f"{metric.name}_p50"], cell[f"{metric.name}_p99"]
    if middle is None:
        return NONE
    doubt = "" if cell["n_completed"] >= SAMPLES_NEEDED["p99"] else "?"
    factor = 1e3 if metric.unit == "s" else 1
    return f"{_number(middle * factor)} / {_number(tail * factor)}{doubt}"


def _speedup(cell: Mapping[str, Any]) -> str:
    if cell["is_reference"]:
        return "reference"
    if cell["speedup"] is None:
        return NONE
    if cell["speedup_low"] is None:
        return f"{cell['speedup']:.2f}"
    return f"{cell['speedup']:.2f} [{cell['speedup_low']:.2f}, {cell['speedup_high']:.2f}]"


def _validity(cell: Mapping[str, Any]) -> str:
    failed = {name: count for name, count in cell["statuses"].items() if name != "ok"}
    if failed:
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in failed.items())
    return "yes" if cell["valid"] else ", ".join(_slugs(cell))


def _slugs(cell: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(reason.split(":")[0] for reason in cell["invalid_reasons"]))


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def print_bias(rows: Iterable[Mapping[str, Any]]) -> None:
    """The selftest's table: truth, measured and bias, in ms for latencies and % for rates."""
    table = _table("scenario", "metric")
    for heading in ("truth", "measured", "bias", "bound"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for row in rows:
        factor, unit = (1e3, " ms") if row["kind"] == "latency" else (1e2, " %")
        shown = factor if row["kind"] == "latency" else 1.0
        values = [f"{row[key] * shown:.4g}" for key in ("truth", "measured")]
        bounds = [f"{row[key] * factor:.3f}{unit}" for key in ("bias", "bound")]
        mark = "" if row["within"] else "too large"
        table.add_row(row["scenario"], row["metric"], *values, *bounds, mark)
    _print(table)


def print_findings(findings: Iterable[Finding]) -> None:
    """The doctor's table."""
    table = _table("what", "state", "detail")
    for finding in findings:
        table.add_row(finding.subject, finding.state, finding.detail)
    _print(table)


def print_catalogue(what: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """What ``decodebench list`` shows: a row per entry, and per option where there are options."""
    if what == "backends":
        table = _table("backend", "option", "type", "default", "what it does")
        for row in rows:
            table.add_row(row["name"], "", "", "", "", end_section=not row["options"])
            for key, option in row["options"].items():
                default = json.dumps(option["default"])
                table.add_row("", key, option["type"], default, option["help"])
    else:
        table = _table(*rows[0])
        for row in rows:
            table.add_row(*(_text(value) for value in row.values()))
    _print(table)


def print_cache(rows: Sequence[Mapping[str, Any]]) -> None:
    """What ``decodebench cache`` shows, and how much it is in all."""
    table = _table("name", "kind", "size", "last used")
    for row in rows:
        table.add_row(row["name"], row["kind"], size(row["bytes"]), row["used_at"])
    if rows:
        _print(table)
    print(f"{len(rows)} in the cache, {size(sum(row['bytes'] for row in rows))}")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return NONE if value is None else str(value)


def _table(*headings: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(*headings, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)


def _print(table: Table) -> None:
    from rich.console import Console, ConsoleDimensions
    from rich.measure import Measurement

    console = Console(markup=False, highlight=False)
    unbounded = console.options.update_width(sys.maxsize)
    least = Measurement.get(console, unbounded, table).minimum
    # a pipe has no width, and on a narrow terminal wrapped lines beat truncated numbers; the height
    # is there because rich takes a dumb terminal for 80 columns unless it has both
    console.size = ConsoleDimensions(max(console.width, WIDTH, least), console.height)
    console.print(table)
