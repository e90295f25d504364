"""The command line's `train` commands. Each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.training import exits
from harness.cli.training.common import (
    MOST_SEED,
    Batch,
    Epochs,
    LearntWorkloads,
    Longest,
    Minutes,
    OrderSeed,
    Rate,
    Revision,
    Rows,
    Source,
    TrainedModel,
    WorkloadOption,
    workload_options,
)

train_app = typer.Typer(
    help="Train exit heads, the exit classifier, draft heads, the demo model or classifiers with "
    "ramps; find sublayers to skip.",
    no_args_is_help=True,
)

Out = Annotated[Path, typer.Option(help="Folder for the model and the state to resume from.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps; the recipe's by default.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU cores to use; all by default.")]


@train_app.command("demo")
def train_demo(
    out: Out, steps: Steps = None, minutes: Minutes = None, threads: Threads = None
) -> None:
    """Train the demo model on the bundled train rows; the same command goes on where it stopped."""
    from backends.training.small_models import demo, recipe

    chosen = recipe.Recipe() if steps is None else recipe.Recipe(steps=steps)
    _report_training(
        demo.train_demo(out, recipe=chosen, minutes=minutes, threads=threads, progress=_progress)
    )


@train_app.command("draft")
def train_draft(
    target: Annotated[str, typer.Option(help="A model of 'train demo': bundled name or folder.")],
    out: Out,
    minutes: Minutes = None,
    threads: Threads = None,
) -> None:
    """Train the demo model's draft from the target's first layers, by distillation."""
    from backends.training.small_models import draft

    _report_training(
        draft.train_draft(target, out, minutes=minutes, threads=threads, progress=_progress)
    )


train_app.command("heads")(exits.train_heads)
train_app.command("classifier")(exits.train_classifier)


@train_app.command("sublayers")
def train_sublayers(
    model: TrainedModel,
    workload: Annotated[str, typer.Option(help="Whose train split to search on: W or W,W2.")],
    out: Annotated[Path, typer.Option(help="Folder for the set, written at the end.")],
    source: Source = "bundled",
    rows: Annotated[int, typer.Option(help="Of each workload.")] = 4,
    workload_option: WorkloadOption = None,
    iterations: Annotated[int, typer.Option(help="Sets to try.")] = 200,
    drafts: Annotated[int, typer.Option(help="Most of a verification.")] = 12,
    threshold: Annotated[
        float, typer.Option(help="No draft follows one that is less probable.")
    ] = 0.6,
    dtype: Annotated[str, typer.Option(help="auto, float32, float16 or bfloat16.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of rows and search.")] = 0,
    revision: Revision = None,
) -> None:
    """Find the sublayers that speculative's self_speculation leaves out when it drafts; begins anew
    when it is interrupted."""
    from backends.training.sublayers import display as sublayer_display
    from backends.training.sublayers import search
    from harness.cli.calibrate import chosen_dtype

    names = [name.strip() for name in workload.split(",")]
    found = search.find_sublayers(
        model,
        names,
        out,
        progress=sublayer_display.printer(),
        source=source,
        rows=rows,
        workload_options=workload_options(workload_option, names),
        iterations=iterations,
        drafts=drafts,
        threshold=threshold,
        dtype=chosen_dtype(dtype),
        seed=seed,
        revision=revision,
    )
    print("\n".join(sublayer_display.report_lines(found)))


@train_app.command("eagle")
def train_eagle(
    model: TrainedModel,
    workload: LearntWorkloads,
    out: Annotated[Path, typer.Option(help="Folder for the head and the state to resume from.")],
    drafts: Annotated[int, typer.Option(help="Drafts in a row to train for.")] = 3,
    source: Source = "bundled",
    rows: Rows = None,
    workload_option: WorkloadOption = None,
    epochs: Epochs = 12,
    lr: Rate = 2e-3,
    batch: Batch = 32,
    decay: Annotated[float, typer.Option(help="Weight of a draft against the one before.")] = 0.8,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Of rows, their order and the weights.")
    ] = 0,
    revision: Revision = None,
    max_new_tokens: Longest = None,
    minutes: Minutes = None,
) -> None:
    """Train an EAGLE-3 head for speculative and vllm-speculative on a model's answers; resumes."""
    _train_drafts(
        "eagle3",
        model,
        workload,
        out,
        minutes=minutes,
        drafts=drafts,
        source=source,
        rows=rows,
        workload_option=workload_option,
        epochs=epochs,
        rate=lr,
        batch=batch,
        decay=decay,
        seed=seed,
        max_new_tokens=max_new_tokens,
        revision=revision,
    )


@train_app.command("medusa")
def train_medusa(
    model: TrainedModel,
    workload: LearntWorkloads,
    out: Annotated[Path, typer.Option(help="Folder for the heads and the state to resume from.")],
    drafts: Annotated[int, typer.Option(help="Heads, one for each draft.")] = 3,
    source: Source = "bundled",
    rows: Rows = None,
    workload_option: WorkloadOption = None,
    epochs: Epochs = 12,
    lr: Rate = 2e-3,
    batch: Batch = 32,
    seed: OrderSeed = 0,
    revision: Revision = None,
    max_new_tokens: Longest = None,
    minutes: Minutes = None,
) -> None:
    """Train Medusa heads for vllm-speculative on the model's own answers; resumes."""
    _train_drafts(
        "medusa",
        model,
        workload,
        out,
        minutes=minutes,
        drafts=drafts,
        source=source,
        rows=rows,
        workload_option=workload_option,
        epochs=epochs,
        rate=lr,
        batch=batch,
        seed=seed,
        max_new_tokens=max_new_tokens,
        revision=revision,
    )


Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of rows and weights.")]


@train_app.command("sentiment")
def train_sentiment(
    out: Annotated[Path, typer.Option(help="Folder for the classifier.")],
    steps: Steps = None,
    threads: Threads = None,
    seed: Seed = 0,
) -> None:
    """Train the BERT-style classifier of opinions, then its ramps; minutes on one core."""
    _train_labels("sentiment", out, steps, threads, seed)


@train_app.command("shapes")
def train_shapes(
    out: Annotated[Path, typer.Option(help="Folder for the classifier.")],
    steps: Steps = None,
    threads: Threads = None,
    seed: Seed = 0,
) -> None:
    """Train the residual classifier of drawings with its branches; minutes on one core."""
    _train_labels("shapes", out, steps, threads, seed)


def _train_labels(
    workload: str, out: Path, steps: int | None, threads: int | None, seed: int
) -> None:
    from backends.training.labels import display as labels_display
    from backends.training.labels import train as labels

    def tell(line: str) -> None:
        print(line, flush=True)

    report = labels.train(workload, out, tell, steps=steps, threads=threads, seed=seed)
    print("\n".join(labels_display.report_lines(report)))


def _train_drafts(
    kind: str,
    model: str,
    workload: str,
    out: Path,
    workload_option: list[str] | None,
    **choices: Any,
) -> None:
    from backends.training.drafts import display as drafts_display
    from backends.training.drafts import train as drafts
    from backends.training.exits import display as exit_display

    names = [name.strip() for name in workload.split(",")]
    shown = exit_display.printer("KL")
    choices["workload_options"] = workload_options(workload_option, names)
    report = drafts.train_drafts(kind, model, names, out, progress=shown, **choices)
    print("\n".join(drafts_display.report_lines(report)))


def _progress(report: Any) -> None:
    from backends.training.small_models.run import REPORT_EVERY

    losses = " ".join(f"{loss:.3f}" for loss in report.layer_losses)
    left_s = (report.steps - report.step) * report.seconds / REPORT_EVERY
    print(
        f"step {report.step} of {report.steps}  loss per layer {losses}  "
        f"{report.tokens_per_s:,.0f} tok/s  {left_s / 60:.0f} min left",
        flush=True,
    )


def _report_training(finished: bool) -> None:
    print("finished" if finished else "stopped; the same command goes on from here")
