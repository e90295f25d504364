"""Four HTTP load generators against a server of known truth: how wrong, how costly, how fast?

    python benchmarks/http_truth.py [--tools decodebench AIPerf] [--cases ttft-100] [--repeats 3]

Cases: `ttft-100` and `ttft-600`, so many streams that start at once, first tokens 20 ms after the
request reached the server; `tokens`, 100 streams of 250 tokens/s; `peak`, the same at ever shorter
gaps. A bias is what the tool told minus what the server's log says of the same run; the lateness of
the server's own tokens stands beside it. Tools take turns, each with prompts, answer lengths and
(where it can) warm-up alike. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from benchmarks.support.cpu_time import run_metered
from benchmarks.support.http.report import compare, report
from benchmarks.support.http.tools import ALL, Tool, ToolLoad, make_texts
from harness.cli.truth.server import take_log, truth_server
from harness.core.nouns import Model

WORDS = 66
"""In each prompt: about 200 tokens of the demo model."""
TTFT_S = 0.02
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class TruthCase:
    """A load and the server's schedule."""

    streams: int
    requests: int
    tokens: int
    gap_s: float


START = "ttft-100"
"""Also what the CPU time of a run with nearly nothing to do is taken from."""
CASES = {
    START: TruthCase(100, 100, 4, 0.02),
    "ttft-600": TruthCase(600, 600, 4, 0.02),
    "tokens": TruthCase(100, 400, 400, 0.004),
}
PEAK = [TruthCase(100, 400, 400, gap_s) for gap_s in (0.002, 0.001, 0.0005, 0.00025)]
GROWTH = 1.02
"""A rate that rises by less than this when more is asked for has reached its peak."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tools", nargs="+", choices=[tool.name for tool in ALL])
    parser.add_argument("--cases", nargs="+", choices=[*CASES, "peak"], default=[*CASES, "peak"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", default="demo", help="whose tokenizer the tools use")
    chosen = parser.parse_args()
    tools = choose(chosen.tools)
    directory = models.resolve(Model(chosen.model))
    texts = make_texts(max(case.requests for case in [*CASES.values(), *PEAK]), WORDS)
    rows: list[dict[str, Any]] = []
    for repeat in range(chosen.repeats):
        for name in chosen.cases:
            for tool in tools[:: 1 if repeat % 2 == 0 else -1]:
                steps = PEAK if name == "peak" else [CASES[name]]
                rows += climb(tool, name, steps, directory, texts)
    print(report(rows))
    for row in rows:
        if "failed" in row:
            print(f"{row['tool']}, {row['case']}: {row['failed']}")
    print(json.dumps({"load_average": os.getloadavg()[0], "rows": rows}))
    sys.exit(any("failed" in row for row in rows))


def choose(names: Sequence[str] | None) -> list[Tool]:
    """The tools asked for; without any, those that are there. Ends with 2 when one is missing."""
    wanted = [tool for tool in ALL if names is None or tool.name in names]
    missing = [tool.name for tool in wanted if not tool.program.exists()]
    if missing:
        verb = "left out" if names is None else "not here"
        print(f"{verb}: {', '.join(missing)} (make http-tools installs them)", file=sys.stderr)
        if names is not None:
            sys.exit(2)
    return [tool for tool in wanted if tool.name not in missing]


def climb(
    tool: Tool, name: str, steps: Sequence[TruthCase], directory: Path, texts: Sequence[str]
) -> list[dict[str, Any]]:
    """The rows of one tool's turn: more and more is asked for until its rate grows no more."""
    rows: list[dict[str, Any]] = []
    best = 0.0
    for case in steps:
        row: dict[str, Any] = {"tool": tool.name, "case": name, "gap_ms": case.gap_s * 1e3}
        try:
            row |= measure(tool, case, directory, texts)
        except (RuntimeError, OSError, LookupError) as error:
            row["failed"] = f"{type(error).__name__}: {error}"
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        rate = row.get("tok_per_s", 0.0)
        if rate < GROWTH * best or "failed" in row:
            break
        best = rate
    return rows


def measure(tool: Tool, case: TruthCase, directory: Path, texts: Sequence[str]) -> dict[str, Any]:
    """One run of a tool against a server of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        truth_server(TTFT_S, [case.gap_s]) as url,
    ):
        job = ToolLoad(
            url, directory, texts, case.streams, case.requests, case.tokens, Path(folder)
        )
        command = tool.command(tool.program, job)
        cpu_s = run_metered(command, tool.environment(), job.folder / "log", LIMIT_S)
        told, log = tool.read(job), take_log(url)
    return compare(told, log, job, case.gap_s, tool.itl) | {"cpu_s": cpu_s}


if __name__ == "__main__":
    main()
