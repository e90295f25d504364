"""The command ``init``: a commented experiment to begin with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from harness.core.errors import UserError, as_argument

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
            try:
                stream.write(text)
                stream.flush()
            except BaseException:  # half of it would be refused as what is there already
                file.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise UserError(f"init: {file}: it is there already; name another file") from None
    except OSError as error:
        raise UserError(f"init: {file}: cannot be written: {error.strerror or error}") from None
    print(f"wrote {file}; next: decodebench run {as_argument(file)}")


def commented(file: Path) -> str:
    """The text of the experiment, named after its file."""
    from harness.experiment.config import MAX_NAME
    from harness.experiment.strict_yaml import yaml_text

    name = re.sub(r"[^\w.-]+", "-", file.stem).strip("-.")[:MAX_NAME] or "mine"
    said = {
        "name: NAME": yaml_text({"name": name}).strip(),
        "NAME": name,
        # in a comment, which a line break would end
        "FILE": as_argument(file) if str(file).isprintable() else "FILE",
    }
    words = re.compile("|".join(map(re.escape, said)))
    return words.sub(lambda word: said[word[0]], TEMPLATE.read_text(encoding="utf-8"))
