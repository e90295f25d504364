"""Training of exit heads: answers of the frozen model, its hidden states, heads, report.

After "AdaDecode: Accelerating LLM Decoding with Adaptive Layer Parallelism", section 2.1 and
appendix D. The paper leaves open what stands before T and how it begins: here the model's final
RMSNorm, and the identity, so that the untrained head is the model's own.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from backends import models
from backends.training.heads_cache import Cache, build_cache
from backends.training.heads_data import Prompt, answers, read_prompts
from backends.training.heads_fit import SAVE_EVERY_S, Fit, fit
from backends.training.heads_folder import write_heads
from backends.training.heads_model import Backbone, architecture_of, read_backbone
from backends.training.heads_recipe import (
    STATE,
    HeadRecipe,
    check_recipe,
    claim_folder,
    finished_heads,
    parse_layers,
)
from harness.core import Model


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage is: `done` of `total` answers, texts or epochs, after `seconds` in which all
    but the first `found` were done.

    In the stage "epochs", `kl` holds the held-out KL of each layer in nats.
    """

    stage: str
    done: int
    total: int
    seconds: float
    found: int = 0
    kl: list[float] | None = None


def train_heads(
    model: str,
    workloads: Sequence[str],
    out: Path,
    *,
    layers: str | None = None,
    minutes: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    save_every_s: float = SAVE_EVERY_S,
    **choices: Any,
) -> dict[str, Any]:
    """Train exit heads of a model in the folder `out`, going on where a killed run stopped.

    Args:
        model: bundled name, hub id or local path.
        workloads: whose train splits the prompts come from.
        out: the heads' folder; the state of a run under way lies in its subfolder `state`.
        layers: exit layers such as "2,4,6", or "all"; the depth's quarters by default.
        minutes: stop after this time, resumable. Heads are written when any epoch was finished.
        progress: called after every batch of answers, of hidden states, and every epoch.
        save_every_s: seconds between states of the training on disk.
        choices: further fields of `HeadRecipe`: kind, source, rows, epochs, rate, batch, seed.

    Returns:
        The content of `heads.json`; `finished` is false when the time was up, and without any
        epoch it is the only key.

    Raises:
        UserError: for a bad option, model, source or weight, or a folder of another recipe.
    """
    begun = HeadRecipe("", (), tuple(workloads), **choices)
    check_recipe(begun)
    directory = models.resolve(Model(model))
    architecture = architecture_of(directory)
    exits = parse_layers(layers, architecture.layers)
    recipe = replace(begun, checkpoint=models.checksum(directory), layers=exits)
    if (finished := finished_heads(out, recipe)) is not None:
        shutil.rmtree(out / STATE, ignore_errors=True)
        return finished
    tokenizer = models.load_tokenizer(directory)
    prompts = read_prompts(recipe, tokenizer, architecture.positions)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    backbone = read_backbone(directory, architecture, device)
    claim_folder(out, recipe)
    run = _Run(out, directory, recipe, minutes, progress)
    return run.train(backbone, prompts, models.stop_ids(directory, tokenizer), save_every_s)


class _Run:
    """The stages of one run, under one deadline."""

    def __init__(
        self,
        out: Path,
        directory: Path,
        recipe: HeadRecipe,
        minutes: float | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.out, self.directory, self.recipe = out, directory, recipe
        self.progress = progress
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes

    def train(
        self,
        backbone: Backbone,
        prompts: Sequence[Prompt],
        stops: Sequence[int],
        save_every_s: float,
    ) -> dict[str, Any]:
        """Go through the stages; stop where the time is up."""
        going_on = self._stage("answers", len(prompts))
        texts = answers(self.out, prompts, self.directory, stops, backbone.head, going_on)
        if texts is None:
            return {"finished": False}
        pairs = list(zip(prompts, texts, strict=True))
        train, held_out = (self._cache(backbone, pairs, part) for part in (False, True))
        if train is None or held_out is None:
            return {"finished": False}
        done = fit(
            self.out, self.recipe, backbone.head, train, held_out, self._epochs(), save_every_s
        )
        content = write_heads(self.out, self.recipe, backbone, done, train, held_out, pairs)
        if content["finished"]:
            shutil.rmtree(self.out / STATE)
        return content

    def _cache(
        self, backbone: Backbone, pairs: list[tuple[Prompt, list[int]]], held_out: bool
    ) -> Cache | None:
        chosen = [pair for pair in pairs if pair[0].held_out == held_out]
        name = "held-out" if held_out else "training"
        going_on = self._stage(f"hidden states, {name}", len(chosen))
        return build_cache(self.out, name, backbone, self.recipe.layers, chosen, going_on)

    def _stage(self, stage: str, total: int) -> Callable[[int], bool]:
        began = time.monotonic()
        found: list[int] = []

        def going_on(done: int) -> bool:
            now = time.monotonic()
            found.append(done)
            if self.progress:
                self.progress(Progress(stage, done, total, now - began, found[0]))
            return self.deadline is None or now < self.deadline

        return going_on

    def _epochs(self) -> Callable[[Fit], bool]:
        def report(state: Fit) -> bool:
            if self.progress:
                kl = state.held_out_kl[-1]
                total = self.recipe.epochs
                self.progress(Progress("epochs", state.epoch, total, state.seconds, kl=kl))
            return self.deadline is None or time.monotonic() < self.deadline

        return report
