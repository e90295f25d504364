"""Draft and verify on our own engine: drafts from a smaller model, from the text, or from the first
layers of the model itself. The text is plain decoding's at every temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from backends.checkpoints import models
from backends.checkpoints.draft_models import (
    AUTO,
    check_drafts,
    check_length,
    check_lookup,
    check_same_tokens,
    draft_files,
    find_draft,
)
from backends.own.backend import LONGEST, OPTIONS, EngineBackend, Loaded, check_fit
from harness.core.backend import Option
from harness.core.errors import UserError
from harness.core.names import DRAFT_US
from harness.core.nouns import Model

if TYPE_CHECKING:
    from backends.engine.drafters.base import Drafter

NAME = "speculative"
PREFIX = f"backend '{NAME}': option"
DRAFT_MODEL, LOOKUP, LAYERSKIP = "draft_model", "prompt_lookup", "layerskip"
METHODS = (DRAFT_MODEL, LOOKUP, LAYERSKIP)
MOST_DRAFTS = 15
MOST = {DRAFT_MODEL: 12, LOOKUP: 8, LAYERSKIP: 8}
"""Most tokens drafted for each verification, where their number is left open."""
HOPES = {DRAFT_MODEL: 0.9, LOOKUP: 0.3, LAYERSKIP: 0.8}
"""The acceptance of a first draft that is supposed before there were any."""
ALWAYS = -1.0
"""A threshold below every probability."""
BELONGS = {
    "draft": DRAFT_MODEL,
    "threshold": DRAFT_MODEL,
    "lookup_min": LOOKUP,
    "lookup_max": LOOKUP,
    "exit_layer": LAYERSKIP,
}
"""The one method that an option means something for."""


Made = tuple[Any, "Drafter", dict[str, Any]]
"""An executor of the model, what drafts for it, and options that took effect."""


class Speculative(EngineBackend):
    """Speculative decoding with one chain of drafts for each sequence."""

    OPTIONS: ClassVar[dict[str, Option]] = {
        **{name: option for name, option in OPTIONS.items() if name != "replay"},
        "method": Option(str, DRAFT_MODEL, "where drafts come from", choices=METHODS),
        "drafts": Option(
            int, AUTO, "tokens drafted for each verification; auto: as many as pay, none included, "
            "by measured costs and what has been accepted", minimum=1, maximum=MOST_DRAFTS,
            words=(AUTO,),
        ),
        "draft": Option(
            str, AUTO, "draft_model: a bundled name, a folder or a hub id; auto: the demo model's"
        ),
        "threshold": Option(
            float, 0.6, "draft_model: no draft follows one less probable than this", minimum=0,
            maximum=1,
        ),
        "lookup_min": Option(
            int, 2, "prompt_lookup: fewest tokens that must be found again", minimum=1
        ),
        "lookup_max": Option(
            int, 4, "prompt_lookup: most tokens that are looked for", minimum=1
        ),
        "exit_layer": Option(
            int, AUTO, "layerskip: the layers that draft; auto: a quarter of them", minimum=1,
            words=(AUTO,),
        ),
    }  # fmt: skip

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for options that go against one another, and for a draft model and
        sizes that do not fit the model."""
        method = options["method"]
        for name, own in BELONGS.items():
            if method != own and options[name] != cls.OPTIONS[name].default:
                raise UserError(f"{PREFIX} '{name}': belongs to method {own}, not {method}")
        check_lookup(PREFIX, options)
        if model_dir is None:
            return
        shape = check_fit(NAME, model_dir, options)
        if options["drafts"] != AUTO:
            check_drafts(PREFIX, options["drafts"], model_dir, options["max_model_len"])
        layer = options["exit_layer"]
        if layer != AUTO and layer >= shape.layers:
            raise UserError(f"{PREFIX} 'exit_layer': is {layer}; expected 1 to {shape.layers - 1}")
        if method == DRAFT_MODEL:
            folder = find_draft(PREFIX, options["draft"], model_dir)
            longest = options["max_model_len"] or min(shape.positions, LONGEST)
            check_same_tokens(PREFIX, folder, model_dir)
            check_length(PREFIX, folder, longest)
            _check_draft(folder, {**options, "max_model_len": longest})

    @classmethod
    def check_shape(cls, model_dir: Path, options: Mapping[str, Any]) -> None:
        """Raise `UserError`: nobody drafts what random weights say."""
        super().check_shape(model_dir, options)
        raise UserError("drafts for random weights are never accepted, and no trace is replayed")

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """The draft model's files. Raises `UserError`."""
        if options["method"] != DRAFT_MODEL:
            return []
        return draft_files(find_draft(PREFIX, options["draft"], model_dir))

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the model and what drafts for it. Raises `UserError` for what the engine cannot
        take."""
        from backends.engine.decoder import Decoder

        assert model_dir is not None
        loaded = Loaded(NAME, model_dir, model, {**options, "replay": None})
        make = {DRAFT_MODEL: _draft_model, LOOKUP: _lookup, LAYERSKIP: _layerskip}
        executor, drafter, effective = make[options["method"]](loaded, model_dir, model, options)
        decoder = Decoder(executor, drafter, prefill_tokens=options["prefill_tokens"])
        found = cls(decoder, executor, loaded.info(executor, effective), loaded.stop_ids)
        if not drafter.exits:
            found._clock.watch(drafter, "draft", count=DRAFT_US)
        return found


def _draft_model(loaded: Loaded, model_dir: Path, model: Model, options: Mapping[str, Any]) -> Made:
    from backends.engine.costs.draft_costs import DraftModelCosts
    from backends.engine.costs.row_costs import pass_costs
    from backends.engine.drafters.draft_model import DraftModel

    folder = find_draft(PREFIX, options["draft"], model_dir)
    own = {**options, "replay": None, "max_model_len": loaded.max_len}
    smaller, executor = Loaded(NAME, folder, model, own).executor(), loaded.executor()
    drafter = DraftModel(smaller, _most(options), options["threshold"])
    return _made(
        executor,
        drafter,
        options,
        lambda cost: DraftModelCosts(cost(executor), pass_costs(smaller)),
    )


def _lookup(loaded: Loaded, model_dir: Path, model: Model, options: Mapping[str, Any]) -> Made:
    from backends.engine.costs.draft_costs import LookupCosts
    from backends.engine.drafters.lookup import PromptLookup

    executor = loaded.executor()
    drafter = PromptLookup(
        executor.slots, _most(options), options["lookup_min"], options["lookup_max"]
    )
    return _made(executor, drafter, options, lambda cost: LookupCosts(cost(executor)))


def _layerskip(loaded: Loaded, model_dir: Path, model: Model, options: Mapping[str, Any]) -> Made:
    """LayerSkip (Elhoushi et al., 2024): a number of drafts from the first layers and the model's
    own head, without asking how sure they are; the layers' caches serve both."""
    from backends.engine.costs.draft_costs import FirstLayersCosts
    from backends.engine.drafters.exits import ExitDrafter, PredictionPolicy
    from backends.engine.model.heads import ExitHead

    layer = options["exit_layer"]
    if layer == AUTO:
        layer = max(1, loaded.architecture.layers // 4)
    executor = loaded.executor([ExitHead(layer, loaded.weights.head)])
    drafter = ExitDrafter(executor, PredictionPolicy((ALWAYS,), _most(options)))
    found = _made(
        *(executor, drafter, options),
        lambda cost: FirstLayersCosts(cost(executor, 0, 1), cost(executor, 1, 2)),
    )
    return found[0], found[1], {"exit_layer": layer}


def _most(options: Mapping[str, Any]) -> int:
    drafts = options["drafts"]
    return MOST[options["method"]] if drafts == AUTO else int(drafts)


def _made(
    executor: Any, drafter: Drafter, options: Mapping[str, Any], costs: Callable[[Any], Any]
) -> Made:
    """With a number of drafts that follows what they cost and bring, where it is left open."""
    if options["drafts"] != AUTO:
        return executor, drafter, {}
    from backends.engine.costs.row_costs import row_costs
    from backends.engine.drafters.adaptive import AdaptiveDrafts

    hope = HOPES[options["method"]]
    return executor, AdaptiveDrafts(drafter, costs(row_costs), hope), {}


def _check_draft(folder: Path, options: Mapping[str, Any]) -> None:
    """Raise `UserError` for a draft model that the engine cannot take."""
    found = models.architecture(folder)
    if found not in EngineBackend.families:
        raise UserError(f"{PREFIX} 'draft': {folder}: architecture {found} is not one it takes")
    try:
        check_fit(NAME, folder, options)
    except UserError as error:
        raise UserError(f"{PREFIX} 'draft': {error}") from None
