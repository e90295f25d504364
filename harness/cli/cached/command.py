"""The command ``cache``: what is kept in the user's cache folder."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from harness.cli.cells.show import AsJson, print_json_lines
from harness.core.errors import UserError
from harness.core.files import size

cache_app = typer.Typer(help="What is kept in the user's cache folder.", no_args_is_help=False)


@cache_app.callback(invoke_without_command=True)
def cache(context: typer.Context, as_json: AsJson = False) -> None:
    """List the generated shapes, compiled kernels and trainings' answers in the cache folder."""
    from backends.checkpoints.cache import kept

    if context.invoked_subcommand is not None:
        return
    rows = [dataclasses.asdict(one) for one in kept()]
    if as_json:
        print_json_lines(rows)
    else:
        from harness.cli.display import print_cache

        print_cache(rows)


@cache_app.command("clear")
def clear_cache(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="As listed; all by default.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove what is kept; it is made anew when it is needed."""
    from backends.checkpoints import cache as keeping

    chosen = keeping.choose(keeping.kept(), name)
    if chosen and not yes:
        what = f"{len(chosen)} in the cache, {size(sum(one.bytes for one in chosen))}"
        if not sys.stdin.isatty():
            raise UserError(f"cache clear: would remove {what}; --yes does so without asking")
        if not typer.confirm(f"remove {what}?"):
            return
    for one in chosen:
        keeping.remove(one)
        print(f"removed {one.name}, {size(one.bytes)}")
