"""Which head drafts for a model, and whether it can: asked before anything is loaded."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.bound_files import read_bound
from backends.checkpoints.draft_heads.files import (
    ABOUT,
    ARCHITECTURES,
    CONFIG,
    EAGLE3,
    FORMAT,
    MEDUSA,
)
from backends.checkpoints.weight_files import tensor_names
from backends.engine.model.architecture import FAMILIES
from harness.core.errors import UserError

BUNDLED = {EAGLE3: models.DEMO / "eagle3"}
"""The demo model's heads, by kind."""
PUBLISHED = "speculators_model_type"
"""The key that tells the kind of a head in the layout of the library speculators."""
_NAMED = {
    EAGLE3: r"Eagle3\w+|\w+Eagle3",
    "eagle": r"Eagle\w+ForCausalLM|EagleDeepSeekMTPModel",
    MEDUSA: ARCHITECTURES[MEDUSA],
    "mlp_speculator": "MLPSpeculatorPreTrainedModel",
}
"""By kind, how vLLM's registry has the architectures of such heads."""


def bundled(prefix: str, kind: str, model_dir: Path) -> Path:
    """The folder of the demo model's head of a kind. Raises `UserError`, which begins with
    `prefix`, where there is none or the model is another."""
    if kind not in BUNDLED or not models.is_demo(model_dir):
        raise UserError(
            f"{prefix} 'method': {kind} needs a trained head, and none is bundled for this model: "
            "name it as 'draft'"
        )
    return BUNDLED[kind]


def head_kind(folder: Path) -> str | None:
    """The method that a head drafts by, as its configuration tells, or its tensors where that has
    its target's architecture; None where they tell of none. Raises `UserError`."""
    config, named = models.read_config(folder), models.architecture(folder) or ""
    if published := config.get(PUBLISHED):
        return EAGLE3 if published == "peagle" else str(published)
    # the first ones that were published name no architecture
    if config.get("model_type") == MEDUSA or "medusa_num_heads" in config:
        return MEDUSA
    if named in FAMILIES:  # vLLM takes such ones too
        tensors = {t for path in folder.glob("*.safetensors") for t in tensor_names(path)}
        of_eagle3 = config.get("draft_vocab_size") or "d2t" in tensors
        if of_eagle3 or any(t.startswith("midlayer.") for t in tensors):
            return EAGLE3
        return "eagle" if "fc.weight" in tensors else None
    return next((kind for kind, of in _NAMED.items() if re.fullmatch(of, named)), None)


def check_whole(prefix: str, folder: Path, methods: Collection[str]) -> None:
    """Raise `UserError`, beginning with `prefix`, for a head where a whole model is expected;
    `methods` are those of the backend for which there are heads that it loads."""
    if (kind := head_kind(folder)) is not None:
        # of the published layout vLLM reads no other kind of these
        loads = kind == EAGLE3 or PUBLISHED not in models.read_config(folder)
        hint = f"; say 'method: {kind}'" if kind in methods and loads else ""
        raise UserError(
            f"{prefix} 'draft': {folder}: is a head of method {kind}, not a model{hint}"
        )


def check_target(prefix: str, kind: str, folder: Path, model_dir: Path) -> None:
    """Raise `UserError`, beginning with `prefix`, for a head that was made for another target.

    One trained here tells by the checksum; of any other the sizes are compared.
    """
    if (other := head_kind(folder)) not in (None, kind):
        raise UserError(f"{prefix} 'draft': {folder}: is a head of method {other}, not {kind}")
    if (folder / ABOUT).is_file():
        try:
            about = read_bound(folder / ABOUT, model_dir, FORMAT, "kind", "finished")
        except UserError as error:
            raise UserError(f"{prefix} 'draft': {error}") from None
        if about["kind"] != kind:
            raise UserError(
                f"{prefix} 'draft': {folder}: is a head of method {about['kind']}, not {kind}"
            )
    theirs, ours = models.read_config(folder), models.read_config(model_dir)
    _check_sizes(f"{prefix} 'draft': {folder / CONFIG}", theirs, ours)


def check_number(prefix: str, folder: Path, drafts: int) -> None:
    """Raise `UserError`, beginning with `prefix`, for more drafts than Medusa heads: vLLM would
    draft with weights that no file holds."""
    config = models.read_config(folder)
    heads = config.get("medusa_num_heads", config.get("num_heads"))
    medusa = models.architecture(folder) == ARCHITECTURES[MEDUSA]
    if medusa and isinstance(heads, int) and drafts > heads:
        raise UserError(
            f"{prefix} 'drafts': is {drafts}; expected at most {heads}, the heads in {folder}"
        )


def _check_sizes(where: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    keys = {"vocab_size": "vocab_size", "hidden_size": "hidden_size"}
    if "target_hidden_size" in theirs:
        keys["hidden_size"] = "target_hidden_size"
    for key, there in keys.items():
        found = theirs.get(there)
        if found is not None and key in ours and found != ours[key]:
            raise UserError(f"{where}: {there}: is {found}; expected the model's {ours[key]}")
    depth = ours.get("num_hidden_layers")
    for layer in theirs.get("eagle_aux_hidden_state_layer_ids") or ():
        if isinstance(depth, int) and not (isinstance(layer, int) and 0 <= layer <= depth):
            raise UserError(
                f"{where}: eagle_aux_hidden_state_layer_ids: {layer!r}: expected 0 to {depth}, "
                "the model's layers"
            )
