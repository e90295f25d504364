"""Which exits `adadecode` has: those asked for, and the best of those left open."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backends.checkpoints import exit_heads
from backends.checkpoints.exit_heads import AUTO, HeadFolder
from backends.engine.model.architecture import Architecture
from harness.core.errors import UserError, runs_elsewhere
from harness.core.nouns import Measured
from results.traces import played
from results.traces.rates import TraceSource

if TYPE_CHECKING:
    from backends.engine.costs.cost_model import Replay, Trace
    from backends.engine.segments.fills import ExitRates
    from backends.own.backend import Loaded

BACKEND = "backend 'adadecode':"
PREFIX = f"{BACKEND} option"
PAPER_GAMMA = 0.75
EIGHT_BITS = "fp8"

Exits = tuple[tuple[int, ...], tuple[float, ...], float | None]
"""Layers, thresholds, and the speed-up that a trace predicts for them."""


def check_head_dtype(options: Mapping[str, Any]) -> None:
    """Raise `UserError` for heads of 8 bits where no kernel takes them."""
    import torch

    if options["head_dtype"] != EIGHT_BITS or runs_elsewhere():
        return
    name, asks = f"{PREFIX} 'head_dtype'", "fp8 heads run on Triton's kernels"
    if not torch.cuda.is_available() or options["kernels"] not in ("auto", "triton"):
        raise UserError(f"{name}: {asks}, on a GPU; expected auto")
    if torch.cuda.get_device_capability() < (8, 9):
        device = torch.cuda.get_device_name()
        raise UserError(f"{name}: {asks}, of compute capability 8.9 on, not on {device}")


class ExitQuestion:
    """What the options say of the exits, and what is left open.

    Raises `UserError` for layers that there are not, for a shortlist that cannot be, and for a
    trace or rates that lack what is asked of them.

    Args:
        shape: of the model.
        trained: the layers with heads, where heads were trained; None for the model's own head.
        options: of the backend.
        source: what is replayed.
    """

    def __init__(
        self,
        shape: Architecture,
        trained: tuple[int, ...] | None,
        options: Mapping[str, Any],
        source: TraceSource | None,
    ) -> None:
        self._depth, self._source, self.gamma = shape.layers, source, options["gamma"]
        if self._depth < 2:
            raise UserError(f"{BACKEND} a model of 1 layer has no exit before its end")
        self._check_shortlist(options["shortlist"], shape.vocabulary, trained)
        available = tuple(range(1, self._depth)) if trained is None else trained
        self.asked: tuple[int, ...] | None = None
        """The layers that were asked for by number."""
        if options["exit_layers"] != AUTO:
            where = f"{PREFIX} 'exit_layers'"
            self.asked = exit_heads.check_layers(options["exit_layers"], available, where)
        self.candidates = available
        """The layers after which there can be an exit."""
        if source is not None:
            self._fit_source(source, available)

    def columns(self, layers: Sequence[int]) -> tuple[int, ...]:
        """The exits of the replayed trace that those after these layers replay."""
        assert self._source is not None
        return played.columns(self._source, layers, self._depth, f"{PREFIX} 'replay'")

    def _check_shortlist(
        self, size: int | None, vocabulary: int, trained: tuple[int, ...] | None
    ) -> None:
        if size is not None and trained is None and self._source is None:
            raise UserError(f"{PREFIX} 'shortlist' needs trained heads")
        if size is not None and size > vocabulary:
            raise UserError(
                f"{PREFIX} 'shortlist': {size} is more than the vocabulary of {vocabulary}"
            )

    def _fit_source(self, source: TraceSource, available: Sequence[int]) -> None:
        mapped = played.own_layers(source, self._depth)
        if not mapped:
            raise UserError(f"{PREFIX} 'replay': the rates have no 'exits'")
        self.candidates = tuple(layer for layer in mapped if layer in available)
        if not self.candidates and self.asked is None:
            raise UserError(
                f"{PREFIX} 'replay': the exits of the trace come to layers {list(mapped)}, and the "
                f"heads are for {list(available)}; give exit_layers"
            )
        layers = self.candidates if self.asked is None else self.asked
        chosen = self.columns(layers)
        if self.gamma != AUTO:
            played.check_known(source, chosen, [self.gamma] * len(chosen), f"{PREFIX} 'replay'")

    def replayed(self) -> Exits | Trace:
        """What a replay leaves at: layers and thresholds, as it was recorded where a trace knows no
        other; else the trace, at the candidates, for a choice to be made on it."""
        from backends.engine.costs.exit_choice import GAMMAS

        source, gamma = self._source, self.gamma
        assert source is not None
        layers = self.candidates if self.asked is None else self.asked
        chosen = self.columns(layers)
        rows = source.samples()
        if all(row.answer_tokens < 2 for row in rows):
            return (), (), None
        if not any(played.unknown(row, [c], [max(GAMMAS)]) for row in rows for c in chosen):
            from backends.own.choice_trace import choice_trace

            return choice_trace(rows, layers, chosen)
        gammas = tuple(source.thresholds[c] if gamma == AUTO else gamma for c in chosen)
        return layers, gammas, None


class ChosenExits:
    """Exit layers and thresholds on a loaded model: measured where they are to be chosen."""

    def __init__(
        self, loaded: Loaded, folder: HeadFolder | None, options: Mapping[str, Any]
    ) -> None:
        self._loaded, self._folder, self._options = loaded, folder, options
        trained = None if folder is None else folder.layers
        self.question = ExitQuestion(loaded.architecture, trained, options, loaded.source)
        self._heads: dict[int, Any] = {}
        self._played: Replay | None = None
        """What the choice does on the trace that it was made on."""

    def choose(self) -> Exits:
        """What was asked for, and the best of what was not."""
        found = self._choice()
        self._heads = {layer: head for layer, head in self._heads.items() if layer in found[0]}
        return found

    def _choice(self) -> Exits:
        if self._loaded.source is not None:
            found = self.question.replayed()
            return found if isinstance(found, tuple) else self._best(found)
        if self._folder is None:
            gamma = self.question.gamma
            layers = self.question.asked or exit_heads.quarters(self._loaded.architecture.layers)
            return layers, (PAPER_GAMMA if gamma == AUTO else gamma,) * len(layers), None
        return self._best(self._folder.trace())

    def _best(self, trace: Trace) -> Exits:
        """The exits that decode a trace fastest at this machine's costs of this model."""
        from backends.engine.costs.cost_model import replay
        from backends.engine.costs.exit_choice import GAMMAS, choose, tune

        question, drafts = self.question, self._options["max_drafts"]
        gammas = GAMMAS if question.gamma == AUTO else (question.gamma,)
        if question.asked is None:
            costs = self._layer_costs(question.candidates)
            found = choose(trace, costs, question.candidates, drafts, gammas=gammas)
        else:
            costs = self._layer_costs(question.asked)
            found = tune(trace, costs, question.asked, drafts, gammas=gammas)
        if found.layers:
            cut = costs.cut(found.layers)
            self._played = replay(trace, found.layers, found.gammas, cut, drafts)
        return found.layers, found.gammas, found.speedup

    def head(self, layer: int) -> Any:
        """The exit head after `layer`: made once for all executors that are measured with it."""
        if layer not in self._heads:
            self._heads[layer] = self._made_head(layer)
        return self._heads[layer]

    def _made_head(self, layer: int) -> Any:
        import torch

        from backends.engine.model.heads import ExitHead, in_8_bits

        if self._folder is None and self._heads:  # all layers have the model's own
            return replace(next(iter(self._heads.values())), layer=layer)
        final, size = self._loaded.weights.head, self._options["shortlist"]
        matrix = final if self._folder is None else self._folder.matrix(layer, final)
        if size is None:
            head = ExitHead(layer, matrix)
        else:
            kept = torch.arange(size) if self._folder is None else self._folder.shortlist(size)
            head = ExitHead(layer, matrix[kept.to(matrix.device)].contiguous(), kept)
        return in_8_bits(head) if self._options["head_dtype"] == EIGHT_BITS else head

    def rates(self, exits: Sequence[int]) -> ExitRates:
        """What becomes of tokens at the chosen exits: on the trace, or assumed without one."""
        from backends.engine.segments.fills import assumed, rates_of

        return assumed(exits) if self._played is None else rates_of(self._played)

    def measured(self, executor: Any, promised: float | None) -> Measured:
        """What segments and heads take where decoding runs them, and plain decoding; and the
        speed-up that the trace promises at these costs, else what was `promised`."""
        from backends.engine.costs.cycles import cycle_costs

        drafts = self._options["max_drafts"]
        if not executor.exits:
            plain = replace(self._plain, plain=self._plain.per_token())
            return Measured(costs=plain.to_json(), predicted_speedup=promised)
        found = cycle_costs(executor, self.rates(executor.exits).leaves, drafts)
        if self._played is not None:
            promised = self._played.at(found, drafts)
        return Measured(costs=found.to_json(), predicted_speedup=promised)

    def _layer_costs(self, candidates: tuple[int, ...]) -> Any:
        from backends.engine.costs.timing import layer_costs

        depth = self._loaded.architecture.layers
        return layer_costs(self._plain, self._measured(candidates, full=False), depth)

    @functools.cached_property
    def _plain(self) -> Any:
        """The costs without exits."""
        return self._measured(())

    def _measured(self, layers: tuple[int, ...], *, full: bool = True) -> Any:
        """The costs of an executor with exits after these layers; `full`: of all rows, too."""
        from backends.engine.costs.timing import measure

        executor = self._loaded.executor([self.head(layer) for layer in layers], slots=1)
        try:
            return measure(executor, self._options["max_drafts"], full=full)
        finally:
            executor.close()
