"""The command ``history``: each metric over runs, and where it changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.gate.compare import GIT
from harness.core.errors import UserError, nearest
from harness.core.files import check_writable
from harness.core.names import UNSOUND

if TYPE_CHECKING:
    from results.compare.gate.reduced import ReducedRun
    from results.history.series import FoundChange, History, HistoryPoint

PAGE = "history.html"


def history(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Runs, files of record, folders of either, or a branch of baselines: git:BRANCH.",
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="As 'show --json' names it; may stand several times."),
    ] = None,
    significance: Annotated[
        float, typer.Option(help="Chance of any change where there is none.")
    ] = 0.05,
    out: Annotated[
        Path | None, typer.Option(help=f"The page; {PAGE} in the one DIR, else here.")
    ] = None,
    allow: Annotated[list[str] | None, typer.Option(help="'unsound': look at all trials.")] = None,
    fail_on_worse: Annotated[
        bool,
        typer.Option("--fail-on-worse", help="Exit 1 where the last step of a series is worse."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, no page.")] = False,
) -> None:
    """Each metric over runs, oldest first, and the steps in it; writes a page."""
    from results.history import series

    if not 0 < significance < 1:
        raise UserError(f"--significance: is {significance}; expected more than 0, less than 1")
    for name in allow or ():
        if name != UNSOUND:
            raise UserError(f"--allow: unknown '{name}'; {nearest(name, [UNSOUND])}")
    if out is not None and not as_json:
        check_writable(out, "--out")
    branches = [str(path) for path in folders if str(path).startswith(GIT)]
    places = [path for path in folders if not str(path).startswith(GIT)]
    found = series.history(
        places, metric or (), significance, unsound=bool(allow), records=_records(branches)
    )
    if as_json:
        print(json.dumps(to_json(found), allow_nan=False))
    else:
        from reports.history.page import write_history

        _print(found)
        is_one = len(folders) == 1 and folders[0].is_dir()
        page = out or (folders[0] if is_one else Path()) / PAGE
        write_history(found, page)
        print(f"history: {page}")
    if fail_on_worse and found.now_worse:
        raise typer.Exit(1)


def _records(branches: Iterable[str]) -> Iterator[ReducedRun]:
    from harness.cli.gate.baselines import former_baselines

    for named in branches:
        for found in former_baselines(named):
            if isinstance(found, UserError):
                print(f"warning: left out: {found}", file=sys.stderr)
            else:
                yield found


def to_json(found: History) -> dict[str, Any]:
    """Runs, changes, series and what could not be looked at, as plain data."""
    from reports.history.words import remarks

    return {
        "runs": [
            {"folder": str(run.folder), "started_at": run.started, "commit": run.commit}
            for run in found.runs
        ],
        "left_out": list(found.left_out),
        "remarks": list(remarks(found)),
        "significance": found.significance,
        "level": found.level,
        "fewest_points": found.fewest,
        "changes": [_change(one) for one in found.changes],
        "series": [
            {
                **_place(one.cell, one.key, one.machine),
                "points": [_point(point) for point in one.points],
                "unsound": [_point(point) for point in one.doubted],
            }
            for one in found.series
        ],
    }


def _place(cell: Any, key: str, machine: str) -> dict[str, Any]:
    return {
        "metric": key,
        "backend": cell.backend,
        "options": json.loads(cell.options),
        "model": cell.model,
        "workload": cell.workload,
        "load": cell.load,
        "machine": machine,
    }


def _point(point: HistoryPoint) -> dict[str, Any]:
    return {"folder": str(point.mark.folder), "commit": point.mark.commit, "value": point.value}


def _change(one: FoundChange) -> dict[str, Any]:
    before, after = one.between
    return {
        **_place(one.series.cell, one.series.key, one.series.machine),
        "verdict": one.verdict,
        "before": one.point.before,
        "after": one.point.after,
        "ratio": one.ratio,
        "p": one.point.p,
        "last_before": _point(before),
        "first_after": _point(after),
        "versions": {name: list(pair) for name, pair in one.versions.items()},
    }


def _print(found: History) -> None:
    from harness.cli.gate.shown import print_rows
    from reports.history.words import change_cells, lead, remarks

    if found.changes:
        headings = ("metric", "cell", "before", "after", "", "between", "versions")
        print_rows("", headings, [change_cells(one) for one in found.changes])
    print(lead(found))
    for line in remarks(found):
        print(line)
