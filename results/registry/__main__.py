"""`python -m results.registry` prints the tables of docs/metrics.md; with the file's name it
writes them into it."""

from __future__ import annotations

import sys
from pathlib import Path

from results.registry.tables import rewritten, tables


def main(arguments: list[str]) -> None:
    """Print the tables, or bring those of the named file up to date."""
    for name in arguments:
        file = Path(name)
        file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")
    if not arguments:
        for name, table in tables():
            print(f"{name}\n\n{table}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
