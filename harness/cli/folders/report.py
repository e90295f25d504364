"""The command `report`: a run's page."""

from __future__ import annotations

import logging
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.cells.show import RunDir, warn_of_damage
from harness.core.errors import UserError

if TYPE_CHECKING:
    from results.metrics.arrays import Floats


def report(
    directory: RunDir,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    window_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds in which survival at exits is counted. Default: 120, less in short runs."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page there; for one run.")
    ] = None,
) -> None:
    """Write DIR/report.html, one self-contained page; of a folder of runs, DIR/index.html."""
    from reports.index import runs_below, write_index

    if window_s is not None and not 0 < window_s < math.inf:
        raise UserError(f"--window-s: expected a number above 0, found {window_s:g}")
    # where the home is read-only it tells at length that it keeps its font list elsewhere
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    several = bool(runs_below(directory))
    if several and out is not None:
        raise UserError(f"--out: {directory} holds several runs; name the folder of one")
    write = partial(_page, window_s=window_s, out=out)
    page = write_index(directory, write, anew=window_s is not None) if several else write(directory)
    print(f"report: {page}")
    if open_page:
        typer.launch(page.resolve().as_uri())


def _page(directory: Path, window_s: float | None, out: Path | None) -> Path:
    from backends import about
    from backends.tetris.survival import HISTORY, LEAST_WINDOWS, forecast
    from harness.cli.folders.pieces import pieces
    from reports.page import write_report
    from reports.sections.exits.forecasts import NextWindow

    def ahead(history: Floats) -> Floats:
        return forecast(history[-HISTORY:])

    teller = NextWindow(ahead, LEAST_WINDOWS, "ARIMA, as TETRIS has it,")
    return write_report(directory, pieces, teller, window_s, about, out, warn_of_damage)
