"""Options that several commands have that learn or calibrate on a model's own answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from harness.core.errors import UserError

TrainedModel = Annotated[str, typer.Option(help="Bundled name, hub id or folder.")]
LearntWorkloads = Annotated[str, typer.Option(help="Whose train split to learn on: W or W,W2.")]
Source = Annotated[str, typer.Option(help="bundled, hub, or a file or folder.")]
Rows = Annotated[int | None, typer.Option(help="Of each workload; 1000 by default.")]
Epochs = Annotated[int, typer.Option(help="At the most; the cosine's length.")]
Rate = Annotated[float, typer.Option(help="Adam's rate.")]
Batch = Annotated[int, typer.Option(help="Answers a step.")]
MOST_SEED = 2**63 - 1
"""As an experiment's."""
OrderSeed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of rows and their order.")]
Minutes = Annotated[float | None, typer.Option(min=0.1, help="Stop after this time, resumable.")]
Patience = Annotated[
    int, typer.Option(help="Epochs without a better held-out loss, after which it ends.")
]
Revision = Annotated[str | None, typer.Option(help="Of a hub id: a commit, branch or tag.")]
Longest = Annotated[
    int | None,
    typer.Option(min=2, help="Tokens of an answer at the most; by default as the data set's own."),
]
WorkloadOption = Annotated[
    list[str] | None,
    typer.Option(
        help="KEY=VALUE as in experiments, as max_article_tokens=512; xsum.KEY=VALUE of one "
        "workload alone; repeatable."
    ),
]


def named_value(option: str, text: str) -> tuple[str, Any]:
    """The name and the value of NAME=VALUE, read as an experiment file's is. Raises `UserError`,
    which begins with `option`."""
    import yaml

    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UserError(f"{option}: expected NAME=VALUE, got '{text}'")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise UserError(f"{option}: {name}: not readable as YAML: '{value}'") from None


def workload_options(
    texts: Sequence[str] | None, workloads: Sequence[str]
) -> dict[str, dict[str, Any]] | None:
    """By workload, what `--workload-option` gives it: a key without a workload's name goes to all.
    None where nothing is given. Raises `UserError`."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts or ():
        name, value = named_value("--workload-option", text)
        workload, dot, key = name.partition(".")
        for own in [workload] if dot else workloads:
            found.setdefault(own, {})[key if dot else name] = value
    return found or None
