"""The command ``gate calibrate``: which margins this machine can hold, and how many repeats a
wished one needs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from results.compare.gate.calibration import HeldMargin
    from results.compare.gate.margins import MarginRule

gate_app = typer.Typer(help="The regression gate's margins.", no_args_is_help=True)
STEP = 0.001
"""Margins are rounded up to a tenth of a percent."""


@gate_app.callback()
def gate() -> None:
    """The regression gate's margins."""


@gate_app.command("calibrate")
def calibrate_gate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or a file of record.")],
    out: Annotated[Path, typer.Option(help="The gate file to write.")] = Path("gate.yaml"),
    wish: Annotated[
        float, typer.Option(min=0.001, max=5.0, help="Wished margin; 0.05 is 5%.")
    ] = 0.05,
    gate_file: Annotated[
        Path | None, typer.Option("--gate", help="Whose metrics; else the defaults.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="'unsound': repeats that are not believed, too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Write the margins that this machine can hold, from the repeats of one run."""
    from harness.cli.gate.compare import read_side
    from harness.cli.gate.gate_file import read_rules, rules_text
    from harness.core.files import write_atomic
    from results.compare.gate.calibration import calibrated
    from results.compare.gate.identity import UNSOUND, check_allowed, check_one_version
    from results.compare.gate.margins import DEFAULTS

    allowed = check_allowed(allow or ())
    rules = read_rules(gate_file) if gate_file is not None else DEFAULTS
    reduced = read_side(run, rules.names)
    check_one_version(reduced)
    held = calibrated(reduced, rules, wish, unsound=UNSOUND in allowed)
    comment = (
        f"Written by 'decodebench gate calibrate' on machine {reduced.fingerprint}: what comparing "
        "a version\nwith itself passes in 4 of 5 cases, with as many repeats as the run had."
    )
    write_atomic(out, rules_text(_rules(held, rules.rules), rules.alpha, comment).encode())
    if as_json:
        for one in held:
            print(json.dumps({**dataclasses.asdict(one)}))
        return
    from harness.cli.gate.shown import print_margins

    print_margins(held)
    print(f"margins: {out}")


def _rules(held: Sequence[HeldMargin], given: Sequence[MarginRule]) -> list[MarginRule]:
    """What was given, with the margins that are held after it, where they hold."""
    from results.compare.gate.margins import MarginRule
    from results.compare.gate.quantities import quantities

    known = quantities()
    kept = [r for r in given if not all(known[name].by_the_clock for name in r.names)]
    found = [
        MarginRule(
            metric=one.metric,
            margin=round(math.ceil(one.margin / STEP) * STEP, 3),
            workload=one.cell.workload,
            load=one.cell.load,
            backend=one.cell.backend,
            model=one.cell.model,
        )
        for one in held
    ]
    return [*kept, *_widest(found)]


def _widest(rules: Sequence[MarginRule]) -> list[MarginRule]:
    """One rule for all options of a backend, which a gate file does not tell apart."""
    found: dict[MarginRule, MarginRule] = {}
    for rule in rules:
        key = dataclasses.replace(rule, margin=0.0)
        if key not in found or found[key].margin < rule.margin:
            found[key] = rule
    return list(found.values())
