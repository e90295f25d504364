"""Plain decoding on our own engine: the baseline that shares every kernel with `adadecode`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from backends import Option
from backends.own.backend import OPTIONS, EngineBackend, Loaded, check_fit, settings
from harness.core.errors import UserError
from harness.core.nouns import Model


class Autoregressive:
    """One token per pass through all layers, continuous batching."""

    OPTIONS: ClassVar[dict[str, Option]] = {
        **OPTIONS,
        "margins": Option(bool, False, "record the top-2 logit margin of each token (costs time)"),
    }
    needs_model = True

    @classmethod
    def warnings(cls, model_dir: Path, options: Mapping[str, Any]) -> list[str]:
        """Raise `UserError` for a checkpoint or sizes that the engine cannot take. There is nothing
        to warn of."""
        check_fit("autoregressive", model_dir, settings(options, cls.OPTIONS))
        return []

    @classmethod
    def open(
        cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]
    ) -> EngineBackend:
        """Load the model. Raises `UserError` for a checkpoint that the engine cannot take."""
        from backends.engine.decoder import Decoder

        if model_dir is None:
            raise UserError("backend 'autoregressive' needs a model")
        chosen = settings(options, cls.OPTIONS)
        loaded = Loaded("autoregressive", model_dir, model, chosen)
        executor = loaded.executor()
        decoder = Decoder(executor, margins=chosen["margins"])
        return loaded.backend(decoder, executor, {})
