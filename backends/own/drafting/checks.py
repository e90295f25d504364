"""Whether a method's options fit the model, and what it reads beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from backends.checkpoints import models
from backends.checkpoints.draft_heads.check import (
    PUBLISHED,
    bundled,
    check_target,
    check_whole,
    head_kind,
)
from backends.checkpoints.draft_heads.files import (
    ABOUT,
    ARCHITECTURES,
    CONFIG,
    EAGLE3,
    EAGLE_LAYERS,
    eagle_config,
)
from backends.checkpoints.draft_models import (
    AUTO,
    draft_files,
    find_draft,
)
from backends.checkpoints.shapes.drafts import check_drafting, draft_folder
from backends.checkpoints.shapes.heads import DrawnHead, replayed_head
from backends.own.backend import LONGEST, EngineBackend, check_fit
from backends.own.drafting.sublayer_sets import find_set, read_set
from backends.own.drafting.traced import (
    NAME,
    PREFIX,
    Options,
    exit_layer,
    find_trace,
    traced_sublayers,
)
from harness.core.errors import UserError
from results.traces.recorded import DecisionTrace

if TYPE_CHECKING:
    from backends.engine.model.architecture import Architecture
    from backends.engine.sublayers.sets import Sublayers

NOT_COMPARED = {
    *("dtype", "torch_dtype", "max_position_embeddings"),
    *("bos_token_id", "eos_token_id", "pad_token_id"),
}
"""What an EAGLE-3 head's configuration may have of its own: nothing here reads it."""
OTHER_HEADS: Options = {
    **dict.fromkeys(("norm_before_residual", "norm_before_fc", "fc_norm", "eagle_config")),
    **dict.fromkeys(("rope_scaling", "rope_parameters", "sliding_window")),
    "rope_theta": 10000.0,
}
"""What makes a head compute something else than ours, where its target has it not, and the value
that is the same as none."""


def _check_layout(folder: Path) -> None:
    if kind := models.read_config(folder).get(PUBLISHED):
        raise UserError(
            f"{PREFIX} 'draft': {folder}: is a head ({kind}) in the layout of the library "
            "speculators, which 'vllm-speculative' reads; the engine's own are those of "
            "`decodebench train eagle`"
        )


def _check_whole(folder: Path) -> None:
    _check_layout(folder)
    check_whole(PREFIX, folder, (EAGLE3,))


def check_draft(folder: Path, options: Options) -> None:
    """Raise `UserError` for a draft model that the engine cannot take."""
    found = models.architecture(folder)
    if found not in EngineBackend.families:
        raise UserError(f"{PREFIX} 'draft': {folder}: architecture {found} is not one it takes")
    try:
        check_fit(NAME, folder, options)
    except UserError as error:
        raise UserError(f"{PREFIX} 'draft': {error}") from None


def check_draft_model(model_dir: Path, shape: Architecture, options: Options) -> None:
    """Raise `UserError` for a draft model that does not fit the model."""
    longest = options["max_model_len"] or min(shape.positions, LONGEST)
    fitting = {**options, "max_model_len": longest}
    check_drafting(
        PREFIX,
        model_dir,
        options,
        longest,
        _check_whole,
        lambda folder: check_draft(folder, fitting),
    )


def draft_model_files(model_dir: Path, options: Options) -> list[Path]:
    """The draft model. Raises `UserError`."""
    return draft_files(draft_folder(PREFIX, model_dir, options))


def eagle_folder(model_dir: Path, options: Options) -> Path:
    """Where the EAGLE-3 head lies. Raises `UserError`."""
    name = options["draft"]
    if name == AUTO:
        return bundled(PREFIX, EAGLE3, model_dir)
    return find_draft(PREFIX, name, model_dir)


def _drawn_head(model_dir: Path, options: Options) -> DrawnHead | None:
    return replayed_head(PREFIX, options, model_dir, find_trace(options))


def eagle_head(model_dir: Path, options: Options) -> Path:
    """Where the EAGLE-3 head lies, made now if it is one of random weights. Raises `UserError`."""
    drawn = _drawn_head(model_dir, options)
    return eagle_folder(model_dir, options) if drawn is None else drawn.made(PREFIX)


def eagle_layers(folder: Path) -> list[int]:
    """After how many layers of the model a head reads states. Raises `UserError`."""
    layers = models.read_config(folder).get(EAGLE_LAYERS)
    if not isinstance(layers, list) or not layers or len(set(map(str, layers))) < len(layers):
        raise UserError(
            f"{PREFIX} 'draft': {folder / CONFIG}: {EAGLE_LAYERS}: is {layers}; expected different "
            "layers"
        )
    return layers


def check_eagle(model_dir: Path, shape: Architecture, options: Options) -> None:
    """Raise `UserError` for a head of another model or other sizes, before anything is loaded."""
    from backends.engine.drafters.eagle.weights import open_eagle
    from backends.engine.model.architecture import EngineError

    if (drawn := _drawn_head(model_dir, options)) is not None:
        drawn.check()
        return
    folder = eagle_folder(model_dir, options)
    named = models.architecture(folder)
    if named in EngineBackend.families and head_kind(folder) is None:
        raise UserError(
            f"{PREFIX} 'draft': {folder}: architecture {named} is that of a whole model; "
            f"expected a head, {ARCHITECTURES[EAGLE3]}"
        )
    _check_layout(folder)
    check_target(PREFIX, EAGLE3, folder, model_dir)
    layers = eagle_layers(folder)
    found = models.read_config(folder)
    ours = eagle_config(model_dir, layers)
    if named in EngineBackend.families:  # its tensors have told what it is
        del ours["architectures"]
    for key, expected in ours.items():
        if key in NOT_COMPARED or found.get(key) == expected:
            continue
        theirs = "missing" if found.get(key) is None else f"is {found[key]}"
        raise UserError(
            f"{PREFIX} 'draft': {folder / CONFIG}: {key}: {theirs}; expected {expected}: the "
            "head's layer has the model's sizes, as `decodebench train eagle` makes it"
        )
    for key, plain in OTHER_HEADS.items():
        if key not in ours and found.get(key) not in (None, False, {}, plain):
            raise UserError(
                f"{PREFIX} 'draft': {folder / CONFIG}: {key}: is {found[key]}; expected none: "
                "such a head computes what the engine's does not"
            )
    try:
        open_eagle(folder, shape, len(layers))
    except EngineError as error:
        raise UserError(f"{PREFIX} 'draft': {error}") from None


def eagle_files(model_dir: Path, options: Options) -> list[Path]:
    """The head. Raises `UserError`."""
    folder = eagle_head(model_dir, options)
    return [*draft_files(folder), *filter(Path.is_file, [folder / ABOUT])]


def find_left_out(model_dir: Path, layers: int, options: Options) -> Sublayers:
    """The set that drafting leaves out of a model of so many layers; in a replay the trace's, at
    the same depths. Raises `UserError` for one that is missing, another model's, or too large."""
    from backends.engine.model.architecture import EngineError
    from backends.engine.sublayers.sets import Sublayers, check_left_out

    trace = find_trace(options)
    if not isinstance(trace, DecisionTrace):
        return read_set(find_set(PREFIX, options["sublayers"], model_dir), model_dir, layers)
    if options["sublayers"] != AUTO:
        raise UserError(
            f"{PREFIX} 'sublayers': is {options['sublayers']}; expected auto: in a replay drafting "
            "leaves out what it left out in the trace"
        )
    attention, mlp, depth = traced_sublayers(trace)
    found = Sublayers(frozenset(attention), frozenset(mlp)).at_depth(depth, layers)
    try:
        check_left_out(found, layers)
    except EngineError as error:
        raise UserError(f"{PREFIX} 'replay': {error}") from None
    return found


def check_sublayers(model_dir: Path, shape: Architecture, options: Options) -> None:
    """Raise `UserError` for a set that does not fit."""
    find_left_out(model_dir, shape.layers, options)


def sublayer_files(model_dir: Path, options: Options) -> list[Path]:
    """The set of sublayers; none where a trace tells it. Raises `UserError`."""
    if options["replay"] is not None:
        return []
    return [find_set(PREFIX, options["sublayers"], model_dir)]


def check_exit(model_dir: Path, shape: Architecture, options: Options) -> None:
    """Raise `UserError` for a layer that the model has not got, or a replay would not draft at."""
    layer = options["exit_layer"]
    if layer != AUTO and layer >= shape.layers:
        raise UserError(f"{PREFIX} 'exit_layer': is {layer}; expected 1 to {shape.layers - 1}")
    exit_layer(shape.layers, options)


def check_skip(model_dir: Path, shape: Architecture, options: Options) -> None:
    """Raise `UserError` for a model that has nothing to leave out."""
    if shape.layers < 2:
        raise UserError(f"{PREFIX} 'method': swift needs 2 layers or more; the model has one")


def tree_rows(options: Options) -> int:
    """Most rows of LookAhead's trees, windows and guesses together."""
    rows: int = (options["window"] + options["guesses"]) * (options["ngram"] - 1)
    return rows


def check_lookahead(model_dir: Path, shape: Architecture, options: Options) -> None:
    """Raise `UserError` for windows that no pass or context holds."""
    from backends.engine.executors.trees import MOST_TREE_ROWS

    window, ngram, guesses = options["window"], options["ngram"], options["guesses"]
    longest = options["max_model_len"] or min(shape.positions, LONGEST)
    if (rows := tree_rows(options)) > MOST_TREE_ROWS:
        raise UserError(
            f"{PREFIX} 'window': (window {window} + guesses {guesses}) x (ngram {ngram} - 1) are "
            f"{rows} rows a pass; expected at most {MOST_TREE_ROWS}"
        )
    if window + ngram > longest:
        raise UserError(
            f"{PREFIX} 'window': window {window} + ngram {ngram} are more than a context of "
            f"{longest} tokens has"
        )
    if options["drafts"] != AUTO and options["drafts"] >= ngram:
        raise UserError(
            f"{PREFIX} 'drafts': is {options['drafts']}; expected at most ngram - 1, {ngram - 1}"
        )
