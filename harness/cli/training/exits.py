"""The command line's `train heads` and `train classifier`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.training.common import (
    Batch,
    Epochs,
    LearntWorkloads,
    Longest,
    Minutes,
    OrderSeed,
    Patience,
    Rate,
    Revision,
    Rows,
    Source,
    TrainedModel,
    WorkloadOption,
    workload_options,
)


def train_heads(
    model: TrainedModel,
    workload: LearntWorkloads,
    out: Annotated[Path, typer.Option(help="Folder for the heads and the state to resume from.")],
    layers: Annotated[str | None, typer.Option(help="2,4,6 or all; quarters by default.")] = None,
    kind: Annotated[str, typer.Option(help="lightweight or full.")] = "lightweight",
    source: Source = "bundled",
    rows: Rows = None,
    workload_option: WorkloadOption = None,
    epochs: Epochs = 100,
    lr: Rate = 5e-3,
    batch: Batch = 128,
    patience: Patience = 10,
    seed: OrderSeed = 0,
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
    model: TrainedModel,
    workload: LearntWorkloads,
    out: Annotated[Path, typer.Option(help="Folder for the classifier and its state.")],
    layers: Annotated[
        str | None, typer.Option(help="To learn after, 16,24; all but the last by default.")
    ] = None,
    source: Source = "bundled",
    rows: Rows = None,
    workload_option: WorkloadOption = None,
    epochs: Epochs = 30,
    lr: Rate = 1e-2,
    batch: Batch = 64,
    patience: Patience = 10,
    seed: OrderSeed = 0,
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
