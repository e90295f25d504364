"""Draft and verify on our own engine: drafts from a smaller model, from the text, or from the first
layers of the model itself. The text is plain decoding's at every temperature.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.checkpoints.draft_models import AUTO, check_drafts, check_lookup
from backends.own.backend import OPTIONS, EngineBackend, Loaded, check_fit
from backends.own.draft_methods import METHODS, NAME, PREFIX
from harness.core.backend import Option
from harness.core.errors import UserError
from harness.core.names import DRAFT_US
from harness.core.nouns import Model

MOST_DRAFTS = 15


class Speculative(EngineBackend):
    """Speculative decoding with one chain of drafts for each sequence."""

    OPTIONS: ClassVar[dict[str, Option]] = {
        **{name: option for name, option in OPTIONS.items() if name != "replay"},
        "method": Option(
            str, "draft_model", "where drafts come from", choices=tuple(METHODS)
        ),
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
        chosen = METHODS[options["method"]]
        for name, method in METHODS.items():
            for own in set(method.options) - set(chosen.options):
                if options[own] != cls.OPTIONS[own].default:
                    raise UserError(
                        f"{PREFIX} '{own}': belongs to method {name}, not {options['method']}"
                    )
        check_lookup(PREFIX, options)
        if model_dir is None:
            return
        shape = check_fit(NAME, model_dir, options)
        if options["drafts"] != AUTO:
            check_drafts(PREFIX, options["drafts"], model_dir, options["max_model_len"])
        chosen.check(model_dir, shape, options)

    @classmethod
    def check_shape(cls, model_dir: Path, options: Mapping[str, Any]) -> None:
        """Raise `UserError`: nobody drafts what random weights say."""
        super().check_shape(model_dir, options)
        raise UserError("drafts for random weights are never accepted, and no trace is replayed")

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """What the method reads beside the model. Raises `UserError`."""
        return METHODS[options["method"]].files(model_dir, options)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the model and what drafts for it. Raises `UserError` for what the engine cannot
        take."""
        from backends.engine.decoder import Decoder

        assert model_dir is not None
        loaded = Loaded(NAME, model_dir, model, {**options, "replay": None})
        make = METHODS[options["method"]].make
        executor, drafter, effective = make(loaded, model_dir, model, options)
        decoder = Decoder(executor, drafter, prefill_tokens=options["prefill_tokens"])
        found = cls(decoder, executor, loaded.info(executor, effective), loaded.stop_ids)
        if not drafter.exits:
            found._clock.watch(drafter, "draft", count=DRAFT_US)
        return found
