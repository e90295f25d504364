"""The command `simulate`: a planned pipeline and its baselines, event by event."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.planning.asked_simulation import AskedSimulation
from harness.core.errors import UserError


def simulate(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Experiment files of figures, instead of a profile and a cluster."),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Measured layers and survival (JSON).")
    ] = None,
    cluster: Annotated[Path | None, typer.Option(help="Devices and their prices (YAML).")] = None,
    slo_ms: Annotated[float | None, typer.Option(help="Latency that an answer may have.")] = None,
    slack_ms: Annotated[float, typer.Option(help="Of it, kept in reserve by the plan.")] = 0.0,
    rate: Annotated[
        float | None, typer.Option(help="Open loop: requests that arrive a second.")
    ] = None,
    plan_rate: Annotated[
        float | None, typer.Option(help="Plan for this rate instead, as headroom for bursts.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="Closed loop: clients; by default the best number of each.")
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(help="How many; 100,000 or as many as it needs, or what files say."),
    ] = None,
    copies: Annotated[int, typer.Option(help="Of the cluster, side by side.")] = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Logged ramps (JSON) instead of the profile's survival.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Run it on emulated devices too: Ray actors that wait.")
    ] = False,
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster, HOST:PORT; else one on this machine.")
    ] = None,
    window_s: Annotated[
        float | None, typer.Option(help="Plan again every so many seconds; else never.")
    ] = None,
    straggler: Annotated[
        list[str] | None,
        typer.Option(help="DEVICE:TIMES[@SECONDS]: so many times slower, from then on. Repeat it."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="With files: the folder of the page; runs/NAME by default.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object; with files a list of figures.")
    ] = False,
) -> None:
    """Simulate a planned pipeline beside its baselines, or the figures of experiment files."""
    if files:
        from harness.cli.figures.command import simulate_files

        _refuse_beside_files(context)
        simulate_files(files, out, requests, as_json)
        return
    if out is not None:
        raise UserError("--out: expected experiment files beside it")
    if profile is None or cluster is None or slo_ms is None:
        raise UserError(_missing(profile, cluster, slo_ms))
    told = AskedSimulation(
        profile=profile,
        cluster=cluster,
        slo_ms=slo_ms,
        slack_ms=slack_ms,
        rate=rate,
        plan_rate=plan_rate,
        clients=clients,
        requests=requests,
        copies=copies,
        trace=trace,
        live=live,
        address=address,
        window_s=window_s,
        straggler=straggler or [],
        seed=seed,
    ).run()
    if as_json:
        print(told.to_json())
    else:
        told.show()


def _missing(profile: Path | None, cluster: Path | None, slo_ms: float | None) -> str:
    given = {"--profile": profile, "--cluster": cluster, "--slo-ms": slo_ms}
    missing = ", ".join(name for name, value in given.items() if value is None)
    return f"simulate: expected {missing}, or experiment files of figures"


def _refuse_beside_files(context: typer.Context) -> None:
    """Raise `UserError` for an option that files say themselves."""
    allowed = ("files", "out", "requests", "as_json")
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in allowed and source is not None and source.name == "COMMANDLINE":
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option}: not beside experiment files, which say it themselves")
