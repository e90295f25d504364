"""The command line. Every command imports what it needs when it runs, so that --help is instant.

Exit codes: 0 done, 1 gate failed, 2 bad input, 3 gate inconclusive, 4 some trials failed,
70 an error of decodebench itself, 130 interrupted, 141 nobody reads the output,
143 interrupted by SIGTERM.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.cached.command import cache_app
from harness.cli.calibrate import calibrate
from harness.cli.cells.lossless import lossless
from harness.cli.cells.show import AsJson, print_json_lines, show
from harness.cli.first.init import init
from harness.cli.first.panels import arrange
from harness.cli.first.quick import quick
from harness.cli.first.schema import schema
from harness.cli.folders.report import report
from harness.cli.gate.calibrate import gate_app
from harness.cli.gate.compare import compare
from harness.cli.gate.history import history
from harness.cli.goodput.command import goodput
from harness.cli.others.exports import export
from harness.cli.others.imports import import_results
from harness.cli.planning.plan import plan
from harness.cli.planning.profile import profile
from harness.cli.planning.simulate import simulate
from harness.cli.repeats.options import AgainShare, Fresh, RetryFailures
from harness.cli.tracing.trace import trace
from harness.cli.train import train_app
from harness.core.errors import SOME_FAILED, UserError, nearest
from harness.core.processes import terminal
from harness.core.processes.gpus import number_by_bus

GATE_FAILED = 1
BAD_INPUT = 2
OWN_ERROR = 70
"""As sysexits.h has it. Python's 1 would say that a gate failed."""
INTERRUPTED = 130
READER_GONE = 141
"""As a shell reports a program whose pipe was closed."""
TERMINATED = 143
"""As a shell reports a program that SIGTERM has ended."""
LONGEST_MESSAGE = 2_000
STOPPED = "interrupted; what was finished is stored"

app = typer.Typer(
    name="decodebench",
    help="Benchmark and compare LLM decoding accelerators on one workload, one load, one clock.",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
app.add_typer(train_app, name="train")
app.add_typer(cache_app, name="cache")
app.command()(show)
app.command()(report)
app.command()(lossless)
app.command()(quick)
app.command()(init)
app.command()(schema)
app.command()(calibrate)
app.command()(trace)
app.command()(plan)
app.command()(profile)
app.command()(simulate)
app.command()(compare)
app.command()(history)
app.command()(goodput)
app.command("import")(import_results)
app.command()(export)
app.add_typer(gate_app, name="gate")


def _print_version(asked: bool) -> None:
    if asked:
        import importlib.metadata

        print(f"decodebench {importlib.metadata.version('decodebench')}")
        raise typer.Exit


@app.callback()
def whole(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Benchmark and compare LLM decoding accelerators on one workload, one load, one clock."""


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Experiment file (YAML).")],
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/NAME by default.")] = None,
    only: Annotated[str | None, typer.Option(help="Only this backend, or this label.")] = None,
    fresh: Fresh = False,
    retry_failures: RetryFailures = False,
    dry_run: Annotated[bool, typer.Option(help="Check everything, list the trials, stop.")] = False,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="On this shape instead of the file's models; may stand several times."),
    ] = None,
    executor: Annotated[str, typer.Option(help="Where trials run: local or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="HOST:PORT of a Ray cluster; default: one on this machine.")
    ] = None,
    again_share: AgainShare = 0.1,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="GITREF|DIR", help="Run another version of the code beside this one, in turns."
        ),
    ] = None,
) -> None:
    """Run the trials of an experiment that are not stored yet."""
    from harness.cli import run as running
    from harness.cli.cluster.place import find_place

    outcome = running.run_experiment(
        file,
        out=out,
        only=only,
        fresh=fresh,
        dry_run=dry_run,
        shapes=shape or (),
        again_share=again_share,
        cluster=find_place(executor, address),
        against=against,
        retry_failures=retry_failures,
    )
    if outcome is not None and outcome.failed:
        raise typer.Exit(SOME_FAILED)


@app.command()
def selftest(
    seconds: Annotated[float, typer.Option(min=1.0, help="Roughly how long to measure.")] = 20.0,
    as_json: AsJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Each metric's bias.")] = False,
) -> None:
    """Measure a backend whose timing is known: is the harness's own bias small? Exit 1: no."""
    from harness.cli.selftest import run_selftest, verdict
    from harness.measure.machine.others import OthersWatch

    watch = OthersWatch()
    found = run_selftest(seconds)
    if as_json:
        print_json_lines([row.to_json() for row in found])
    else:
        from harness.cli.display import print_bias

        doubted = [row for row in found if not row.ok]
        if verbose or doubted:
            print_bias([row.to_json() for row in (found if verbose else doubted)])
        print(verdict(found, watch.share()))
    if not all(row.ok for row in found):
        raise typer.Exit(GATE_FAILED)


@app.command()
def doctor(
    bandwidth: Annotated[
        bool, typer.Option(help="Measure the machine's ceilings, and keep them (20 s).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what this machine can run, and why not the rest."""
    from harness.cli import doctor as checks

    findings = checks.examine() + (checks.measure_ceilings() if bandwidth else [])
    if as_json:
        print_json_lines([finding.to_json() for finding in findings])
    else:
        from harness.cli.display import print_findings

        print_findings(findings)


@app.command("list")
def list_what(
    what: Annotated[str, typer.Argument(metavar="backends|workloads|models")],
    name: Annotated[str | None, typer.Argument(help="Of one of them alone.")] = None,
    as_json: AsJson = False,
) -> None:
    """List backends with their options, workloads or models."""
    from backends.checkpoints import catalogue
    from harness.cli import wiring
    from workloads import entries

    catalogues = {
        "backends": wiring.backend_catalogue,
        "workloads": entries.catalogue,
        "models": catalogue.catalogue,
    }
    if what not in catalogues:
        raise UserError(f"list: unknown list '{what}'; {nearest(what, catalogues)}")
    rows = [row for row in catalogues[what]() if name in (None, row["name"])]
    if not rows:
        known = [row["name"] for row in catalogues[what]()]
        raise UserError(f"list {what}: none is called '{name}'; {nearest(str(name), known)}")
    if as_json:
        print_json_lines(rows)
    else:
        from harness.cli.display import print_catalogue

        print_catalogue(what, rows)


arrange(app)


def main() -> None:
    """Entry point of the console script: errors become one line and an exit code."""
    terminal.open_streams()
    terminal.stop_with_terminal()
    number_by_bus()
    sys.argv[1:] = [_at_home(argument) for argument in sys.argv[1:]]
    try:
        code = app(standalone_mode=False) or 0
        sys.stdout.flush()
    except SystemExit as stop:
        # typer and rich end with 1 when a pipe is closed, which here means that a gate failed
        code = READER_GONE if stop.code == 1 else stop.code
    except UserError as error:
        _fail(str(error), BAD_INPUT)
    except (typer.Abort, KeyboardInterrupt) as stop:
        # typer takes every EOFError for a Ctrl-D; that of a question that it asks has no cause
        if isinstance(stop.__cause__, EOFError):
            _fail_of_own(stop.__cause__)
        _stop()
    except typer.exceptions.TyperException as error:
        message = getattr(error, "format_message", error.__str__)()
        if not message:  # no command at all: the help has been printed
            sys.exit(BAD_INPUT)
        _fail(f"{message.replace(chr(10), ' ')}{_help_of(error)}", BAD_INPUT)
    except BrokenPipeError:
        terminal.drop_output()
        sys.exit(READER_GONE)
    except OSError as error:
        terminal.drop_output()
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}", BAD_INPUT)
    except Exception as error:
        _fail_of_own(error)
    if code == INTERRUPTED:  # typer catches the interrupt and gives back its code
        _stop()
    sys.exit(code)


def _at_home(argument: str) -> str:
    """``--out=~/x`` as a shell gives ``--out ~/x``: behind the sign of equality it leaves it be."""
    option, equals, value = argument.partition("=")
    if not option.startswith("--") or not (value == "~" or value.startswith("~/")):
        return argument
    return f"{option}{equals}{Path(value).expanduser()}"


def _help_of(error: Exception) -> str:
    """Where to read on, for an argument or an option that is missing."""
    context, names = getattr(error, "ctx", None), list[str]()
    said: str | None = getattr(error, "message", None)
    if context is None or getattr(error, "param", None) is None or said:
        return ""
    while context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return f" See 'decodebench {' '.join(names)} --help'."


def _stop() -> None:
    _fail(STOPPED, TERMINATED if terminal.was_asked_to_end() else INTERRUPTED)


def _fail_of_own(error: BaseException) -> None:
    traceback.print_exception(error)
    _fail("an error of decodebench itself, as above; please report it", OWN_ERROR)


def _fail(message: str, code: int) -> None:
    if len(message) > LONGEST_MESSAGE:  # what is quoted from a file may be as long as the file
        message = f"{message[:LONGEST_MESSAGE]} ... ({len(message):,} characters)"
    printable = "".join(c if c.isprintable() or c.isspace() else ascii(c)[1:-1] for c in message)
    with contextlib.suppress(OSError):
        print(f"decodebench: {' '.join(printable.split())}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
