"""Whether a checkpoint's matrices are of the sizes that its ``config.json`` gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UserError

_AS_IT_LIES = (None, "auto", "hf", "safetensors")
"""Load formats by which vLLM reads a checkpoint's own tensors."""
_NO_SIZES = {
    "architectures", "rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings",
}  # fmt: skip
"""Fields of a configuration that no tensor's shape depends on."""
_QUANTISED = "hf_quant_config.json"
"""Says so beside a configuration that does not."""


def check_shapes(arguments: Mapping[str, Any]) -> None:
    """Raise `UserError` for the first tensor of another shape than the configuration asks for: of a
    wider matrix vLLM takes as much as it has room for, and answers something else. Reads headers
    alone, of the families that our own engine knows.

    Args:
        arguments: of vLLM's `EngineArgs`; none is checked that reads no weights or another
            configuration.
    """
    from backends.engine.model.architecture import EngineError, read_architecture
    from backends.engine.model.checkpoint import READ, Checkpoint
    from backends.engine.model.dimensions import tensor_shapes

    directory = Path(arguments["model"])
    if (
        set(arguments.get("hf_overrides") or ()) - _NO_SIZES
        or arguments.get("hf_config_path")
        or arguments.get("load_format") not in _AS_IT_LIES
        or (directory / _QUANTISED).exists()
    ):
        return
    try:
        expected = dict(tensor_shapes(read_architecture(directory)))
        stored = Checkpoint.open(directory).tensors
    except EngineError:  # another family, quantised, or files that vLLM reads in another way
        return
    for name, shape in expected.items():
        found = stored.get(name)
        # numbers of other kinds may be packed
        if found is not None and found.dtype in READ and found.shape != shape:
            raise UserError(
                f"{directory}: tensor {name} has shape {list(found.shape)}, and config.json "
                f"asks for {list(shape)}"
            )
