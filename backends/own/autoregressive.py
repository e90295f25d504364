"""Plain decoding on our own engine: the baseline that shares every kernel with `adadecode`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.checkpoints import traces
from backends.own.backend import OPTIONS, EngineBackend, Loaded, check_fit
from backends.own.decisions import Replayer
from harness.core.backend import Option
from harness.core.nouns import Model

NAME = "autoregressive"


class Autoregressive(EngineBackend):
    """Plain decoding on our own engine: one token per pass through all layers, continuous
    batching. The baseline of the methods on this engine."""

    OPTIONS: ClassVar[dict[str, Option]] = {
        **OPTIONS,
        "margins": Option(bool, False, "record the top-2 logit margin of each token (costs time)"),
    }

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for a checkpoint or sizes that the engine cannot take."""
        if options["replay"] is not None:
            traces.open_source(options["replay"], NAME)
        if model_dir is not None:
            check_fit(NAME, model_dir, options)

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """The trace that is replayed. Raises `UserError`."""
        return traces.files(options, NAME)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the model. Raises `UserError` for a checkpoint that the engine cannot take."""
        from backends.engine.decoder import Decoder

        assert model_dir is not None
        loaded = Loaded(NAME, model_dir, model, options)
        executor = loaded.executor()
        decoder = Decoder(
            executor, margins=options["margins"], prefill_tokens=options["prefill_tokens"]
        )
        decided = None if loaded.source is None else Replayer(loaded.source)
        return cls(decoder, executor, loaded.info(executor, {}), loaded.stop_ids, decided)
