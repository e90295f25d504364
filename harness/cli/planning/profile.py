"""The command `profile`: what `plan` and `simulate` have to know of a model on this machine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.planning.told import log_decisions
from harness.core.errors import UserError
from harness.core.files import check_writable, write_atomic
from harness.core.nouns import Model

MOST_BATCH = 256
MOST_THREADS = 1024
"""As many as a backend's option takes."""
TIMES = ("layer_ms", "ramp_ms", "fill_ms", "batch_ms", "stage_ms", "enter_ms")
BY_KIND = (*TIMES, "time_share", "ramp_share")


def profile(
    log: Annotated[
        Path | None,
        typer.Option(help="Logged ramps (JSON): who leaves where. A classifier needs none."),
    ] = None,
    model: Annotated[str, typer.Option(help="Bundled name, folder or hub id.")] = "demo",
    shape: Annotated[
        str | None, typer.Option(help="Random weights of this shape in the model's place.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    batches: Annotated[
        str, typer.Option(help="Batch sizes to measure, ascending; plans use the last.")
    ] = "1,2,4,8,16",
    device: Annotated[str, typer.Option(help="What to call this kind of device.")] = "here",
    threads: Annotated[int, typer.Option(help="CPU threads of a stage.")] = 1,
    entropy: Annotated[
        float, typer.Option(help="Of a classifier without --log: who leaves, in nats.")
    ] = 0.2,
    out: Annotated[Path | None, typer.Option(help="Write it here instead of printing it.")] = None,
) -> None:
    """Measure a model's layers here: a profile for plan and simulate (JSON)."""
    sizes = _ascending("--batches", batches, MOST_BATCH)
    if dtype not in ("float32", "bfloat16"):
        raise UserError(f"--dtype: expected float32 or bfloat16, found '{dtype}'")
    if not 1 <= threads <= MOST_THREADS:
        raise UserError(f"--threads: expected 1 to {MOST_THREADS}, found {threads}")
    if not 0 < entropy < math.inf:
        raise UserError(f"--entropy: expected a number above 0, found {entropy:g}")
    if not device.strip():
        raise UserError("--device: expected a name, found none")
    if out is not None:
        check_writable(out, "--out")
    chosen = Model(shape or model, dtype=dtype, shape=shape is not None)
    told = _told(chosen, sizes, log, device, threads, entropy)
    text = json.dumps(told, allow_nan=False)
    if out is None:
        print(text)
        return
    with _written_to(out):
        write_atomic(out, text.encode() + b"\n")


@contextmanager
def _written_to(out: Path) -> Iterator[None]:
    """Raises `UserError` where `out` cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written: {error.strerror}") from None


def _told(
    chosen: Model,
    sizes: list[int],
    log: Path | None,
    device: str,
    threads: int,
    entropy: float,
) -> dict[str, Any]:
    """The profile, its times by kind of device."""
    from backends.checkpoints import models
    from harness.cli.asked.memory import refuse_too_large
    from harness.cli.planning.label_profile import is_classifier, measured_labels

    if chosen.shape:
        refuse_too_large(chosen)
    directory = models.resolve(chosen)
    if is_classifier(directory):
        found = measured_labels(chosen, directory, sizes, log, entropy, threads, _turn)
    elif log is None:
        raise UserError("--log: missing; only a classifier's ramps are asked here")
    else:
        found = _measured(chosen, directory, sizes, log, threads)
    return {key: {device: value} if key in BY_KIND else value for key, value in found.items()}


def _measured(
    chosen: Model, directory: Path, sizes: list[int], log: Path, threads: int
) -> dict[str, Any]:
    """A decoder on our engine."""
    from backends.engine.model.heads import ExitHead
    from backends.own.backend import Loaded, check_fit
    from backends.tetris import measured
    from harness.cli.planning.served_text import outside_ms

    options: dict[str, Any] = {
        "max_model_len": None,
        "replay": None,
        "threads": threads,
        "kernels": "auto",
        "max_num_seqs": sizes[-1],
    }
    shape = check_fit("profile", directory, options)
    # a GPU's cache is reserved whole
    options["max_model_len"] = min(measured.POSITIONS, shape.positions)
    logged, after = log_decisions(log, shape.layers, None)
    if not after:
        raise UserError(f"{log}: expected a ramp before the last of {shape.layers} layers")
    survival = logged.alive().tolist()
    loaded = Loaded("profile", directory, chosen, options)
    executor = loaded.executor([ExitHead(one, loaded.weights.head) for one in after])
    try:
        found = measured.costs(executor, sizes, _tell)
    finally:
        executor.close()
    del executor, loaded  # the weights are loaded again
    typer.echo("profile: what passes cost outside of layers", err=True)
    found |= outside_ms(chosen, directory, sizes, threads, after[len(after) // 2])
    size = sizes[-1] * shape.width * (2 if chosen.dtype == "bfloat16" else 4)
    about = {"layers": shape.layers, "batch": sizes[-1], "survival": survival, "ramps": list(after)}
    return {**about, **found, "transfer_ms": measured.transfer_ms(size)}


def _tell(batch: int) -> None:
    typer.echo(f"profile: batch {batch}", err=True)


def _turn(number: int) -> None:
    typer.echo(f"profile: turn {number}", err=True)


def _ascending(option: str, text: str, most: int) -> list[int]:
    try:
        found = [int(one) for one in text.split(",")]
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > most or any(a >= b for a, b in pairwise(found)):
        raise UserError(f"{option}: expected ascending numbers of 1 to {most}, found '{text}'")
    return found
