"""Options that several `train` commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Minutes = Annotated[float | None, typer.Option(min=0.1, help="Stop after this time, resumable.")]
Longest = Annotated[
    int | None,
    typer.Option(min=2, help="Tokens of an answer at the most; by default as the data set's own."),
]
