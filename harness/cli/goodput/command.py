"""The command ``goodput``: the highest rate that each system sustains within the objective."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.core.errors import UserError, nearest

if TYPE_CHECKING:
    from harness.cli.goodput.probing import ProbedSystem, Prober
    from harness.core.nouns import Slo
    from results.goodput.search import FoundRate, Probe

IDLE_REQUESTS = 20
REQUESTS = 400
START = 2.0
"""The first rate, in requests that an idle system answers one after the other in that time."""
MOST_LATE = 2
"""Probes in a row in which the client was late: then it is what limits."""
SOME_FAILED = 4


@dataclass(frozen=True, slots=True)
class FoundGoodput:
    """What came of one system."""

    system: ProbedSystem
    probes: list[Probe]
    found: FoundRate | None
    limit: str
    """What keeps it from more, or why there is no rate."""
    ended: str
    """Why no more rates were tried."""


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
    max_probes: Annotated[int, typer.Option(help="Of each system.")] = 14,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Search the highest rate at which requests meet the slo, on an engine that stays loaded."""
    from harness.cli import run as running
    from harness.cli import wiring
    from harness.cli.folders.run_folder import check_folder, only_writer
    from harness.cli.goodput import probing
    from harness.cli.goodput.kept import KeptAnswer
    from harness.cli.progress import warn_of_others
    from harness.core.nouns import Slo
    from harness.experiment.config import load_experiment
    from harness.measure.machine.others import OthersWatch
    from results.goodput.stored import ANSWER
    from results.store.folder import Store

    _check(share, confidence, tolerance, requests, max_probes)
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
        settings = share, tolerance, max_probes, confidence
        answer = {"share": share, "confidence": confidence, "requests": requests}
        kept = KeptAnswer(directory, answer)
        found = []
        with probing.Prober(store, experiment, kept.began) as prober:
            for system in probing.systems(experiment, only):
                one = _search(prober, system, experiment.slo, requests, settings)
                kept.ended(_plain(one, confidence))
                found.append(one)
                if not as_json:
                    print(_line(found[-1]), flush=True)
        answer = kept.plain()
    if as_json:
        print(json.dumps(answer, allow_nan=False))
    else:
        print(f"goodput: {directory / ANSWER}; next: decodebench report {directory}")
    if all(one.found is None for one in found):
        raise UserError("; ".join(f"{one.system.label()}: {one.limit}" for one in found))


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


def _search(
    prober: Prober,
    system: ProbedSystem,
    slo: Slo,
    requests: int,
    settings: tuple[float, float, int, float],
) -> FoundGoodput:
    from harness.core.nouns import Load
    from results.goodput.search import RateSearch, limited_by
    from results.metrics import latency

    share, tolerance, most, confidence = settings
    idle = prober.run(prober.trial(system, Load("closed", concurrency=1), 0, IDLE_REQUESTS))
    holds = idle.probe(1.0, slo).share
    if holds < share:
        name = limited_by(idle.shares(slo))
        return FoundGoodput(
            system, [], None,
            f"even one request at a time meets the slo in {holds:.1%} of the cases only ({name}); "
            f"expected {share:.1%}",
            "misses the slo idle",
        )  # fmt: skip
    alone_s = float(latency.e2e_s(idle.requests).mean())
    search = RateSearch(share, START / alone_s, tolerance, most, confidence)
    shares: dict[float, list[tuple[str, float]]] = {}
    number = late = 0
    limit = ended = ""
    while (rate := search.next_rate()) is not None:
        number += 1
        rate = float(f"{rate:.4g}")
        load = Load("poisson", rate=rate)
        probed = prober.run(prober.trial(system, load, number, requests))
        if probed.is_late:
            late += 1
            if late >= MOST_LATE:
                limit = f"the client, which was late at {rate:g}/s: more cannot be asked here"
                ended = "the client was late"
                break
            continue
        late = 0
        search.add(probed.probe(rate, slo))
        shares[rate] = probed.shares(slo)
    ended = ended or ("probes used up" if len(search.probes) >= most else "narrow enough")
    found = search.found()
    low, high = search.bracket()
    if not limit:
        if high is not None:
            limit = limited_by(shares[high])
        else:
            limit = f"nothing up to {low:g}/s; more --max-probes may" if low else "nothing was seen"
    if found is None and low is None and high is not None:
        limit = f"missed at {high:g}/s, the lowest rate tried ({limit}); more --max-probes may find"
    return FoundGoodput(system, search.probes, found, limit, ended)


def _line(one: FoundGoodput) -> str:
    if one.found is None:
        return f"{one.system.label()}: no rate found: {one.limit}"
    rate, low, high = one.found
    return (
        f"{one.system.label()}: {rate:.3g}/s [{low:.3g}, {high:.3g}] in {len(one.probes)} probes; "
        f"limited by {one.limit}"
    )


def _plain(one: FoundGoodput, confidence: float) -> dict[str, Any]:
    from harness.cli.goodput.probing import described
    from results.goodput.shares import share_interval

    return {
        **described(one.system),
        "rate_per_s": one.found.rate if one.found else None,
        "low_per_s": one.found.low if one.found else None,
        "high_per_s": one.found.high if one.found else None,
        "limit": one.limit,
        "ended": one.ended,
        "probes": [
            {
                "rate": p.asked,
                "rate_came_about": p.rate,
                "share": p.share,
                **dict(zip(("low", "high"), share_interval(p.met, confidence), strict=True)),
                "judged": len(p.met),
            }
            for p in one.probes
        ],
    }
