"""Which sublayers a model should leave out when it drafts for itself, by Bayesian optimisation.

Zhang et al. (ACL 2024, 'Draft & Verify', section 3.3) maximise the measured speed of drafting and
verifying over two binary vectors, one for attention and one for MLP. Here the speed is predicted,
from the acceptance that is measured for each set and from passes that were timed once, so that no
noise of the clock decides between two sets; and the number of drafts is the best for each set.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.bound_files import write_bound
from backends.engine.costs.draft_costs import DraftModelCosts, PartialPass
from backends.engine.costs.row_costs import row_costs
from backends.engine.executors.base import Executor
from backends.engine.sublayers.sets import NOTHING, Sublayers
from backends.own.backend import Loaded, check_fit
from backends.own.drafting.sublayer_sets import ABOUT, ATTENTION, FORMAT, MLP
from backends.own.drafting.traced import NAME
from backends.training.exits.data import TrainPrompt, read_prompts
from backends.training.sublayers.acceptance import Acceptance, decode
from backends.training.sublayers.recipe import SublayerRecipe, check
from harness.core.errors import UserError
from harness.core.nouns import Model

MOST_ROWS = 32
"""Answers that are decoded at a time."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """After so many of `total` iterations: the best set, and the speed-up predicted of it."""

    done: int
    total: int
    best: Sublayers
    speed_up: float


@dataclass
class SetTrials:
    """Scores sets on the search's rows, each once."""

    executor: Executor
    recipe: SublayerRecipe
    prompts: Sequence[TrainPrompt]
    stops: frozenset[int]
    verify: Any
    passes: PartialPass
    scores: dict[Sublayers, float] = field(default_factory=dict)

    def speed_up(self, left_out: Sublayers) -> float:
        """Predicted over plain decoding; 0 for all sublayers, which leave no model to draft."""
        if len(left_out) == 2 * self.executor.architecture.layers:
            return 0.0
        if left_out not in self.scores:
            self.scores[left_out] = self.best_drafts(left_out, self.accepted(left_out))[1]
        return self.scores[left_out]

    def accepted(
        self, left_out: Sublayers, prompts: Sequence[TrainPrompt] | None = None
    ) -> Acceptance:
        """What stands of the set's drafts; on the search's rows unless told otherwise."""
        return decode(
            *(self.executor, self.prompts if prompts is None else prompts, self.stops, left_out),
            *(self.recipe.drafts, self.recipe.threshold),
        )

    def best_drafts(self, left_out: Sublayers, found: Acceptance) -> tuple[int, float]:
        """The number of drafts that is best, and the speed-up predicted of it."""
        costs = DraftModelCosts(self.verify, replace(self.passes, left_out=lambda: left_out))
        return found.best(costs, self.verify.positions)


def find_sublayers(
    model: str,
    workloads: Sequence[str],
    out: Path,
    *,
    progress: Callable[[SearchProgress], None] | None = None,
    **choices: Any,
) -> dict[str, Any]:
    """Search a set for a model and write its folder.

    Args:
        model: bundled name, hub id or local path.
        workloads: whose train splits the rows come from.
        out: the folder.
        progress: called after every iteration.
        choices: further fields of `SublayerRecipe`.

    Returns:
        The content of `sublayers.json`.

    Raises:
        UserError: for a bad option, model or source, and a folder that holds a set already.
    """
    recipe = SublayerRecipe(tuple(workloads), **choices)
    check(recipe, out)
    directory = models.resolve(Model(model, revision=recipe.revision))
    tokenizer = models.load_tokenizer(directory)
    stops = frozenset(models.stop_ids(directory, tokenizer))
    executor = _executor(directory, Model(model, recipe.revision, dtype=recipe.dtype))
    prompts = read_prompts(recipe.prompts(), tokenizer, executor.max_len)
    try:
        out.mkdir(parents=True, exist_ok=True)
        writable = os.access(out, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:  # told before the search, whose result would be lost
        raise UserError(f"--out: {out}: cannot be written")
    searched = [prompt for prompt in prompts if not prompt.held_out]
    trials = SetTrials(
        *(executor, recipe, searched, stops, row_costs(executor)),
        PartialPass.measure(executor, lambda: NOTHING),
    )
    began = time.monotonic()
    best = _optimised(trials, progress)
    seconds = time.monotonic() - began
    content = _content(trials, best, [prompt for prompt in prompts if prompt.held_out], seconds)
    executor.close()
    return write_bound(out / ABOUT, models.checksum(directory), FORMAT, content)


def _executor(directory: Path, model: Model) -> Executor:
    options = {
        **dict.fromkeys(("max_model_len", "threads", "replay")),
        "kernels": "auto",
        "max_num_seqs": MOST_ROWS,
    }
    shape = check_fit(NAME, directory, options)
    if shape.layers < 2:
        raise UserError(f"{directory}: a model of one layer has nothing that drafting could skip")
    found: Executor = Loaded(NAME, directory, model, options).executor()
    return found


def _optimised(trials: SetTrials, progress: Callable[[SearchProgress], None] | None) -> Sublayers:
    """The best set of a search with a tree-structured Parzen estimator over all sublayers at once
    (Bergstra et al., 2011; Falkner et al., 2018), which is sequential model-based optimisation as
    the paper's, and takes binary vectors as they are."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    recipe, layers = trials.recipe, trials.executor.architecture.layers
    seed = recipe.seed % 2**32  # numpy takes no larger one
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    names = [f"{kind} {layer}" for layer in range(layers) for kind in ("attention", "mlp")]

    def score(trial: Any) -> float:
        chosen = [bool(trial.suggest_int(name, 0, 1)) for name in names]
        return trials.speed_up(Sublayers.of(chosen))

    def best() -> Sublayers:
        return Sublayers.of([bool(study.best_params[name]) for name in names])

    def report(study: Any, trial: Any) -> None:
        if progress is not None:
            progress(SearchProgress(trial.number + 1, recipe.iterations, best(), study.best_value))

    study.optimize(score, n_trials=recipe.iterations, callbacks=[report])
    return best()


def _content(
    trials: SetTrials, best: Sublayers, held_out: Sequence[TrainPrompt], seconds: float
) -> dict[str, Any]:
    found, others = trials.accepted(best), trials.accepted(best, held_out)
    drafts, speed_up = trials.best_drafts(best, found)
    costs = trials.passes
    length = costs.whole.positions
    return {
        "layers": trials.executor.architecture.layers,
        ATTENTION: sorted(best.attention),
        MLP: sorted(best.mlp),
        "predicted": {"drafts": drafts, "speed_up": round(speed_up, 3)},
        "searched_on": {"answers": len(trials.prompts), **found.told()},
        "held_out": {
            "answers": len(held_out),
            **others.told(),
            "speed_up": round(trials.best_drafts(best, others)[1], 3),
        },
        "search": {"seconds": round(seconds, 1), "sets": len(trials.scores)},
        "costs_us": {
            name: round(of.of(1, length), 1)
            for name, of in (
                ("pass", costs.whole),
                ("pass_without_attention", costs.no_attention),
                ("pass_without_mlp", costs.no_mlp),
                ("draft_pass", replace(costs, left_out=partial(Sublayers.of, best.flags(
                    trials.executor.architecture.layers
                )))),
            )
        },
        "kernels": trials.executor.kernels,
        "recipe": trials.recipe.to_dict(),
    }  # fmt: skip
