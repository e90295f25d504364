"""The command ``init``: a commented experiment to begin with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from harness.core.errors import UserError

TEMPLATE = Path(__file__).with_name("commented.yaml")
SUFFIXES = (".yaml", ".yml")


def init(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="The file to write.", show_default=True)
    ] = Path("experiment.yaml"),
) -> None:
    """Write a commented experiment that runs as it is."""
    if file.suffix not in SUFFIXES:
        raise UserError(f"init: {file}: expected a name that ends in {' or '.join(SUFFIXES)}")
    text = commented(file)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise UserError(f"init: {file}: it is there already; name another file") from None
    except OSError as error:
        raise UserError(f"init: {file}: cannot be written: {error.strerror or error}") from None
    print(f"wrote {file}; next: decodebench run {file}")


def commented(file: Path) -> str:
    """The text of the experiment, named after its file."""
    name = re.sub(r"[^\w.-]+", "-", file.stem).strip("-.") or "mine"
    name = f'"{name}"' if name.isdecimal() else name  # a number is no name
    text = TEMPLATE.read_text(encoding="utf-8")
    return text.replace("NAME", name).replace("FILE", str(file))
