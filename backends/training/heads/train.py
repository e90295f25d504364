"""Training of exit heads: answers of the frozen model, its hidden states, heads, report.

After "AdaDecode: Accelerating LLM Decoding with Adaptive Layer Parallelism", section 2.1 and
appendix D. The paper leaves open what stands before T and how it begins: here the model's final
RMSNorm, and the identity, so that the untrained head is the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backends.training.exits.fit import SAVE_EVERY_S, disk_bytes
from backends.training.exits.recipe import ExitRecipe, held
from backends.training.exits.run import ExitTraining, StageProgress, bind
from backends.training.heads.fit import heads_problem
from backends.training.heads.folder import write_heads
from backends.training.heads.recipe import check_kind, parse_layers


def train_heads(
    model: str,
    workloads: Sequence[str],
    out: Path,
    *,
    layers: str | None = None,
    minutes: float | None = None,
    progress: Callable[[StageProgress], None] | None = None,
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
        progress: called after every batch of answers, of hidden states, and every epoch, whose
            losses are the held-out KL of each layer in nats.
        save_every_s: seconds between states of the training on disk.
        choices: further fields of `ExitRecipe`: kind, source, rows, epochs, rate, batch, seed,
            patience.

    Returns:
        The content of `heads.json`; `finished` is false when the time was up, and without any
        epoch it is the only key.

    Raises:
        UserError: for a bad option, model, source or weight, or a folder of another recipe.
    """
    begun = ExitRecipe("", (), tuple(workloads), **choices)
    check_kind(begun.kind)
    frozen, recipe = bind(begun, model, lambda depth: parse_layers(layers, depth))
    with held(out, recipe, frozen.directory) as finished:
        if finished is not None:
            return finished
        run = ExitTraining(out, recipe, minutes, progress)
        shape = frozen.architecture
        rows = shape.vocabulary if recipe.kind == "full" else shape.width
        reserve = disk_bytes(len(recipe.layers) * rows * shape.width)
        found = run.collect(frozen, reserve, normed=True)
        if found is None:
            return {"finished": False}
        backbone, train, held_out = found.backbone, found.train, found.held_out
        problem = heads_problem(recipe, backbone.head, train, held_out)
        done = run.fit(problem, save_every_s)
        return run.ended(write_heads(out, recipe, backbone, done, train, held_out, found.pairs))
