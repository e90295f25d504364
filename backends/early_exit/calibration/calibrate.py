"""Calibrates the thresholds of `vllm-early-exit`: full model's answers, answers at each threshold,
fixed-sequence testing (`learn_then_test`), and the file with the outcome (`calibration`).

The unit of the test is a group of `batch` prompts, which start together and are done before the
next start: prompts in one batch decide together where it exits, so their losses hang together and
only those of different groups are independent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import backends
from backends.checkpoints import models
from backends.early_exit.calibration.answers import SUFFIX, AnswerFile
from backends.early_exit.calibration.files import Calibration, Point
from backends.early_exit.calibration.group import AnsweredGroup
from backends.early_exit.calibration.learn_then_test import accepted, p_value, upper_bound
from backends.early_exit.calibration.outcome import refusal, statement, too_few, write_calibration
from backends.early_exit.calibration.prompts import decode, prompts_checksum, read_groups
from backends.early_exit.calibration.settings import (
    Settings,
    check_out,
    check_settings,
    parameters,
    trained_folder,
    training_report,
)
from backends.early_exit.policy import NEVER
from backends.pins import code_digest
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.nouns import Model
from harness.core.rouge import rouge_l

NAME = "vllm-early-exit"
DECODING = "backends.early_exit.calibration.prompts"
"""The module that asks the backend, which is part of what the answers depend on."""


@dataclass(frozen=True, slots=True)
class CalibrationProgress:
    """How far the prompts have come at one threshold, None being the full model."""

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
    *,
    progress: Callable[[CalibrationProgress], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Calibration:
    """Choose the lowest threshold that holds the target quality, and write `out`.

    Every group's answers are kept in a file beside `out` as soon as they are there; the same
    settings, also with another target, metric, confidence or grid, take them up. The statement
    then says how many such choices there were before: its confidence is that of a first choice.

    Args:
        settings: what to calibrate, and for what.
        out: the calibration file to write.
        progress: called as groups are answered, and when a threshold is over.
        warn: called with each line of what the user probably did not mean.

    Raises:
        UserError: for settings that cannot be used, too few prompts for the target, and when not
            even the highest threshold holds it, saying what would.
    """
    check_settings(settings)
    check_out(out)
    model = Model(settings.model, dtype=settings.dtype)
    directory = models.resolve(model)
    trained = trained_folder(settings, directory)
    backends.check_options(NAME, settings.options())
    for line in backends.warnings(NAME, model, settings.options()):
        if warn is not None:
            warn(line)
    with ExitStack() as stack:
        run = _Run(settings, directory, trained, progress, stack)
        found = run.choose(out.with_name(out.name + SUFFIX))
    write_calibration(out, found)
    return found


class _Run:
    """One calibration under way."""

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        trained: Path | None,
        progress: Callable[[CalibrationProgress], None] | None,
        stack: ExitStack,
    ) -> None:
        self.settings, self.directory, self.trained = settings, directory, trained
        self.progress, self.stack = progress, stack
        self.checkpoint = models.checksum(directory)
        self.parameters = parameters(trained, settings.measure)
        self.tokenizer = models.load_tokenizer(directory)
        self.stops = models.stop_ids(directory, self.tokenizer)
        report = training_report(settings, trained)
        self.groups = read_groups(settings, directory, self.tokenizer, report)
        if (reason := too_few(settings, len(self.groups))) is not None:
            raise UserError(reason)
        self.prompts_checksum = prompts_checksum(self.groups)
        self.texts: dict[tuple[int, ...], str] = {}
        self.kept: AnswerFile
        self.earlier = 0

    def choose(self, answers: Path) -> Calibration:
        """Test thresholds from the highest on, up to the first that is not accepted."""
        self.kept = self.stack.enter_context(AnswerFile(answers, self._identity()))
        full = self._answers(None)
        curve: list[Point] = []
        chosen = 0
        for threshold in self.settings.thresholds:
            tested = chosen == len(curve)
            if not tested and not self.settings.whole_curve:
                break
            groups = self._answers(threshold)
            self.earlier = self.kept.note_question(self._question())
            curve.append(self._point(threshold, full, groups, tested))
            chosen = accepted([point.p_value for point in curve], self.settings.level)
            self._tell(threshold, len(full), len(full), 0.0, curve[-1])
        if not chosen:
            raise UserError(refusal(self.settings, curve[0], len(full), answers))
        return self._calibration(curve, chosen - 1)

    def _identity(self) -> dict[str, Any]:
        """All that decides answers, apart from the threshold."""
        settings = self.settings
        return {
            "checkpoint": self.checkpoint,
            "measure": settings.measure,
            "layers": "auto" if settings.layers is None else list(settings.layers),
            "decay": settings.decay,
            "decay_tau": settings.tau,
            "parameters": self.parameters,
            "workloads": list(settings.workloads),
            "source": settings.source,
            "seed": settings.seed,
            "rows": settings.rows,
            "batch": settings.batch,
            "dtype": settings.dtype,
            "prompts": self.prompts_checksum,
            "code": code_digest(NAME, DECODING),
        }

    def _question(self) -> dict[str, Any]:
        """All that decides the choice among thresholds, apart from the answers."""
        settings = self.settings
        return {
            "grid": list(settings.thresholds),
            "target": settings.target,
            "metric": settings.metric,
            "confidence": settings.confidence,
            "rows": settings.rows,
        }

    @cached_property
    def backend(self) -> Backend:
        """The engine, loaded when the first answer is missing."""
        settings = self.settings
        model = Model(settings.model, dtype=settings.dtype)
        opened = backends.open_backend(NAME, self.directory, model, settings.options())
        self.stack.callback(opened.close)
        info = opened.info
        layers = list(info.options["layers"])
        self.kept.note_opened({"layers": layers, "backend": f"{info.name} {info.version}"})
        return opened

    def _answers(self, threshold: float | None) -> list[AnsweredGroup]:
        """The answers of all groups, taken up or made."""
        known, found = self.kept.groups(threshold), []
        missing = len(known) < len(self.groups)
        if missing:
            self._configure(threshold)
        began, there = time.monotonic(), len(known)
        for number, prompts in enumerate(self.groups):
            if number not in known:
                self.kept.add(threshold, number, decode(self.backend, prompts, self.stops))
            found.append(self.kept.groups(threshold)[number])
            if missing:
                done = max(number + 1, there)
                self._tell(threshold, done, there, time.monotonic() - began)
        return found

    def _configure(self, threshold: float | None) -> None:
        settings, configure = self.settings, getattr(self.backend, "configure")  # noqa: B009
        self.backend.reset()
        if threshold is None:
            configure({"measure": NEVER})
            return
        chosen = {"measure": settings.measure, "threshold": threshold}
        decay = {"decay": settings.decay, "decay_tau": settings.tau}
        configure({**chosen, **decay, "layers": self.kept.opened["layers"]})

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
                CalibrationProgress(threshold, done, len(self.groups), seconds, found, point)
            )

    def _losses(self, full: Sequence[AnsweredGroup], own: Sequence[AnsweredGroup]) -> list[float]:
        """The mean loss of each group."""
        return [
            fmean(self._loss(*pair) for pair in zip(whole.answers, group.answers, strict=True))
            for whole, group in zip(full, own, strict=True)
        ]

    def _loss(self, expected: tuple[int, ...], own: tuple[int, ...]) -> float:
        if expected == own:
            return 0.0
        if self.settings.metric == "consistency":
            return 1.0
        return 1.0 - rouge_l(self._text(expected), self._text(own))

    def _text(self, ids: tuple[int, ...]) -> str:
        if ids not in self.texts:
            self.texts[ids] = str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
        return self.texts[ids]

    def _point(
        self,
        threshold: float,
        full: Sequence[AnsweredGroup],
        groups: Sequence[AnsweredGroup],
        tested: bool,
    ) -> Point:
        settings, losses = self.settings, self._losses(full, groups)
        run, total = sum(g.layers_run for g in groups), sum(g.layers_total for g in groups)
        steps = sum(g.steps for g in groups)
        return Point(
            threshold=threshold,
            quality=1.0 - fmean(losses),
            quality_at_least=1.0 - upper_bound(losses, settings.level, binary=settings.binary),
            p_value=p_value(losses, settings.limit, binary=settings.binary),
            tested=tested,
            early_exit_rate=1.0 - run / total if total else 0.0,
            mean_exit_layer=run / steps if steps else 0.0,
        )

    def _calibration(self, curve: Sequence[Point], chosen: int) -> Calibration:
        settings, point = self.settings, curve[chosen]
        names = [prompt.workload for group in self.groups for prompt in group]
        prompts = {name: names.count(name) for name in settings.workloads}
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
            test="exact binomial" if settings.binary else "Hoeffding-Bentkus",
            prompts=prompts,
            prompts_checksum=self.prompts_checksum,
            source=settings.source,
            seed=settings.seed,
            batch=settings.batch,
            dtype=settings.dtype,
            backend=self.kept.opened["backend"],
            statement=statement(settings, prompts, point.threshold, self.earlier),
            earlier_choices=self.earlier,
            curve=tuple(curve),
        )
