"""What `run` and `quick` are asked alike about trials that are stored."""

from __future__ import annotations

from typing import Annotated

import typer

Fresh = Annotated[bool, typer.Option(help="Forget the stored trials of this folder.")]
RetryFailures = Annotated[
    bool, typer.Option("--retry-failures", help="Trials of which requests failed once more.")
]
AgainShare = Annotated[
    float,
    typer.Option(min=0.0, max=1.0, help="Of the time, for disturbed trials once more; 0: none."),
]
