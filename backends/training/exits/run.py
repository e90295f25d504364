"""A run that trains something at a model's exits: its stages, under one deadline.

The frozen model's own greedy answers, its hidden states at the exits, then epochs. Exit heads, the
exit classifier and draft heads have all but the last in common.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from backends.checkpoints import models
from backends.engine.model.architecture import Architecture
from backends.training.exits.answers import answers
from backends.training.exits.backbone import Backbone, architecture_of, dtype_of, read_backbone
from backends.training.exits.cache import Cache, build_cache
from backends.training.exits.data import TrainPrompt, prompts_checksum, read_prompts
from backends.training.exits.fit import Fit, Objective, diverged, fit
from backends.training.exits.kept import kept_answers
from backends.training.exits.recipe import (
    STATE,
    ExitRecipe,
    check_recipe,
    claim_folder,
    drop_state,
)
from harness.core.errors import UserError
from harness.core.files import size
from harness.core.nouns import Model

R = TypeVar("R", bound=ExitRecipe)


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far a stage is: `done` of `total` answers, texts or epochs, after `seconds` in which all
    but the first `found` were done.

    In the stage "epochs", `losses` holds the held-out losses. `remark` is what the user should know
    before it begins.
    """

    stage: str
    done: int
    total: int
    seconds: float
    found: int = 0
    losses: list[float] | None = None
    remark: str = ""


@dataclass(frozen=True)
class Material:
    """What there is to learn from."""

    backbone: Backbone
    pairs: list[tuple[TrainPrompt, list[int]]]
    """Every prompt and the model's answer to it."""
    train: Cache
    held_out: Cache


@dataclass(frozen=True, slots=True)
class FrozenModel:
    """The model that answers, and what it is asked."""

    directory: Path
    architecture: Architecture
    tokenizer: Any
    prompts: list[TrainPrompt]


def bind(
    begun: R, model: str, layers_of: Callable[[int], tuple[int, ...]]
) -> tuple[FrozenModel, R]:
    """A model and its prompts, and the recipe with their checksums and the exit layers.

    Args:
        begun: the recipe as far as the user gave it.
        model: bundled name, hub id or local path.
        layers_of: the exit layers of a model with so many.

    Raises:
        UserError: for a value, model, layer or source that cannot be used.
    """
    check_recipe(begun)
    directory = models.resolve(Model(model, revision=begun.revision))
    architecture = architecture_of(directory)
    layers = layers_of(architecture.layers)
    tokenizer = models.load_tokenizer(directory)
    prompts = read_prompts(begun, tokenizer, architecture.positions, begun.limits())
    recipe = replace(
        begun,
        checkpoint=models.checksum(directory),
        layers=layers,
        prompts=prompts_checksum(prompts),
    )
    return FrozenModel(directory, architecture, tokenizer, prompts), recipe


class ExitTraining:
    """The stages of one run in the folder `out`, each stopped where the time is up."""

    def __init__(
        self,
        out: Path,
        recipe: ExitRecipe,
        minutes: float | None,
        progress: Callable[[StageProgress], None] | None,
    ) -> None:
        self.out, self.recipe, self.progress = out, recipe, progress
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._asked = False
        self._fit: Fit | None = None

    def collect(
        self, model: FrozenModel, reserve: int, *, normed: bool, whole: bool = False
    ) -> Material | None:
        """The answers and their states; None where the time was up. Claims the folder.

        Args:
            model: and what it is asked.
            reserve: bytes on the disk that the rest of the training takes.
            normed: whether the states go through the final norm.
            whole: whether the states of the prompts are kept too.

        Raises:
            UserError: for weights that cannot be used, and a disk that is too small.
        """
        directory, prompts = model.directory, model.prompts
        device = "cuda" if torch.cuda.is_available() else "cpu"
        claim_folder(self.out, self.recipe)
        texts_of = [(len(p.ids), p.limit) for p in prompts]
        lacking = self._lacking(model, texts_of, whole, reserve)
        if lacking and self.progress:
            longest = f"should all answers be as long as they may, {lacking}"
            self.progress(StageProgress("answers", 0, len(prompts), 0.0, remark=longest))
        going_on = self.stage("answers", len(prompts))
        stops = models.stop_ids(directory, model.tokenizer)
        like = torch.empty(0, dtype=dtype_of(directory), device=device)
        cached = kept_answers(self.recipe.checkpoint, stops, like)
        texts = answers(self.out, prompts, directory, stops, like, going_on, cached)
        if texts is None:
            return None
        texts_of = [(len(p.ids), len(text)) for p, text in zip(prompts, texts, strict=True)]
        if lacking := self._lacking(model, texts_of, whole, reserve):
            raise UserError(
                f"{lacking}; the answers are kept: make room for the same command to go on, or "
                "take fewer --rows, in another folder"
            )
        # behind the answers, so that a device holds one copy of the model at a time
        backbone = read_backbone(directory, model.architecture, device, normed=normed)
        pairs = list(zip(prompts, texts, strict=True))
        train, held_out = (self._cache(backbone, pairs, part, whole) for part in (False, True))
        if train is None or held_out is None:
            return None
        return Material(backbone, pairs, train, held_out)

    def stage(self, stage: str, total: int) -> Callable[[int], bool]:
        """A function that reports how much of a stage is done and says whether to go on.

        The run's first piece of work is always done: where loading the model takes all the time
        there is, the same command would otherwise never come to an end.
        """
        began = time.monotonic()
        found: list[int] = []

        def going_on(done: int) -> bool:
            now = time.monotonic()
            found.append(done)
            if self.progress:
                self.progress(StageProgress(stage, done, total, now - began, found[0]))
            first, self._asked = not self._asked, True
            return first or self.deadline is None or now < self.deadline

        return going_on

    def epochs(self) -> Callable[[Fit], bool]:
        """The same for the epochs of a fit."""

        def report(state: Fit) -> bool:
            if self.progress:
                losses = state.held_out_loss[-1]
                total = self.recipe.epochs
                self.progress(
                    StageProgress("epochs", state.epoch, total, state.seconds, losses=losses)
                )
            return self.deadline is None or time.monotonic() < self.deadline

        return report

    def fit(self, problem: Objective, save_every_s: float) -> Fit:
        """Train, going on from the state in the folder. Raises `UserError` as `exits.fit.fit`."""
        self._fit = fit(self.out, self.recipe, problem, self.epochs(), save_every_s)
        return self._fit

    def ended(self, content: dict[str, Any]) -> dict[str, Any]:
        """The written report; the state of a run that came to its end is no longer needed. Raises
        `UserError` where a loss was no number, once the best before it is written."""
        if self._fit is not None and self._fit.diverged:
            told = diverged(self.recipe, self._fit.epoch + 1)
            raise UserError(f"{told}; {self.out} has what was best before")
        if content["finished"]:
            drop_state(self.out)
        return content

    def _lacking(
        self, model: FrozenModel, texts: Sequence[tuple[int, int]], whole: bool, reserve: int
    ) -> str:
        """What the disk lacks for texts of so many tokens of prompt and answer; empty if nothing,
        what this run has put there counted as free."""
        state = self.out / STATE
        positions = sum(own - 1 + (prompt if whole else 0) for prompt, own in texts if own > 1)
        width = model.architecture.width * dtype_of(model.directory).itemsize
        need = (len(self.recipe.layers) + 1) * positions * width + reserve
        free = shutil.disk_usage(state).free + sum(p.stat().st_size for p in state.iterdir())
        if need <= free:
            return ""
        return (
            f"{state}: hidden states, the training's state and its files take {size(need)}, and "
            f"{size(free)} are free"
        )

    def _cache(
        self,
        backbone: Backbone,
        pairs: list[tuple[TrainPrompt, list[int]]],
        held_out: bool,
        whole: bool,
    ) -> Cache | None:
        chosen = [pair for pair in pairs if pair[0].held_out == held_out]
        name = "held-out" if held_out else "training"
        going_on = self.stage(f"hidden states, {name}", len(chosen))
        return build_cache(
            self.out, name, backbone, self.recipe.layers, chosen, going_on, whole=whole
        )
