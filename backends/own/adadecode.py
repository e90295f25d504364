"""AdaDecode (Wei et al., ICML 2025) on our own engine: early predictions at middle layers, deferred
and verified, so that the text stays that of plain decoding.

The authors published no code; the exact step is in `backends.engine.drafters.exits`. By default the
exit layers and thresholds are chosen for this machine, from measured costs and a held-out trace.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.checkpoints import exit_heads
from backends.checkpoints.exit_heads import AUTO, HeadFolder
from backends.engine.model.architecture import Architecture
from backends.own.backend import OPTIONS, EngineBackend, Loaded, check_fit
from harness.core.backend import Option
from harness.core.errors import UserError
from harness.core.nouns import Measured, Model

NAME = "adadecode"
MOST_DRAFTS = 15
PAPER_GAMMA = 0.75


class AdaDecode(EngineBackend):
    """Adaptive layer parallelism. Lossless, unless `verify` is turned off."""

    OPTIONS: ClassVar[dict[str, Option]] = {
        **OPTIONS,
        "gamma": Option(
            float,
            AUTO,
            "an early prediction must be more probable than this; auto: per exit, chosen on the "
            f"heads' held-out trace ({PAPER_GAMMA} without one)",
            minimum=0,
            maximum=1,
            words=(AUTO,),
        ),
        "max_drafts": Option(
            int, 5, "early predictions that may wait for verification", minimum=1,
            maximum=MOST_DRAFTS,
        ),
        "max_batch": Option(
            int, 4, "requests under way beyond which nothing is predicted early", minimum=1
        ),
        "exit_layers": Option(
            list, AUTO, "layers after which to predict; auto: chosen on the trace", words=(AUTO,)
        ),
        "heads": Option(
            str, AUTO, "exit heads: auto (the demo model's), a bundled name, a folder, or original"
        ),
        "shortlist": Option(
            int, None, "tokens that exit heads know, the most frequent; default: all", minimum=2
        ),
        "verify": Option(bool, True, "false: early predictions stand unverified (lossy)"),
    }  # fmt: skip

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """What options name that decides a trial's numbers: the exit heads. Raises `UserError`."""
        where = exit_heads.find_folder(options["heads"], model_dir)
        return [] if where is None else [where / exit_heads.ABOUT, where / exit_heads.TENSORS]

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for heads, exit layers and sizes that do not fit the model."""
        if model_dir is None:
            return
        shape = check_fit(NAME, model_dir, options)
        where = exit_heads.find_folder(options["heads"], model_dir)
        _asked_layers(shape, None if where is None else _head_layers(where, model_dir), options)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the model and its exit heads, and choose what is left to choose. Raises `UserError`
        for heads of another checkpoint, layers without a head and what the engine cannot take."""
        from backends.engine.decoder import Decoder
        from backends.engine.drafters.exits import ExitDrafter, PredictionPolicy

        assert model_dir is not None
        folder = _open_heads(options, model_dir)
        loaded = Loaded(NAME, model_dir, model, options)
        plan = _ChosenExits(loaded, folder, options)
        layers, gammas, predicted = plan.choose()
        executor = loaded.executor([plan.head(layer) for layer in layers])
        policy = PredictionPolicy(gammas, options["max_drafts"], options["max_batch"])
        effective = {
            "exit_layers": list(layers),
            "gamma": list(gammas),
        }
        measured = Measured(costs=plan.costs(executor), predicted_speedup=predicted)
        drafter = ExitDrafter(executor, policy) if layers else None
        decoder = Decoder(
            *(executor, drafter), verify=options["verify"], prefill_tokens=options["prefill_tokens"]
        )
        info = loaded.info(executor, effective, measured, lossless=options["verify"])
        return cls(decoder, executor, info, loaded.stop_ids)


def _open_heads(chosen: Mapping[str, Any], model_dir: Path) -> HeadFolder | None:
    where = exit_heads.find_folder(chosen["heads"], model_dir)
    return None if where is None else exit_heads.open_folder(where, model_dir)


def _head_layers(where: Path, model_dir: Path) -> tuple[int, ...]:
    """The layers of a folder of heads, all of which is checked: once for a sweep's many options."""
    stamps = tuple(path.stat().st_mtime_ns for path in sorted(where.iterdir()))
    return _checked_layers(where, model_dir, stamps)


@functools.lru_cache(maxsize=32)
def _checked_layers(where: Path, model_dir: Path, stamps: tuple[int, ...]) -> tuple[int, ...]:
    return exit_heads.open_folder(where, model_dir).layers


def _available(shape: Architecture, trained: tuple[int, ...] | None) -> tuple[int, ...]:
    """The layers after which there can be an exit."""
    return tuple(range(1, shape.layers)) if trained is None else trained


def _asked_layers(
    shape: Architecture, trained: tuple[int, ...] | None, chosen: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """The exit layers that were asked for by number; `trained`: those with heads, where heads were
    trained. Raises `UserError` for those that there are
    not, and for a shortlist that cannot be."""
    where = f"backend '{NAME}': option"
    size, vocabulary = chosen["shortlist"], shape.vocabulary
    if size is not None and trained is None:
        raise UserError(f"{where} 'shortlist' needs trained heads")
    if size is not None and size > vocabulary:
        raise UserError(f"{where} 'shortlist': {size} is more than the vocabulary of {vocabulary}")
    if chosen["exit_layers"] == AUTO:
        return None
    available = _available(shape, trained)
    return exit_heads.check_layers(chosen["exit_layers"], available, f"{where} 'exit_layers'")


class _ChosenExits:
    """Exit layers and thresholds: those asked for, and the best of those left open."""

    def __init__(
        self, loaded: Loaded, folder: HeadFolder | None, chosen: Mapping[str, Any]
    ) -> None:
        self._loaded, self._folder, self._chosen = loaded, folder, chosen
        trained = None if folder is None else folder.layers
        self._available = _available(loaded.architecture, trained)
        self._asked = _asked_layers(loaded.architecture, trained, chosen)
        self._heads: dict[int, Any] = {}

    def choose(self) -> tuple[tuple[int, ...], tuple[float, ...], float | None]:
        """Layers, thresholds, and the speed-up that the trace predicts for them."""
        layers, gammas, predicted = self._choice()
        self._heads = {layer: head for layer, head in self._heads.items() if layer in layers}
        return layers, gammas, predicted

    def _choice(self) -> tuple[tuple[int, ...], tuple[float, ...], float | None]:
        gamma, folder = self._chosen["gamma"], self._folder
        if folder is None:
            depth = self._loaded.architecture.layers
            layers = self._asked or exit_heads.quarters(depth)
            return layers, (PAPER_GAMMA if gamma == AUTO else gamma,) * len(layers), None
        from backends.engine.costs.exit_choice import GAMMAS, choose, tune

        drafts, gammas = self._chosen["max_drafts"], GAMMAS if gamma == AUTO else (gamma,)
        if self._asked is None:
            costs = self._layer_costs(self._available)
            found = choose(folder.trace(), costs, self._available, drafts, gammas=gammas)
        else:
            costs = self._layer_costs(self._asked)
            found = tune(folder.trace(), costs, self._asked, drafts, gammas=gammas)
        return found.layers, found.gammas, found.speedup

    def head(self, layer: int) -> Any:
        """The exit head after `layer`: made once for all executors that are measured with it."""
        if layer not in self._heads:
            self._heads[layer] = self._made_head(layer)
        return self._heads[layer]

    def _made_head(self, layer: int) -> Any:
        from backends.engine.model.heads import ExitHead

        final = self._loaded.weights.head
        if self._folder is None:
            return ExitHead(layer, final)
        matrix = self._folder.matrix(layer, final)
        if self._chosen["shortlist"] is None:
            return ExitHead(layer, matrix)
        kept = self._folder.shortlist(self._chosen["shortlist"])
        return ExitHead(layer, matrix[kept.to(matrix.device)].contiguous(), kept)

    def costs(self, executor: Any) -> dict[str, Any]:
        """What the executor's segments and heads take, and plain decoding."""
        from backends.engine.costs.timing import measure

        found = measure(executor, self._chosen["max_drafts"])
        return replace(found, plain=self._plain.per_token()).to_json()

    def _layer_costs(self, candidates: tuple[int, ...]) -> Any:
        from backends.engine.costs.timing import layer_costs

        depth = self._loaded.architecture.layers
        return layer_costs(self._plain, self._measured(candidates), depth)

    @functools.cached_property
    def _plain(self) -> Any:
        """The costs without exits."""
        return self._measured(())

    def _measured(self, layers: tuple[int, ...]) -> Any:
        """The costs of an executor with exits after these layers."""
        from backends.engine.costs.timing import measure

        executor = self._loaded.executor([self.head(layer) for layer in layers], slots=1)
        try:
            return measure(executor, self._chosen["max_drafts"])
        finally:
            executor.close()
