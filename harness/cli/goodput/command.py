"""The command ``goodput``: the highest rate that each system sustains within the objective."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.core.errors import UserError, nearest

if TYPE_CHECKING:
    from harness.cli.goodput.searching import FoundGoodput, SearchedGoodput

REQUESTS = 400


def goodput(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Experiment file with an 'slo'.")],
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/NAME-goodput by default.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Only this backend.")] = None,
    share: Annotated[float, typer.Option(help="Of the requests, that is to meet the slo.")] = 0.99,
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
    from harness.cli import run as running
    from harness.cli import wiring
    from harness.cli.folders.run_folder import check_folder, only_writer
    from harness.cli.goodput import probing
    from harness.cli.goodput.kept import KeptAnswer
    from harness.cli.goodput.searching import SearchSettings, SystemSearch
    from harness.cli.progress import warn_of_others
    from harness.core.nouns import Slo
    from harness.experiment.config import load_experiment
    from harness.measure.machine.others import OthersWatch
    from results.goodput.stored import ANSWER
    from results.store.folder import Store

    _check(share, confidence, tolerance, requests, max_probes)
    scales = _scales(slo_scale)
    watch = OthersWatch()
    experiment = load_experiment(file, wiring.known())
    if experiment.slo == Slo():
        raise UserError(f"{file}: slo: is missing; expected ttft_ms, tpot_ms or e2e_ms")
    names = {choice.name for choice in experiment.backends}
    if only is not None and only not in names:
        raise UserError(f"--only: no backend '{only}'; {nearest(only, names)}")
    directory = out if out is not None else running.RUNS / f"{experiment.name}-goodput"
    check_folder(directory)
    resolved = wiring.resolve(experiment)
    for warning in wiring.warnings(resolved.trials()):
        typer.echo(f"warning: {warning}", err=True)
    store = Store(directory)
    with only_writer(directory):
        warn_of_others(watch.share())
        store.write_experiment(resolved.to_yaml())
        settings = SearchSettings(
            experiment.slo, share, confidence, tolerance, requests, max_probes, scales, least_score
        )
        answer = {"share": share, "confidence": confidence, "requests": requests}
        kept = KeptAnswer(directory, answer)
        found = []
        with probing.Prober(store, experiment, kept.began) as prober:
            for system in probing.systems(experiment, only):
                one = SystemSearch(prober, system, settings).searched()
                kept.ended(one.plain(confidence))
                found.append(one)
                if not as_json:
                    print("\n".join(_lines(one)), flush=True)
        answer = kept.plain()
    if as_json:
        print(json.dumps(answer, allow_nan=False))
    else:
        print(f"goodput: {directory / ANSWER}; next: decodebench report {directory}")
    if all(one.first.found is None for one in found):
        raise UserError("; ".join(f"{one.system.label()}: {one.first.limit}" for one in found))


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
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        try:
            scale = float(word)
        except ValueError:
            scale = math.nan
        if not 0 < scale < math.inf:
            raise UserError(f"--slo-scale: '{word}'; expected numbers above 0, as in 0.5,2")
        if scale != 1 and scale not in found:
            found.append(scale)
    return tuple(found)


def _lines(one: SearchedGoodput) -> Iterator[str]:
    name = one.system.label()
    yield f"{name}: {_told(one.first)}"
    if (answers := one.answers) is not None and one.first.found:
        right = answers.right_per_s
        beside = "" if right is None else f"; right and within the slo {right:.3g}/s"
        yield f"{name}: {answers.words()}{beside}"
    for scale, found in sorted(one.scales.items()):
        yield f"{name}, slo x {scale:g}: {_told(found)}"


def _told(one: FoundGoodput) -> str:
    if one.found is None:
        return f"no rate found: {one.limit}"
    rate, low, high = one.found
    return (
        f"{rate:.3g}/s [{low:.3g}, {high:.3g}] in {len(one.probes)} probes; limited by {one.limit}"
    )
