"""The command ``schema``, and the page docs/experiment.md that is made of the same schema."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def experiment_schema() -> dict[str, Any]:
    """The JSON schema of an experiment file, with the backends and workloads that there are."""
    from harness.cli.wiring import backend_catalogue
    from harness.experiment.described import schema
    from workloads.entries import entries

    return schema.experiment_schema(backend_catalogue(), entries())


def experiment_page() -> str:
    """The text of docs/experiment.md."""
    from harness.experiment.described.page import page
    from workloads.entries import entries

    measures = {name: own["difficulty"] for name, own in entries().items()}
    return page(experiment_schema(), measures)


def schema(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As docs/experiment.md has it.")
    ] = False,
) -> None:
    """Print the JSON schema of an experiment file, for editors; docs/experiment.md explains it."""
    print(experiment_page() if markdown else json.dumps(experiment_schema(), indent=1))
