"""Whether a checkpoint's matrices are of the sizes that its ``config.json`` gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UserError


def check_shapes(arguments: Mapping[str, Any]) -> None:
    """Raise `UserError` for the first tensor of another shape than the configuration asks for: of a
    wider matrix vLLM takes as much as it has room for, and answers something else. Reads headers
    alone, of the families that our own engine knows.

    Args:
        arguments: of vLLM's `EngineArgs`; none is checked that reads no weights or another
            configuration.
    """
    from backends.engine.model.architecture import EngineError, read_architecture
    from backends.engine.model.checkpoint import Checkpoint
    from backends.engine.model.dimensions import tensor_shapes

    overrides = set(arguments.get("hf_overrides") or ()) - {"architectures"}
    if overrides or arguments.get("load_format") == "dummy":
        return
    directory = Path(arguments["model"])
    try:
        expected = dict(tensor_shapes(read_architecture(directory)))
        stored = Checkpoint.open(directory).tensors
    except EngineError:  # another family, quantised, or files that vLLM reads in another way
        return
    for name, shape in expected.items():
        if name in stored and stored[name].shape != shape:
            raise UserError(
                f"{directory}: tensor {name} has shape {list(stored[name].shape)}, and config.json "
                f"asks for {list(shape)}"
            )
