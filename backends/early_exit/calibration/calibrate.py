"""Calibrates thresholds of early exit: the full model's answers, answers at each threshold,
fixed-sequence testing (`learn_then_test`), and the file with the outcome (`calibration`).

Where several sets of layers may be checked, each is a sequence of its own, tested at its share of
the level (Bonferroni): the chance that any that is accepted, and so that the cheapest, holds less
than was asked for is at most the level.

The unit of the test is a group of `batch` prompts, which start together and are done before the
next start: prompts in one batch decide together where it exits, so their losses hang together and
only those of different groups are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import backends
from backends.checkpoints import models
from backends.early_exit.calibration.answers import SUFFIX, AnswerFile
from backends.early_exit.calibration.asking import ExitAnswers
from backends.early_exit.calibration.files import Calibration, Point
from backends.early_exit.calibration.group import AnsweredGroup
from backends.early_exit.calibration.learn_then_test import accepted
from backends.early_exit.calibration.losses import AnswerLosses
from backends.early_exit.calibration.outcome import (
    NotHeldError,
    cheapest,
    check_full,
    refusal,
    statement,
    test_name,
    too_few,
    unscored,
    write_calibration,
)
from backends.early_exit.calibration.prompts import prompts_checksum, read_groups, told_data
from backends.early_exit.calibration.settings import (
    Settings,
    check_out,
    check_settings,
    parameters,
    trained_folder,
    training_report,
)
from backends.early_exit.sizes import named_sizes
from backends.pins import code_digest
from backends.seen import MARKS, joined_marks
from harness.core.errors import UserError
from harness.core.nouns import Model

DECODING = "backends.early_exit.calibration.prompts"
"""The module that asks the backend, which is part of what the answers depend on."""


@dataclass(frozen=True, slots=True)
class CalibrationProgress:
    """How far the prompts have come at one threshold, None being the full model."""

    layers: tuple[int, ...] | None
    """Checked; None: the backend's default."""
    threshold: float | None
    done: int
    total: int
    seconds: float
    found: int
    """Of those done, how many were in the file when this began."""
    point: Point | None = None
    """What the threshold came to, when it is over."""


def calibrate(
    settings: Settings,
    out: Path,
    candidates: Sequence[tuple[int, ...]] = (),
    *,
    progress: Callable[[CalibrationProgress], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Calibration:
    """Choose the lowest threshold that holds the target quality, and write `out`; of several sets
    of layers the one with which a token costs the fewest layers, those counted that its checks of
    confidence are worth: each reads a head as large as the final one, where the measure is softmax.

    Every group's answers are kept in a file beside `out` as soon as they are there; the same
    settings, also with another target, metric, confidence or grid, take them up. The statement
    says how many choices there were on these prompts before, by the answers in the folder of `out`:
    its confidence is that of a first choice.

    Args:
        settings: what to calibrate, and for what.
        out: the calibration file to write.
        candidates: sets of layers to check, in the place of `settings.layers`.
        progress: called as groups are answered, and when a threshold is over.
        warn: called with each line of what the user probably did not mean.

    Raises:
        UserError: for settings that cannot be used, too few prompts for the target, and when not
            even the highest threshold holds it, saying what would.
    """
    check_settings(settings)
    check_out(out)
    sets: list[tuple[int, ...] | None] = [*dict.fromkeys(candidates)] or [settings.layers]
    settings = replace(settings, tries=len(sets), sets=tuple(sets))
    model = Model(settings.model, settings.revision, dtype=settings.dtype)
    directory = models.resolve(model)
    trained = trained_folder(settings, directory)
    runs: list[_Run] = []
    for layers in sets:
        own = replace(settings, layers=layers)
        backends.check_options(own.backend, own.options())
        for line in backends.warnings(own.backend, model, own.options()):
            if warn is not None:
                warn(line)
        runs.append(_Run(own, directory, trained, progress, warn, runs[0] if runs else None))
    head = named_sizes(directory).head_layers if settings.measure == "softmax" else 0.0
    found = _cheapest(runs, out, head)
    write_calibration(out, found)
    return found


def _cheapest(runs: Sequence[_Run], out: Path, check: float) -> Calibration:
    """What the best of the sets came to, where a check costs as much as `check` layers. Raises the
    first's `NotHeldError` where none holds."""
    found: list[Calibration | NotHeldError] = []
    for run in runs:
        layers = run.settings.layers
        name = "" if len(runs) == 1 or layers is None else f".layers-{'-'.join(map(str, layers))}"
        try:
            with ExitStack() as stack:
                found.append(run.choose(out.with_name(out.name + name + SUFFIX), stack))
        except NotHeldError as refused:
            found.append(refused)
    return cheapest([run.settings.layers for run in runs], found, check)


class _Run:
    """One calibration under way."""

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        trained: Path | None,
        progress: Callable[[CalibrationProgress], None] | None,
        warn: Callable[[str], None] | None,
        first: _Run | None = None,
    ) -> None:
        self.settings, self.directory, self.trained = settings, directory, trained
        self.progress, self.warn, self.first = progress, warn, first
        self.checkpoint = models.checksum(directory)
        self.parameters = parameters(trained, settings.measure)
        self.tokenizer = models.load_tokenizer(directory)
        self.stops = models.stop_ids(directory, self.tokenizer)
        report = training_report(settings, trained)
        if first is None:
            self.groups = read_groups(settings, directory, self.tokenizer, report)
            self.data = told_data(settings)
        else:
            self.groups, self.data = first.groups, first.data
        if (reason := unscored(settings, self.groups)) is not None:
            raise UserError(reason)
        if (reason := too_few(settings, len(self.groups))) is not None:
            raise UserError(reason)
        self.prompts_checksum = prompts_checksum(self.groups)
        self.prompt_marks = joined_marks(prompt.ids for group in self.groups for prompt in group)
        self.losses = AnswerLosses(settings, self.groups, self.tokenizer)
        names = [prompt.workload for group in self.groups for prompt in group]
        self.prompts = {name: names.count(name) for name in settings.workloads}
        self.full: list[AnsweredGroup] = []
        self.told: dict[str, dict[str, float]] = {}
        self.kept: AnswerFile
        self.earlier = 0

    def choose(self, answers: Path, stack: ExitStack) -> Calibration:
        """Test thresholds from the highest on, up to the first that is not accepted."""
        self.kept = stack.enter_context(AnswerFile(answers, self._identity()))
        asked = ExitAnswers(
            self.settings, self.directory, self.groups, self.stops, self.kept, self._tell
        )
        stack.callback(asked.close)
        known = self.first.full if self.first is not None else ()
        full = self.full = asked.answers(None, known)
        self.told = self.losses.told(full, self.stops)
        for line in check_full(self.settings, self.prompts, self.told):
            if self.warn is not None and self.first is None:
                self.warn(line)
        curve: list[Point] = []
        chosen = 0
        for threshold in self.settings.thresholds:
            tested = chosen == len(curve)
            if not tested and not self.settings.whole_curve:
                break
            groups = asked.answers(threshold)
            self.kept.note_question(self.settings.question())
            curve.append(self._point(threshold, full, groups, tested))
            chosen = accepted([point.p_value for point in curve], self.settings.level)
            self._tell(threshold, len(full), len(full), 0.0, curve[-1])
        if not chosen:
            raise NotHeldError(refusal(self.settings, curve[0], len(full), answers))
        self.earlier = self.kept.earlier_choices(self.settings.question())
        return self._calibration(curve, chosen - 1)

    def _identity(self) -> dict[str, Any]:
        """All that decides answers, apart from the threshold."""
        return self.settings.identity() | {
            "checkpoint": self.checkpoint,
            "parameters": self.parameters,
            "prompts": self.prompts_checksum,
            MARKS: self.prompt_marks,
            "code": code_digest(self.settings.backend, DECODING),
        }

    def _tell(
        self,
        threshold: float | None,
        done: int,
        found: int,
        seconds: float,
        point: Point | None = None,
    ) -> None:
        if self.progress is not None:
            self.progress(
                CalibrationProgress(
                    self.settings.layers, threshold, done, len(self.groups), seconds, found, point
                )
            )

    def _point(
        self,
        threshold: float,
        full: Sequence[AnsweredGroup],
        groups: Sequence[AnsweredGroup],
        tested: bool,
    ) -> Point:
        held = self.losses.held(full, groups)
        run, total = sum(g.layers_run for g in groups), sum(g.layers_total for g in groups)
        steps = sum(g.steps for g in groups)
        return Point(
            threshold=threshold,
            quality=held.quality,
            quality_at_least=held.at_least,
            p_value=held.p_value,
            tested=tested,
            early_exit_rate=1.0 - run / total if total else 0.0,
            mean_exit_layer=run / steps if steps else 0.0,
            checks=sum(g.checks for g in groups) / steps if steps else 0.0,
        )

    def _calibration(self, curve: Sequence[Point], chosen: int) -> Calibration:
        settings, point = self.settings, curve[chosen]
        layers = tuple(self.kept.opened["layers"])
        heads = self.trained.name if self.trained and settings.measure == "softmax" else None
        return Calibration(
            checkpoint=self.checkpoint,
            measure=settings.measure,
            layers=layers,
            thresholds=(point.threshold,) * len(layers),
            decay=settings.decay,
            tau=settings.tau,
            heads=heads,
            parameters=self.parameters,
            metric=settings.metric,
            target=settings.target,
            confidence=settings.confidence,
            risk=1.0 - point.quality,
            bound=1.0 - point.quality_at_least,
            p_value=point.p_value,
            test=test_name(settings),
            prompts=self.prompts,
            prompts_checksum=self.prompts_checksum,
            source=settings.source,
            seed=settings.seed,
            batch=settings.batch,
            dtype=settings.dtype,
            backend=self.kept.opened["backend"],
            statement=statement(
                settings, self.prompts, point.threshold, self.earlier, self.told, self.data
            ),
            earlier_choices=self.earlier,
            per=settings.per,
            curve=tuple(curve),
            workloads=self.told,
            engine=dict(settings.engine),
            prompt_marks=self.prompt_marks,
            data=self.data,
            revision=settings.revision,
        )
