"""What a load generator told beside what the server's log says, and the table of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from benchmarks.support.http.tools import ToolLoad, ToolTold
from harness.cli.truth.server import Answered

IDLE, LOADED = "ttft-100", "tokens"
"""The cases whose difference in CPU time is what the tokens cost."""
MS = 1e6
Row = dict[str, Any]


def compare(
    told: ToolTold,
    log: Sequence[Answered],
    job: ToolLoad,
    gap_s: float,
    itl: Literal["gaps", "means"],
) -> Row:
    """One run's figures; warm-up requests come first and are left out of all but the token count.

    Raises `RuntimeError` when the log does not hold the requests that were asked for.
    """
    rows = sorted(log, key=lambda row: row.arrived_ns)[-job.requests :]
    if len(rows) < job.requests or any(sum(row.sizes) != job.tokens for row in rows):
        raise RuntimeError(
            f"the server saw {len(rows)} requests of {job.requests}, or shorter ones"
        )
    ttft = np.array([row.sent_ns[0] - row.arrived_ns for row in rows]) / MS
    gaps = np.array([np.diff(row.sent_ns) for row in rows]) / MS
    between = gaps.mean(axis=1) if itl == "means" else gaps.ravel()
    due = np.arange(job.tokens) * gap_s * 1e9
    late = np.array([np.array(row.sent_ns) - row.due_ns - due for row in rows]) / MS
    truth = {
        "ttft_p50_ms": float(np.median(ttft)),
        "ttft_mean_ms": float(ttft.mean()),
        "ttft_p99_ms": float(np.percentile(ttft, 99)),
        "itl_p99_ms": float(np.percentile(between, 99)),
    }
    said = asdict(told)
    return {
        "told": said,
        "truth": truth,
        "bias": {name: said[name] - value for name, value in truth.items()},
        "marks": told.marks,
        "tok_per_s": read_rate(rows, job),
        "tokens": sum(sum(row.sizes) for row in log),
        "server_late_p99_ms": float(np.percentile(late, 99)),
        "server_late_first_p99_ms": float(np.percentile(late[:, 0], 99)),
    }


def read_rate(rows: Sequence[Answered], job: ToolLoad) -> float:
    """Tokens/s that the client has certainly read, 0.0 where each stream has but one request.

    What the server sent may still lie in the kernel, up to whole answers. But a stream asks again
    only once it has read its answer: when the last request arrives, all but `streams` are read.
    """
    read = (len(rows) - job.streams) * job.tokens
    return read / ((rows[-1].arrived_ns - rows[0].arrived_ns) / 1e9) if read else 0.0


def report(rows: Sequence[Row]) -> str:
    """Tables by case: medians over the repeats, with the range behind them."""
    good = [row for row in rows if "failed" not in row]
    cases = dict.fromkeys(row["case"] for row in good)
    found = [_case(case, [row for row in good if row["case"] == case]) for case in cases]
    costs = {tool: values for tool, values in cpu_us_per_token(good).items() if values}
    if costs:
        lines = [f"| {tool} | {_spread(values)} |" for tool, values in costs.items()]
        head = ["### CPU time of a token more", "", "| tool | us/token |", "|---|---:|"]
        found.append("\n".join([*head, *lines]))
    return "\n\n".join(found)


def _case(case: str, rows: Sequence[Row]) -> str:
    columns: dict[str, Callable[[Row], float]]
    late = {"server late p99 ms": lambda row: row["server_late_p99_ms"]}
    if case == "peak":
        return _table("peak", _best(rows), {"tokens/s": _rate, "at gap ms": _gap} | late)
    if case == LOADED:
        columns = {
            "told p99 ms": lambda row: row["told"]["itl_p99_ms"],
            "true p99 ms": lambda row: row["truth"]["itl_p99_ms"],
            "bias p99 ms": lambda row: row["bias"]["itl_p99_ms"],
            "TTFT bias p50 ms": lambda row: row["bias"]["ttft_p50_ms"],
            "tokens/s": _rate,
        }
        return _table(f"{case}: between tokens", rows, columns | late)
    columns = {
        "told TTFT p50 ms": lambda row: row["told"]["ttft_p50_ms"],
        "bias p50 ms": lambda row: row["bias"]["ttft_p50_ms"],
        "bias mean ms": lambda row: row["bias"]["ttft_mean_ms"],
        "bias p99 ms": lambda row: row["bias"]["ttft_p99_ms"],
    }
    late = {"server late p99 ms": lambda row: row["server_late_first_p99_ms"]}
    return _table(case, rows, columns | late)


def cpu_us_per_token(rows: Sequence[Row]) -> dict[str, list[float]]:
    """By tool: the CPU time that a token more costs, start-up and requests subtracted."""
    found: dict[str, list[float]] = {}
    by_case = {
        case: [row for row in rows if row["case"] == case and "failed" not in row]
        for case in (IDLE, LOADED)
    }
    for tool in dict.fromkeys(row["tool"] for row in rows):
        idle, loaded = ([r for r in by_case[case] if r["tool"] == tool] for case in by_case)
        found[tool] = [
            1e6 * (b["cpu_s"] - a["cpu_s"]) / (b["tokens"] - a["tokens"])
            for a, b in zip(idle, loaded, strict=False)
        ]
    return found


def _best(rows: Sequence[Row]) -> list[Row]:
    """Of each tool's turns the step with the highest rate."""
    found: list[Row] = []
    for row in rows:
        if found and found[-1]["tool"] == row["tool"] and found[-1]["gap_ms"] > row["gap_ms"]:
            found[-1] = max(found[-1], row, key=_rate)
        else:
            found.append(row)
    return found


def _rate(row: Row) -> float:
    return float(row["tok_per_s"])


def _gap(row: Row) -> float:
    return float(row["gap_ms"])


def _table(title: str, rows: Sequence[Row], columns: dict[str, Callable[[Row], float]]) -> str:
    lines = [f"### {title}", "", f"| tool | {' | '.join(columns)} | marked |"]
    lines.append("|---|" + "---:|" * len(columns) + "---|")
    for tool in dict.fromkeys(row["tool"] for row in rows):
        own = [row for row in rows if row["tool"] == tool]
        cells = [_spread(column(row) for row in own) for column in columns.values()]
        marks = [mark.partition(":")[0] for row in own for mark in row["marks"][:1]]
        marked = f"{len(marks)} of {len(own)}: {marks[0]}" if marks else "no"
        lines.append(f"| {tool} | {' | '.join(cells)} | {marked} |")
    return "\n".join(lines)


def _spread(values: Iterable[float]) -> str:
    """The median, and the range where there is one."""
    found = sorted(values)
    middle = _short(statistics.median(found))
    return middle if len(found) == 1 else f"{middle} ({_short(found[0])} to {_short(found[-1])})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"
