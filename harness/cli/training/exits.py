"""The command line's `train heads` and `train classifier`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.training.common import (
    Longest,
    Minutes,
    Patience,
    Revision,
    WorkloadOption,
    workload_options,
)


def train_heads(
    model: Annotated[str, typer.Option(help="Bundled name, hub id or folder.")],
    workload: Annotated[str, typer.Option(help="Whose train split to learn on: W or W,W2.")],
    out: Annotated[Path, typer.Option(help="Folder for the heads and the state to resume from.")],
    layers: Annotated[str | None, typer.Option(help="2,4,6 or all; quarters by default.")] = None,
    kind: Annotated[str, typer.Option(help="lightweight or full.")] = "lightweight",
    source: Annotated[str, typer.Option(help="bundled, hub, or a file or folder.")] = "bundled",
    rows: Annotated[int | None, typer.Option(help="Of each workload; 1000 by default.")] = None,
    workload_option: WorkloadOption = None,
    epochs: Annotated[int, typer.Option(help="At the most; the cosine's length.")] = 100,
    lr: Annotated[float, typer.Option(help="Adam's rate.")] = 5e-3,
    batch: Annotated[int, typer.Option(help="Answers a step.")] = 128,
    patience: Patience = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of rows and their order.")] = 0,
    revision: Revision = None,
    max_new_tokens: Longest = None,
    minutes: Minutes = None,
) -> None:
    """Train exit heads for adadecode on the model's own greedy answers; resumes if interrupted."""
    from backends.training.exits import display as exit_display
    from backends.training.heads import display as heads_display
    from backends.training.heads import train as heads

    names = [name.strip() for name in workload.split(",")]
    report = heads.train_heads(
        model,
        names,
        out,
        layers=layers,
        minutes=minutes,
        progress=exit_display.printer("KL per layer"),
        kind=kind,
        source=source,
        rows=rows,
        workload_options=workload_options(workload_option, names),
        epochs=epochs,
        rate=lr,
        batch=batch,
        patience=patience,
        seed=seed,
        max_new_tokens=max_new_tokens,
        revision=revision,
    )
    print("\n".join(heads_display.report_lines(report)))


def train_classifier(
    model: Annotated[str, typer.Option(help="Bundled name, hub id or folder.")],
    workload: Annotated[str, typer.Option(help="Whose train split to learn on: W or W,W2.")],
    out: Annotated[Path, typer.Option(help="Folder for the classifier and its state.")],
    layers: Annotated[
        str | None, typer.Option(help="To learn after, 16,24; all but the last by default.")
    ] = None,
    source: Annotated[str, typer.Option(help="bundled, hub, or a file or folder.")] = "bundled",
    rows: Annotated[int | None, typer.Option(help="Of each workload; 1000 by default.")] = None,
    workload_option: WorkloadOption = None,
    epochs: Annotated[int, typer.Option(help="At the most; the cosine's length.")] = 30,
    lr: Annotated[float, typer.Option(help="Adam's rate.")] = 1e-2,
    batch: Annotated[int, typer.Option(help="Answers a step.")] = 64,
    patience: Patience = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of rows and their order.")] = 0,
    revision: Revision = None,
    max_new_tokens: Longest = None,
    minutes: Minutes = None,
) -> None:
    """Train the exit classifier for vllm-early-exit, one layer d to 2; resumes if interrupted."""
    from backends.training.classifier import display as classifier_display
    from backends.training.classifier import train as classifier
    from backends.training.exits import display as exit_display

    names = [name.strip() for name in workload.split(",")]
    report = classifier.train_classifier(
        model,
        names,
        out,
        layers=layers,
        minutes=minutes,
        progress=exit_display.printer("loss"),
        source=source,
        rows=rows,
        workload_options=workload_options(workload_option, names),
        epochs=epochs,
        rate=lr,
        batch=batch,
        patience=patience,
        seed=seed,
        max_new_tokens=max_new_tokens,
        revision=revision,
    )
    print("\n".join(classifier_display.report_lines(report)))
