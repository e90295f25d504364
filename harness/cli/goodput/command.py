"""The command ``goodput``: the highest rate that each system sustains within the objective."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from harness.core.errors import SOME_FAILED, UserError

REQUESTS = 400
SCALES = (0.001, 1000.0)
"""Further from 1 no engine meets the slo, or every one does, and what is computed over such bounds
leaves what floats can hold."""


def goodput(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Experiment file with an 'slo'.")],
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/NAME-goodput by default.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Only this backend.")] = None,
    share: Annotated[
        float, typer.Option(help="Share of the requests that must meet the slo.")
    ] = 0.99,
    confidence: Annotated[float, typer.Option(help="Of the interval.")] = 0.95,
    tolerance: Annotated[
        float, typer.Option(help="Half the width of the interval that is narrow enough.")
    ] = 0.05,
    requests: Annotated[int, typer.Option(help="Of each probe.")] = REQUESTS,
    max_probes: Annotated[int, typer.Option(help="Of each search.")] = 14,
    slo_scale: Annotated[
        str, typer.Option(metavar="S,S,...", help="Search at the slo times so much, too.")
    ] = "",
    least_score: Annotated[
        float | None, typer.Option(help="Task score below which a system has no rate.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Search the highest rate at which requests meet the slo, on an engine that stays loaded."""
    from harness.cli.goodput.search_run import search_all, tell
    from harness.cli.goodput.searching import SearchSettings

    _check(share, confidence, tolerance, requests, max_probes)
    if least_score is not None and not 0 <= least_score <= 1:
        raise UserError(f"--least-score: is {least_score:g}; expected 0 to 1, as 0.8")
    asked = partial(
        SearchSettings,
        share=share,
        confidence=confidence,
        tolerance=tolerance,
        requests=requests,
        most=max_probes,
        scales=_scales(slo_scale),
        least_score=least_score,
    )
    done = search_all(file, out, only, asked, quiet=as_json)
    tell(done, as_json=as_json)
    if done.failed:
        raise typer.Exit(SOME_FAILED)


def _check(
    share: float, confidence: float, tolerance: float, requests: int, max_probes: int
) -> None:
    for name, value in (("share", share), ("confidence", confidence), ("tolerance", tolerance)):
        if not 0 < value < 1:
            raise UserError(f"--{name}: is {value:g}; expected more than 0, less than 1")
    fewest = round(2 / (1 - share))
    if requests < fewest:
        raise UserError(
            f"--requests: is {requests}; expected at least {fewest}, of which 2 may miss the slo "
            f"with --share {share:g}"
        )
    if max_probes < 3:
        raise UserError(f"--max-probes: is {max_probes}; expected at least 3")


def _scales(text: str) -> tuple[float, ...]:
    """Of ``0.5,2``. Raises `UserError`."""
    found: list[float] = []
    least, most = SCALES
    for word in filter(None, (part.strip() for part in text.split(","))):
        try:
            scale = float(word)
        except ValueError:
            scale = math.nan
        if not least <= scale <= most:
            raise UserError(
                f"--slo-scale: '{word}'; expected numbers from {least:g} to {most:g}, as in 0.5,2"
            )
        if scale != 1 and scale not in found:
            found.append(scale)
    return tuple(found)
