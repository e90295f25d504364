"""What a calibration says in the end: a statement with its confidence, or what would do instead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from backends.early_exit.calibration.files import Calibration, Point
from backends.early_exit.calibration.learn_then_test import samples_needed
from backends.early_exit.calibration.prompts import CalibrationPrompt
from backends.early_exit.calibration.settings import VLLM, Settings
from harness.core.errors import UserError
from harness.core.files import write_atomic
from workloads import workload_info
from workloads.own.scorers import NONE, SCORERS

QUALITIES = {
    "rouge_l": "the mean ROUGE-L to the full model's answers",
    "consistency": "the share of answers equal to the full model's",
    "score": "1 - the mean task score lost ({}gains on other prompts make up for nothing)",
}


FullAnswers = Mapping[str, Mapping[str, float]]
RowsTold = Mapping[str, Mapping[str, Any]]
WEAK = 2
"""A mean score below so many times what may be lost of it is warned of."""
MANY_CUT = 0.05
"""A share of cut answers that is warned of."""


class NotHeldError(UserError):
    """Not even the highest threshold holds the quality."""


def statement(
    settings: Settings,
    prompts: Mapping[str, int],
    threshold: float,
    earlier: int = 0,
    full: FullAnswers = MappingProxyType({}),
    data: RowsTold = MappingProxyType({}),
) -> str:
    """The guarantee in words, and what it is not corrected for: `earlier` choices. `full`: what
    `AnswerLosses.told` says of the full model's answers. `data`: as `Calibration.data`."""
    counts = ", ".join(f"{count} {name}" for name, count in prompts.items())
    together = "one at a time" if settings.batch == 1 else f"{settings.batch} at a time"
    mixture = "for the mixture of workloads, prompts"
    if len(prompts) == 1 or settings.per == "worst":
        mixture = "for prompts" if len(prompts) == 1 else "for each of the workloads, prompts"
    tried = f", the best of {settings.tries} sets of layers," if settings.tries > 1 else ","
    by = f" by {settings.backend}" if settings.backend != VLLM else ""
    choices = f"{earlier} earlier choice{'s' if earlier > 1 else ''} on these prompts"
    return (
        f"With {_percent(settings)} confidence over the draw of {sum(prompts.values())} "
        f"calibration prompts ({counts}){_rows_from(data)}{_limits(full)}, "
        f"{QUALITIES[settings.metric].format(_scores(full))} is at least "
        f"{settings.target:g} at threshold {threshold:g}{tried} {mixture} drawn like these and "
        f"decoded {together} in {settings.dtype}{by}"
        + (f"; after {choices}, not corrected for." if earlier else ".")
    )


def too_few(settings: Settings, groups: int) -> str | None:
    """Why so many groups cannot show the target even without a fault; None when they can. Where
    each workload has to hold it, the groups with a prompt of a workload count, which come in
    turn."""
    count = len(settings.workloads)
    if settings.per == "worst":
        groups = groups * min(settings.batch, count) // count
    needed = samples_needed(0.0, settings.limit, settings.level, binary=settings.binary)
    if needed is not None and groups >= needed:
        return None
    unit = "prompts" if settings.batch == 1 else f"groups of {settings.batch} prompts"
    unit += " of each workload" * (settings.per == "worst" and len(settings.workloads) > 1)
    can = f"{needed} can (--rows {_rows(settings, needed)})" if needed else "ten million cannot"
    return (
        f"--rows: {groups} {unit} cannot show a quality of {settings.target:.10g} with "
        f"{_percent(settings)} confidence, even without a fault; {can}, or take a lower --target"
    )


def unscored(settings: Settings, groups: Sequence[Sequence[CalibrationPrompt]]) -> str | None:
    """Why answers cannot be scored, where that is asked for; None when they can."""
    if settings.metric != "score":
        return None
    for prompt in (prompt for group in groups for prompt in group):
        info = workload_info(prompt.workload)
        missing = [name for name in info.fields if name not in prompt.data]
        if missing or not (info.metric or SCORERS[prompt.data.get("scorer", NONE)]):
            lacks = f"has no '{missing[0]}'" if missing else "has no task score"
            return (
                f"--risk: workload {prompt.workload}, row {prompt.row} {lacks}, and so no score; "
                "expected exact or rouge_l_to_full"
            )
    return None


def check_full(settings: Settings, prompts: Mapping[str, int], full: FullAnswers) -> list[str]:
    """Warnings of full answers that were cut, and of scores of which little is left to lose.

    Raises:
        UserError: where the full model scores no more than may be lost: any threshold would hold.
    """
    found = [
        f"workload {name}: {told['cut']:.0%} of the full model's answers were cut after "
        f"{told['max_new_tokens']} tokens"
        for name, told in full.items()
        if told["cut"] > MANY_CUT
    ]
    if settings.metric != "score":
        return found
    scores = {f"workload {name}": told["score"] for name, told in full.items()}
    if settings.per == "mixture" and len(scores) > 1:
        total = sum(full[name]["score"] * count for name, count in prompts.items())
        scores = {"the mixture of workloads": total / sum(prompts.values())}
    for where, score in scores.items():
        lost = f"of which --target {settings.target:g} lets {settings.limit:.3g} be lost"
        if score <= settings.limit:
            raise UserError(
                f"--risk: {where}: the full model's mean task score is {score:.3g}, {lost}, so "
                "that every threshold would hold it; expected a higher --target, or exact or "
                "rouge_l_to_full"
            )
        if score < WEAK * settings.limit:
            found.append(f"{where}: the full model's mean task score is {score:.3g}, {lost}")
    return found


def test_name(settings: Settings) -> str:
    """Of the test of each mean loss."""
    names = {
        "exact binomial" if settings.binary_for(name) else "Hoeffding-Bentkus"
        for name in settings.workloads
    }
    if settings.per == "mixture":
        names = {"exact binomial" if settings.binary else "Hoeffding-Bentkus"}
    return " and ".join(sorted(names, reverse=True))


def refusal(settings: Settings, point: Point, groups: int, kept: Path) -> str:
    """Why not even the highest threshold, measured as `point`, is accepted, and what would do.

    Always on other prompts: a target or grid that was chosen by these answers and tested on them
    again would not have the confidence that it states. A fresh seed would give many of the same
    ones where a source is small.
    """
    seen = 1.0 - point.quality
    needed = samples_needed(seen, settings.limit, settings.level, binary=settings.binary)
    ways = []
    if needed is not None:
        prompts, rows = needed * settings.batch, _rows(settings, needed)
        if settings.per == "worst":
            prompts = rows * len(settings.workloads)
        ways.append(f"about {prompts} prompts (--rows {rows})")
    if (target := math.floor(point.quality_at_least * 1000) / 1000) > 0:
        ways.append(f"--target {target:g}")
    ways.append("higher thresholds in --grid")
    return (
        f"no threshold holds {settings.metric} {settings.target:g} with "
        f"{_percent(settings)} confidence: at {point.threshold:g}, the highest, "
        f"{groups * settings.batch} prompts have {point.quality:.3f}, which shows "
        f"{point.quality_at_least:.3f}; on other prompts (--without {kept} and another --out) "
        f"{' or '.join(ways)} may do"
    )


def cheapest(
    sets: Sequence[tuple[int, ...] | None],
    found: Sequence[Calibration | NotHeldError],
    check: float,
) -> Calibration:
    """The best of what sets of layers came to, by `Point.cost_layers`, with what is told of each.
    Raises the first's `NotHeldError` where none holds."""
    points = [one.chosen if isinstance(one, Calibration) else None for one in found]
    held = [one for one in found if isinstance(one, Calibration)]
    if not held:
        raise next(one for one in found if isinstance(one, NotHeldError))
    best = min(held, key=lambda one: one.chosen.cost_layers(check))
    if len(sets) == 1:
        return best
    tried = [
        {
            "layers": list(layers or ()),
            "threshold": point and point.threshold,
            "mean_exit_layer": point and point.mean_exit_layer,
            "cost_layers": point and point.cost_layers(check),
        }
        for layers, point in zip(sets, points, strict=True)
    ]
    return replace(best, candidates=tuple(tried))


def write_calibration(out: Path, found: Calibration) -> None:
    """Write the file, whole or not at all. Raises `UserError` where it cannot be written."""
    try:
        write_atomic(out, found.to_json().encode())
    except OSError as error:
        raise UserError(f"--out: {out}: {error.strerror}") from None


def _rows_from(data: RowsTold) -> str:
    """Which source the prompts were drawn from, and what is particular to a workload."""
    sources = {name: _source(told) for name, told in data.items()}
    alike = len(set(sources.values())) == 1
    each = []
    for name, told in data.items():
        own = [] if alike else [f"source {sources[name]}"]
        own += [f"rows of {told['rows']}"] if "rows" in told else []
        own += [f"{key} {value}" for key, value in told.get("options", {}).items()]
        each += [f"{name}: {', '.join(own)}"] if own else []
    found = f" of source {next(iter(sources.values()))}" if alike else ""
    return found + (f" ({'; '.join(each)})" if each else "")


def _source(told: Mapping[str, Any]) -> str:
    digest = told.get("sha256")
    name = Path(told["source"]).name
    return name if digest is None else f"{name} (sha256 {digest[:12]})"


def _limits(full: FullAnswers) -> str:
    """How long answers might be, and whose were not that long."""
    most = [int(told["max_new_tokens"]) for told in full.values()]
    if not most:
        return ""
    less = [f"{name} {own}" for name, own in zip(full, most, strict=True) if own != max(most)]
    return f" and answers of at most {max(most)} tokens" + (f" ({', '.join(less)})" if less else "")


def _scores(full: FullAnswers) -> str:
    each = [f"{told['score']:.3g} on {name}" for name, told in full.items() if "score" in told]
    return f"the full model scores {', '.join(each)}; " if each else ""


def _percent(settings: Settings) -> str:
    return f"{100 * settings.confidence:.10g}%"


def _rows(settings: Settings, groups: int) -> int:
    """Of each workload, for so many groups; with `per` "worst" for so many with a prompt of it."""
    share = settings.batch / len(settings.workloads)
    return math.ceil(groups * (max(1.0, share) if settings.per == "worst" else share))
