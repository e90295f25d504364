"""The command line's `calibrate`: what the user wrote becomes settings, and progress is shown."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.training.common import (
    Revision,
    Source,
    WorkloadOption,
    named_value,
    workload_options,
)
from harness.core.errors import UserError, nearest

if TYPE_CHECKING:
    from backends.early_exit.calibration.calibrate import CalibrationProgress
    from backends.early_exit.calibration.files import Calibration, Point

EVERY_S = 2.0
RISKS = {"score": "score", "exact": "consistency", "rouge_l_to_full": "rouge_l"}
"""As the files name them."""
TARGETS = {"score": 0.95, "exact": 0.75, "rouge_l_to_full": 0.75}
MaxNewTokens = Annotated[
    int | None, typer.Option(help="Of an answer; each workload's, as in experiments.")
]
Without = Annotated[
    list[str] | None,
    typer.Option(help="A calibration, or its answers, whose prompts are left out; repeatable."),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(help="NAME=VALUE of the backend, as max_model_len=4096; repeatable."),
]
HEADER = "threshold  quality  at least  p-value   layers skipped  mean exit layer"


def calibrate(
    model: Annotated[str, typer.Option(help="Bundled name, hub id or folder.")],
    measure: Annotated[str, typer.Option(help="softmax, state or classifier.")],
    workload: Annotated[str, typer.Option(help="Whose train split to calibrate on: W or W,W2.")],
    out: Annotated[Path, typer.Option(help="The calibration file (JSON).")],
    risk: Annotated[
        str,
        typer.Option(
            help="What early exit may lose: task score (score), the same answer (exact), or "
            "likeness (rouge_l_to_full)."
        ),
    ] = "score",
    per: Annotated[
        str, typer.Option(help="worst: held for each workload; mixture: for all together.")
    ] = "worst",
    target: Annotated[
        float | None,
        typer.Option(
            help="What is to be held of it on average, 1 being all; 0.95 by default, 0.75 of exact "
            "and rouge_l_to_full."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Probability with which the target is held.")
    ] = 0.95,
    rows: Annotated[int | None, typer.Option(help="Of each workload; 100 by default.")] = None,
    revision: Revision = None,
    source: Source = "bundled",
    max_new_tokens: MaxNewTokens = None,
    workload_option: WorkloadOption = None,
    without: Without = None,
    batch: Annotated[int, typer.Option(help="Prompts decoded together.")] = 1,
    layers: Annotated[
        list[str] | None,
        typer.Option(
            help="Checked: 2,4 or all; the backend's default if not given. Given several times the "
            "set is chosen whose layers and checks cost least."
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="That decodes: vllm-early-exit or own-early-exit.")
    ] = "vllm-early-exit",
    option: EngineOption = None,
    decay: Annotated[str, typer.Option(help="none, calm or t5x.")] = "none",
    decay_tau: Annotated[float | None, typer.Option(help="How fast; 4 by default.")] = None,
    heads: Annotated[str, typer.Option(help="original, auto, a name or a folder.")] = "original",
    classifier: Annotated[str, typer.Option(help="auto or a folder.")] = "auto",
    grid: Annotated[
        str | None, typer.Option(help="Thresholds to test: 0.5,0.6; the measure's if not given.")
    ] = None,
    whole_curve: Annotated[
        bool, typer.Option("--whole-curve", help="Measure lower thresholds than tested, too.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="auto, float32, float16 or bfloat16.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="Of the rows; 10000 by default.")] = None,
) -> None:
    """Choose early-exit thresholds that hold a quality with a stated confidence; resumable."""
    from backends.early_exit.calibration import calibrate as driver
    from backends.early_exit.calibration import settings as defaults
    from backends.early_exit.policy import TAU

    names = tuple(name.strip() for name in workload.split(","))
    sets = [_layers(text, model, revision) for text in layers or ()]
    settings = defaults.Settings(
        model=model,
        measure=measure,
        workloads=names,
        metric=_metric(risk),
        target=TARGETS[risk] if target is None else target,
        per=per,
        backend=backend,
        confidence=confidence,
        rows=defaults.ROWS if rows is None else rows,
        revision=revision,
        source=source,
        seed=defaults.SEED if seed is None else seed,
        max_new_tokens=max_new_tokens,
        workload_options=workload_options(workload_option, names),
        without=tuple(without or ()),
        engine=dict(named_value("--option", text) for text in option or ()),
        batch=batch,
        layers=sets[0] if sets else None,
        decay=decay,
        tau=TAU if decay_tau is None else decay_tau,
        heads=heads,
        classifier=classifier,
        grid=_grid(grid),
        dtype=chosen_dtype(dtype),
        whole_curve=whole_curve,
    )
    warnings.simplefilter("ignore", FutureWarning)  # vLLM's own, of torch
    candidates = sets if len(sets) > 1 else ()
    found = driver.calibrate(settings, out, candidates, progress=_printer(), warn=_warn)
    print("\n".join(_conclusion(found, out)))


def _metric(risk: str) -> str:
    if risk not in RISKS:
        raise UserError(f"--risk: unknown risk '{risk}'; {nearest(risk, RISKS)}")
    return RISKS[risk]


def _layers(text: str, model: str, revision: str | None) -> tuple[int, ...]:
    from backends.checkpoints import models
    from backends.early_exit.sizes import named_sizes
    from backends.training.heads.recipe import parse_layers
    from harness.core.nouns import Model

    return parse_layers(text, named_sizes(models.resolve(Model(model, revision))).layers)


def _grid(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--grid: expected numbers such as 0.9,0.8,0.7, got '{text}'") from None


def chosen_dtype(name: str) -> str:
    """The dtype that `--dtype` names. Raises `UserError`."""
    from harness.cli.wiring import preferred_dtype
    from harness.experiment.models import DTYPES

    if name not in DTYPES:
        raise UserError(f"--dtype: unknown dtype '{name}'; {nearest(name, DTYPES)}")
    return preferred_dtype() if name == "auto" else name


def _printer() -> Callable[[CalibrationProgress], None]:
    """A line every few seconds, and one for each threshold that is over."""
    last: list[float] = [time.monotonic()]
    begun: list[str] = []

    def show(progress: CalibrationProgress) -> None:
        if progress.point is not None:
            checked = ", ".join(map(str, progress.layers or ())) or "by default"
            if checked not in begun:
                begun.append(checked)
                print(f"layers {checked}:\n{HEADER}")
            print(_row(progress.point), flush=True)
        elif time.monotonic() - last[0] >= EVERY_S:
            print(_line(progress), flush=True)
        else:
            return
        last[0] = time.monotonic()

    return show


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr, flush=True)


def _line(progress: CalibrationProgress) -> str:
    at = "full model" if progress.threshold is None else f"threshold {progress.threshold:g}"
    text = f"{at}: {progress.done} of {progress.total}"
    if progress.done > progress.found:
        pace = progress.seconds / (progress.done - progress.found)
        text += f"  {(progress.total - progress.done) * pace:.0f} s left at this threshold"
    return text


def _row(point: Point) -> str:
    return (
        f"{point.threshold:>9g}  {point.quality:>7.3f}  {point.quality_at_least:>8.3f}  "
        f"{point.p_value:>7.2g}   {point.early_exit_rate:>14.1%}  {point.mean_exit_layer:>15.2f}"
        + ("" if point.tested else "   (not tested)")
    )


def _told(workload: str, full: Mapping[str, float]) -> str:
    line = (
        f"{workload}: the full model's answers have at most {full['max_new_tokens']} tokens, which "
        f"cut {full['cut']:.1%}"
    )
    return f"{line}; their mean score is {full['score']:.3f}" if "score" in full else line


def _tried(candidate: Mapping[str, Any]) -> str:
    """What a set of layers came to."""
    name = f"layers {', '.join(map(str, candidate['layers']))}:"
    if candidate["threshold"] is None:
        return f"{name} no threshold holds it"
    return (
        f"{name} threshold {candidate['threshold']:g}, {candidate['mean_exit_layer']:.2f} layers a "
        f"token, as dear as {candidate['cost_layers']:.2f} with its checks"
    )


def _conclusion(found: Calibration, out: Path) -> list[str]:
    return [
        *(_told(name, own) for name, own in found.workloads.items()),
        found.statement,
        f"Observed: {1 - found.risk:.3f}; {found.test}, p = {found.p_value:.2g}. Layers checked: "
        f"{', '.join(map(str, found.layers))}.",
        *map(_tried, found.candidates),
        f"calibration: {out}",
    ]
