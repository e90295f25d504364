"""What `run` and `quick` are asked alike about trials that are stored."""

from __future__ import annotations

from typing import Annotated

import typer

Fresh = Annotated[bool, typer.Option(help="Forget the stored trials of this folder.")]
RetryFailures = Annotated[
    bool, typer.Option("--retry-failures", help="Run stored trials in which requests failed again.")
]
AgainShare = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=1.0,
        help="Share of the run's time that may go into repeating disturbed trials; 0: never.",
    ),
]
