"""What `decodebench simulate FILE...` does: simulate the figures of files and write their page."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError
from harness.core.files import write_atomic

if TYPE_CHECKING:
    from harness.cli.figures.figure_file import AskedFigure
    from reports.simulated.figure import PaperFigure

TITLE = "Figures beside a paper's"
PAGE, NUMBERS = "report.html", "figures.json"


def simulate_files(
    files: list[Path], out: Path | None, requests: int | None, as_json: bool
) -> None:
    """Simulate every figure of the files, and write `report.html` and `figures.json` into `out`, by
    default the folder of the first file's name. All files are read before anything is simulated,
    and the page is written anew with each figure. Raises `UserError`, which says of which figure an
    error is, also for the folder of a run, whose report has the same name. `as_json`: the figures
    are printed as one JSON list, what `figures.json` has."""
    from harness.cli.figures.figure_file import read_figures
    from harness.cli.folders.run_folder import EXPERIMENT

    read = [read_figures(path, requests) for path in files]
    asked = [one for each in read for one in each.figures]
    out = out or Path("runs") / read[0].name
    if (out / EXPERIMENT).exists():
        raise UserError(f"{out}: the folder of a run (it has {EXPERIMENT}); name another --out")
    _try_folder(out)
    begin = time.monotonic()
    made: list[PaperFigure] = []
    for one in asked:
        try:
            made.append(_made(one))
        except UserError as error:
            raise UserError(f"{one.where}: {error}") from None
        _write(made, out)
        if not as_json:
            _tell(made[-1])
    if as_json:
        print(json.dumps([one.to_json() for one in made], allow_nan=False))
    else:
        print(f"{out / PAGE} in {time.monotonic() - begin:.0f} s")


def _try_folder(out: Path) -> None:
    """What writing would find out after minutes, found before anything is simulated."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise _unwritten(out, error) from None


def _unwritten(out: Path, error: OSError) -> UserError:
    return UserError(f"--out {out}: cannot be written: {error.strerror}")


def _tell(one: PaperFigure) -> None:
    print(f"{one.name} ({one.provenance}): {one.title}")
    print(f"  the paper: {one.paper}\n  here: {one.ours()}")
    print("".join(f"  {note}\n" for note in one.notes), end="", flush=True)


def _write(made: list[PaperFigure], out: Path) -> None:
    from reports.simulated.page import figures_page

    numbers = json.dumps([one.to_json() for one in made], allow_nan=False, indent=1)
    try:
        write_atomic(out / NUMBERS, numbers.encode() + b"\n")
        write_atomic(out / PAGE, figures_page(TITLE, made).encode())
    except OSError as error:
        raise _unwritten(out, error) from None


def _made(asked: AskedFigure) -> PaperFigure:
    from backends.tetris.simulation import PROVENANCE
    from harness.cli.figures.figure_file import PLANNING
    from harness.cli.figures.values import UNITS, unplanned, values
    from reports.simulated.figure import PaperFigure, Values

    unit, digits = UNITS[asked.measure]
    at, series, notes = [_word(place) for place in asked.places], dict[str, Values](), list[str]()
    for one in asked.series:
        series[one.name] = found = values(asked, one)
        notes += unplanned(asked, one, found, at)
    return PaperFigure(
        name=asked.name,
        title=asked.title,
        paper=asked.paper,
        why=asked.why,
        at_label=f"{asked.over}, windows of {asked.window_s:g} s" if asked.window_s else asked.over,
        at=at,
        unit=unit,
        digits=digits,
        series=series,
        ratios=asked.ratios,
        notes=notes,
        provenance="measured here" if asked.measure == PLANNING else PROVENANCE,
    )


def _word(place: Any) -> str:
    """A place of a figure: a number, a model's file, or a cluster's devices."""
    if isinstance(place, dict):
        return " + ".join(f"{count} {kind}" for kind, count in place.items())
    return f"{place:g}" if isinstance(place, float) else str(place)
