"""What the methods of speculative decoding on our own engine need, a `Method` each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.checkpoints.draft_heads.files import EAGLE3
from backends.checkpoints.draft_models import AUTO, find_draft
from backends.checkpoints.draft_traces import STATES_AFTER
from backends.checkpoints.shapes.drafts import drafting_shape
from backends.own.backend import Loaded
from backends.own.drafting.checks import (
    check_draft_model,
    check_eagle,
    check_exit,
    check_lookahead,
    check_skip,
    check_sublayers,
    draft_model_files,
    eagle_files,
    eagle_head,
    eagle_layers,
    find_left_out,
    sublayer_files,
    tree_rows,
)
from backends.own.drafting.decisions import watched
from backends.own.drafting.sublayer_sets import ATTENTION, MLP
from backends.own.drafting.traced import (
    NAME,
    PREFIX,
    Options,
    exit_layer,
    threshold,
)
from backends.own.drafting.tree_decisions import TreeReplayer
from harness.core.errors import UserError
from harness.core.nouns import Model

if TYPE_CHECKING:
    from backends.engine.drafters.adaptive import DraftCosts
    from backends.engine.drafters.base import Drafter
    from backends.engine.drafters.trees.base import TreeDrafter
    from backends.engine.model.architecture import Architecture

NO_THRESHOLD = 0.0
"""The threshold of a chain that goes on however unsure it is."""
NEVER = 10**9
"""Rounds before a search that is not to be timed."""
LOOKAHEAD = "lookahead"
"""The method whose drafts are trees."""

Made = tuple[Any, "Drafter | TreeDrafter", dict[str, Any]]
"""An executor of the model, what drafts for it, and options that took effect."""


def _nothing(model_dir: Path, shape: Architecture, options: Options) -> None:
    """Nothing to check."""


def _no_files(model_dir: Path, options: Options) -> list[Path]:
    return []


@dataclass(frozen=True, slots=True)
class Method:
    """One way to draft."""

    make: Callable[[Loaded, Path, Model, Options], Made]
    options: tuple[str, ...]
    """The backend's options that mean something for this method alone."""
    most: int
    """Most tokens drafted for each verification, where their number is left open."""
    hope: float
    """The acceptance of a first draft that is supposed before there were any."""
    check: Callable[[Path, Architecture, Options], None] = _nothing
    """Raises `UserError` for options that do not fit the model."""
    files: Callable[[Path, Options], list[Path]] = _no_files
    """What it reads beside the model. Raises `UserError`."""


def _draft_model(loaded: Loaded, model_dir: Path, model: Model, options: Options) -> Made:
    from backends.engine.costs.draft_costs import DraftModelCosts
    from backends.engine.costs.steps import whole_steps
    from backends.engine.drafters.draft_model import DraftModel

    shape = drafting_shape(PREFIX, model_dir, options)
    folder = shape.generated() if shape else find_draft(PREFIX, options["draft"], model_dir)
    own = {**options, "replay": None, "max_model_len": loaded.max_len}
    smaller, executor = Loaded(NAME, folder, model, own).executor(), loaded.executor()
    loaded.beside.append(smaller)
    most = _most(options)

    def costs() -> DraftCosts:
        parts = DraftModelCosts.measure(executor, smaller).with_reading(smaller, smaller.read)
        return whole_steps(parts, executor, DraftModel(smaller, most, NO_THRESHOLD))

    drafter = DraftModel(smaller, most, threshold(options))
    found = _made(executor, watched(drafter, loaded.decided), options, costs)
    return found[0], found[1], {"draft": shape.label} if shape else {}


def _lookup(loaded: Loaded, model_dir: Path, model: Model, options: Options) -> Made:
    from backends.engine.costs.draft_costs import LookupCosts
    from backends.engine.costs.row_costs import row_costs
    from backends.engine.costs.steps import whole_steps
    from backends.engine.drafters.lookup import PromptLookup

    executor = loaded.executor()
    drafter = PromptLookup(
        executor.slots, _most(options), options["lookup_min"], options["lookup_max"]
    )
    return _made(
        *(executor, watched(drafter, loaded.decided), options),
        lambda: whole_steps(LookupCosts(row_costs(executor)), executor, drafter),
    )


def _layerskip(loaded: Loaded, model_dir: Path, model: Model, options: Options) -> Made:
    """LayerSkip: a number of drafts from the first layers and the model's own head."""
    from backends.engine.costs.draft_costs import FirstLayersCosts
    from backends.engine.costs.row_costs import row_costs
    from backends.engine.costs.steps import whole_steps
    from backends.engine.drafters.first_layers import FirstLayers
    from backends.engine.model.heads import ExitHead

    layer = exit_layer(loaded.architecture.layers, options)
    executor = loaded.executor([ExitHead(layer, loaded.weights.head)])
    most = _most(options)

    def costs() -> DraftCosts:
        parts = FirstLayersCosts(row_costs(executor, 0, 1), row_costs(executor, 1, 2))
        return whole_steps(parts, executor, FirstLayers(executor, most))

    found = _made(executor, FirstLayers(executor, most, loaded.decided), options, costs)
    return found[0], found[1], {"exit_layer": layer}


def _self_speculation(loaded: Loaded, model_dir: Path, model: Model, options: Options) -> Made:
    from backends.engine.costs.draft_costs import DraftModelCosts
    from backends.engine.costs.steps import whole_steps
    from backends.engine.drafters.sublayers import SublayerDrafts

    executor, layers = loaded.executor(), loaded.architecture.layers
    left_out = find_left_out(model_dir, layers, options)
    sizes = executor, left_out, _most(options)

    def costs() -> DraftCosts:
        parts = DraftModelCosts.measure(executor, executor.skipping(left_out))
        return whole_steps(parts, executor, SublayerDrafts(*sizes, NO_THRESHOLD))

    drafter = SublayerDrafts(*sizes, threshold(options))
    found = _made(executor, watched(drafter, loaded.decided), options, costs)
    return found[0], found[1], {ATTENTION: sorted(left_out.attention), MLP: sorted(left_out.mlp)}


def _swift(loaded: Loaded, model_dir: Path, model: Model, options: Options) -> Made:
    from backends.engine.costs.draft_costs import DraftModelCosts, PartialPass, SearchCosts
    from backends.engine.costs.row_costs import row_costs, turn_us
    from backends.engine.costs.steps import whole_steps
    from backends.engine.drafters.swift import WINDOW, SwiftDrafts
    from backends.engine.sublayers.sets import Sublayers

    executor = loaded.executor()
    sizes = executor, options["skip"], _most(options)
    drafter = SwiftDrafts(*sizes, threshold(options))

    def costs() -> SearchCosts:
        verify = row_costs(executor)
        draft = PartialPass.measure(executor, lambda: drafter.left_out)
        turn = turn_us(executor, executor.skipping(Sublayers()), verify, draft.whole)
        timed = SwiftDrafts(*sizes, NO_THRESHOLD, interval=NEVER)
        whole = whole_steps(DraftModelCosts(verify, draft, turn), executor, timed)
        return SearchCosts(whole, verify, lambda: drafter.search_passes, WINDOW)

    return _made(executor, watched(drafter, loaded.decided), options, costs)


def _lookahead(loaded: Loaded, model_dir: Path, model: Model, options: Options) -> Made:
    """LookAhead decoding: an n-gram pool that the verifying passes fill themselves."""
    from backends.engine.costs.draft_costs import LookAheadCosts
    from backends.engine.costs.row_costs import row_costs, tree_factor
    from backends.engine.drafters.trees.adaptive import AdaptiveTrees
    from backends.engine.drafters.trees.lookahead import LookAhead
    from backends.engine.executors.trees import widest
    from backends.engine.passes import numbers

    executor, decided = loaded.executor(), loaded.decided
    if loaded.kernels == "triton":  # graphs are captured now, and not when a request comes
        executor.trees.run(widest(executor.slots, tree_rows(options)), numbers([]))
    drafter = LookAhead(
        executor.max_len,
        *(options["window"], options["ngram"], options["guesses"]),
        pool_prompt=options["pool_prompt"],
        max_drafts=_most(options),
        offered=decided.offered if isinstance(decided, TreeReplayer) else None,
    )
    if options["drafts"] != AUTO:
        return executor, drafter, {}
    costs = LookAheadCosts(row_costs(executor), tree_factor(executor, drafter.usual()))
    hope = 1 + METHODS[LOOKAHEAD].hope
    return executor, AdaptiveTrees(drafter, costs, len(drafter.usual().tokens), hope), {}


def _eagle(loaded: Loaded, model_dir: Path, model: Model, options: Options) -> Made:
    """EAGLE-3 (Li et al., 2025): a trained layer that reads the model's own states."""
    from backends.engine.costs.draft_costs import DraftModelCosts
    from backends.engine.costs.steps import whole_steps
    from backends.engine.drafters.eagle.drafter import EagleDrafts

    executor = loaded.executor()
    folder = eagle_head(model_dir, options)
    layers = eagle_layers(folder)
    head = _eagle_head(loaded, executor, folder, layers, options)
    loaded.beside.append(head)
    most = _most(options)

    def costs() -> DraftCosts:
        parts = DraftModelCosts.measure(executor, head)
        parts = parts.with_reading(head, head.catch_up, anew=True)
        return whole_steps(parts, executor, EagleDrafts(head, most, NO_THRESHOLD))

    drafter = EagleDrafts(head, most, threshold(options))
    found = _made(executor, watched(drafter, loaded.decided), options, costs)
    return found[0], found[1], {STATES_AFTER: layers}


def _eagle_head(
    loaded: Loaded,
    executor: Any,
    folder: Path,
    layers: Sequence[int],
    options: Options,
) -> Any:
    """An `EagleExecutor` beside the model's executor. Raises `UserError` for broken weights."""
    from backends.engine.drafters.eagle.native_head import NativeEagle
    from backends.engine.drafters.eagle.torch_head import TorchEagle
    from backends.engine.drafters.eagle.weights import load_eagle
    from backends.engine.model.architecture import EngineError

    shape, target = loaded.architecture, loaded.weights
    try:
        own = load_eagle(folder, shape, len(layers), target.embedding.dtype, loaded.device)
    except EngineError as error:
        raise UserError(f"{PREFIX} 'draft': {error}") from None
    beside = own, target, shape, executor.keep_states(layers)
    sizes = {"slots": executor.slots, "max_len": executor.max_len}
    if loaded.kernels == "native":
        return NativeEagle(*beside, **sizes, threads=options["threads"])
    if loaded.kernels == "triton":
        from backends.engine.drafters.eagle.cuda_head import CudaEagle
        from backends.engine.executors.cuda_calls.layers import rows_for

        return CudaEagle(*beside, **sizes, rows=rows_for(executor.slots))
    return TorchEagle(*beside, **sizes)


def _most(options: Options) -> int:
    drafts = options["drafts"]
    return METHODS[options["method"]].most if drafts == AUTO else int(drafts)


def _made(
    executor: Any, drafter: Drafter, options: Options, costs: Callable[[], DraftCosts]
) -> Made:
    """With a number of drafts that follows what they cost and bring, where it is left open."""
    if options["drafts"] != AUTO:
        return executor, drafter, {}
    from backends.engine.costs.paying import Paying
    from backends.engine.drafters.adaptive import AdaptiveDrafts

    method = METHODS[options["method"]]
    # what is below a threshold would hardly have stood: half of what falls never comes
    is_choosy = "threshold" in method.options and options["threshold"] > 0
    comes = math.sqrt(method.hope) if is_choosy else 1.0
    return executor, AdaptiveDrafts(drafter, costs(), method.hope, comes, Paying()), {}


METHODS = {
    "draft_model": Method(
        *(_draft_model, ("draft", "threshold"), 12, 0.9),
        *(check_draft_model, draft_model_files),
    ),
    EAGLE3: Method(_eagle, ("draft", "threshold"), 8, 0.8, check_eagle, eagle_files),
    "prompt_lookup": Method(_lookup, ("lookup_min", "lookup_max"), 8, 0.3),
    "layerskip": Method(_layerskip, ("exit_layer",), 8, 0.8, check_exit),
    "self_speculation": Method(
        *(_self_speculation, ("sublayers", "threshold"), 12, 0.8),
        *(check_sublayers, sublayer_files),
    ),
    "swift": Method(_swift, ("skip", "threshold"), 12, 0.8, check_skip),
    LOOKAHEAD: Method(
        _lookahead, ("window", "ngram", "guesses", "pool_prompt"), 15, 0.7, check_lookahead
    ),
}
