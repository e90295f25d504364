"""The command ``gate calibrate``: which margins this machine can hold, and how many repeats a
wished one needs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from results.compare.gate.calibration import HeldMargin
    from results.compare.gate.margins import GateRules, MarginRule

gate_app = typer.Typer(help="The regression gate's margins.", no_args_is_help=True)
LEAST_REPEATS = 3
EXPECTED = "expected more repeats, or a quieter machine"
STEP = 0.001
"""Margins are rounded up to a tenth of a percent."""


@gate_app.callback()
def gate() -> None:
    """The regression gate's margins."""


@gate_app.command("calibrate")
def calibrate_gate(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FILE", help="A run, a file of record, or an experiment to be run for it."
        ),
    ],
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
    repeats: Annotated[
        int, typer.Option(min=LEAST_REPEATS, help="Of an experiment that is run for it.")
    ] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Write the margins that this machine can hold, from the repeats of one run: a comparison of a
    version with itself."""
    from harness.cli.gate.compare import read_side
    from harness.cli.gate.gate_file import read_rules, rules_text
    from harness.core.errors import UserError
    from harness.core.files import check_writable, write_atomic
    from harness.core.names import UNSOUND
    from results.compare.gate.calibration import calibrated
    from results.compare.gate.identity import check_allowed, check_one_version
    from results.compare.gate.margins import DEFAULTS

    allowed = check_allowed(allow or ())
    check_writable(out, "--out")
    rules = read_rules(gate_file) if gate_file is not None else DEFAULTS
    if run.suffix in (".yaml", ".yml") and not run.is_dir():
        run = _run(run, repeats)
    reduced = read_side(run, rules.names)
    check_one_version(reduced)
    held = calibrated(reduced, rules, wish, unsound=UNSOUND in allowed)
    comment = (
        f"Written by 'decodebench gate calibrate' on machine {reduced.fingerprint}: what comparing "
        "a version\nwith itself passes in 4 of 5 cases, all rows together, with as many repeats as "
        "the run had,\nwhich show only about how much repeats differ: that is allowed for."
    )
    written, beyond = _rules(held, rules)
    _warn_beyond(beyond)
    if not written:
        raise UserError(f"{run}: no margin below 1000% is held; {EXPECTED}")
    write_atomic(out, rules_text(written, rules.alpha, comment).encode())
    if as_json:
        for one in held:
            print(json.dumps({**dataclasses.asdict(one)}))
        return
    from harness.cli.gate.shown import print_margins

    print_margins(held)
    print(f"margins: {out}")


def _warn_beyond(rules: Sequence[MarginRule]) -> None:
    """Of rows that a gate file cannot hold."""
    for rule in rules:
        named = f"{rule.metric} of {rule.workload}, {rule.load}, {rule.model}: {rule.backend}"
        told = f"{named} holds no margin below 1000%; more repeats may"
        print(f"warning: left out: {told}", file=sys.stderr)


def _run(file: Path, repeats: int) -> Path:
    """Run an experiment with so many repeats, of which those that are stored are not run again;
    its folder. What a run says goes to stderr: stdout has the margins."""
    from harness.cli import wiring
    from harness.cli.run import RUNS, run_parsed
    from harness.experiment.config import load_experiment

    experiment = load_experiment(file, wiring.known())
    folder = RUNS / f"{experiment.name}-calibration"
    with contextlib.redirect_stdout(sys.stderr):
        run_parsed(dataclasses.replace(experiment, repeats=repeats), out=folder)
    return folder


def _rules(
    held: Sequence[HeldMargin], given: GateRules
) -> tuple[list[MarginRule], list[MarginRule]]:
    """What was given, with the margins that are held after it, where they hold; and those that are
    too wide for a gate file. A score's margin is never made smaller than what was asked for:
    repeats that agree by luck would ask for it."""
    from results.compare.gate.margins import MOST_MARGIN, MarginRule
    from results.compare.gate.quantities import quantities

    known = quantities()

    def is_clocked(one: HeldMargin) -> bool:
        return known[one.metric].by_the_clock

    kept = [r for r in given.rules if not all(known[name].by_the_clock for name in r.names)]
    found = _widest(
        [
            MarginRule(
                metric=one.metric,
                margin=_rounded(one.margin if is_clocked(one) else max(one.margin, one.wished)),
                workload=one.cell.workload,
                load=one.cell.load,
                backend=one.cell.backend,
                model=one.cell.model,
                direction=given.margins(one.cell)[one.metric].direction,
            )
            for one in held
            if known[one.metric].is_ratio or one.margin < 1  # no share can be worse by more
        ]
    )
    beyond = [rule for rule in found if rule.margin >= MOST_MARGIN]
    return [*kept, *(rule for rule in found if rule not in beyond)], beyond


def _rounded(margin: float) -> float:
    return round(max(1, math.ceil(margin / STEP - 1e-9)) * STEP, 3)


def _widest(rules: Sequence[MarginRule]) -> list[MarginRule]:
    """One rule for all options of a backend, which a gate file does not tell apart."""
    found: dict[MarginRule, MarginRule] = {}
    for rule in rules:
        key = dataclasses.replace(rule, margin=0.0)
        if key not in found or found[key].margin < rule.margin:
            found[key] = rule
    return list(found.values())
