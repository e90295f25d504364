"""Plain decoding on our own engine: the baseline that shares every kernel with `adadecode`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.own.backend import OPTIONS, EngineBackend, Loaded, check_fit
from harness.core.backend import Option
from harness.core.nouns import Model


class Autoregressive(EngineBackend):
    """One token per pass through all layers, continuous batching."""

    OPTIONS: ClassVar[dict[str, Option]] = {
        **OPTIONS,
        "margins": Option(bool, False, "record the top-2 logit margin of each token (costs time)"),
    }

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for a checkpoint or sizes that the engine cannot take."""
        if model_dir is not None:
            check_fit("autoregressive", model_dir, options)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the model. Raises `UserError` for a checkpoint that the engine cannot take."""
        from backends.engine.decoder import Decoder

        assert model_dir is not None
        loaded = Loaded("autoregressive", model_dir, model, options)
        executor = loaded.executor()
        decoder = Decoder(
            executor, margins=options["margins"], prefill_tokens=options["prefill_tokens"]
        )
        return cls(decoder, executor, loaded.info(executor, {}), loaded.stop_ids)
