"""Draft and verify on our own engine: drafts from a smaller model, from the text, from the first
layers of the model itself, from all of them but some sublayers, or from windows that it computes
ahead. The text is plain decoding's at every temperature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from backends.checkpoints import traces
from backends.checkpoints.draft_models import AUTO, check_drafts, check_lookup
from backends.checkpoints.draft_traces import REPLAY, check_workload, find_drafts, remarks
from backends.engine.model.architecture import EngineError
from backends.own.backend import OPTIONS, EngineBackend, Loaded, check_fit
from backends.own.decisions import Recorder, Replayer
from backends.own.drafting.decisions import DraftRecorder, DraftReplayer
from backends.own.drafting.methods import LOOKAHEAD, METHODS
from backends.own.drafting.traced import NAME, PREFIX, find_trace
from backends.own.drafting.tree_decisions import TreeRecorder, TreeReplayer
from harness.core.backend import Option
from harness.core.errors import UserError
from harness.core.names import DRAFT_US
from harness.core.nouns import Model

MOST_DRAFTS = 15


class Speculative(EngineBackend):
    """Speculative decoding on our own engine: several tokens are drafted (by a smaller model, from
    the text, by some of the model's own layers), and one pass of the model verifies them; a chain
    of drafts for each sequence, or a tree (LookAhead). The text is plain decoding's."""

    _beside: Sequence[Any] = ()
    """Executors of models that draft."""
    OPTIONS: ClassVar[dict[str, Option]] = {
        **OPTIONS,
        "replay": REPLAY,
        "method": Option(
            str, "draft_model", "where drafts come from", choices=tuple(METHODS)
        ),
        "drafts": Option(
            int, AUTO, "tokens drafted for each verification; auto: as many as pay, none included, "
            "by measured costs and what has been accepted", minimum=1, maximum=MOST_DRAFTS,
            words=(AUTO,),
        ),
        "draft": Option(
            str, AUTO, "draft_model, eagle3 (a trained head): a bundled name, a folder or a hub "
            "id; auto: the demo model's. In a replay of draft_model also a shape, which gets the "
            "model's vocabulary; auto: one that suits it"
        ),
        "threshold": Option(
            float, 0.6, "draft_model, eagle3, self_speculation, swift: no draft follows one less "
            "probable than this", minimum=0, maximum=1,
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
        "sublayers": Option(
            str, AUTO, "self_speculation: a folder that says what drafting leaves out; auto: the "
            "demo model's"
        ),
        "skip": Option(
            float, 0.5, "swift: the share of sublayers that drafting leaves out", minimum=0.05,
            maximum=0.95,
        ),
        "window": Option(
            int, 3, "lookahead: places that are guessed ahead", minimum=1, maximum=64
        ),
        "ngram": Option(
            int, 3, "lookahead: tokens of an n-gram, one more than a guess has", minimum=2,
            maximum=MOST_DRAFTS + 1,
        ),
        "guesses": Option(
            int, 3, "lookahead: most n-grams verified at once", minimum=1, maximum=64
        ),
        "pool_prompt": Option(
            bool, True, "lookahead: n-grams of the prompt are guesses too"
        ),
        "record": traces.RECORD,
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
        if find_trace(options) is not None and options["record"]:
            raise UserError(f"{PREFIX} 'record' has no meaning with 'replay'")
        is_rated = isinstance(options["replay"], Mapping)
        if is_rated and options["threshold"] != cls.OPTIONS["threshold"].default:
            raise UserError(f"{PREFIX} 'threshold': decides nothing beside rates, which say it all")
        if model_dir is None:
            return
        shape = check_fit(NAME, model_dir, options)
        if options["drafts"] != AUTO:
            check_drafts(PREFIX, options["drafts"], model_dir, options["max_model_len"])
        chosen.check(model_dir, shape, options)

    @classmethod
    def check_shape(cls, model_dir: Path, options: Mapping[str, Any]) -> None:
        """Raise `UserError` where drafts would be held against what random weights say."""
        super().check_shape(model_dir, options)
        if find_trace(options) is None:
            raise UserError(
                "drafts for random weights are never accepted; give 'replay: demo', a trace or "
                "rates"
            )

    @classmethod
    def check_workload(cls, workload: str, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for a workload of which a replayed trace has no request."""
        check_workload(PREFIX, find_trace(options), workload)

    @classmethod
    def warnings(cls, model_dir: Path, options: Mapping[str, Any]) -> list[str]:
        """That another number of drafts than the trace's is replayed."""
        return remarks(PREFIX, find_trace(options), options["drafts"])

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        """What the method reads beside the model, and the trace that is replayed. Raises
        `UserError`."""
        path = find_drafts(PREFIX, options, NAME)
        beside = METHODS[options["method"]].files(model_dir, options)
        return beside if path is None else [*beside, path]

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """Load the model and what drafts for it. Raises `UserError` for what the engine cannot
        take."""
        from backends.engine.decoder import Decoder

        assert model_dir is not None
        path = find_drafts(PREFIX, options, NAME)
        replay = options["replay"] if path is None else str(path)
        loaded = Loaded(NAME, model_dir, model, {**options, "replay": replay})
        decided = loaded.decided = _decided(loaded, options)
        make = METHODS[options["method"]].make
        try:
            executor, drafter, effective = make(loaded, model_dir, model, options)
        except EngineError as error:
            raise UserError(f"backend '{NAME}': {error}") from None
        decoder = Decoder(
            executor, drafter, decisions=decided, prefill_tokens=options["prefill_tokens"]
        )
        info = loaded.info(executor, {**effective, "replay": options["replay"]})
        found = cls(decoder, executor, info, loaded.stop_ids, decided)
        found._beside = loaded.beside
        if not drafter.exits:
            calls = ("grow", "told") if hasattr(drafter, "grow") else ("draft",)
            found._clock.watch(drafter, *calls, count=DRAFT_US)
        return found

    def close(self) -> None:
        """Free the models."""
        for executor in self._beside:
            executor.close()
        super().close()


def _decided(loaded: Loaded, options: Mapping[str, Any]) -> Recorder | Replayer | None:
    """Who sees what is decided."""
    in_trees = options["method"] == LOOKAHEAD
    if loaded.source is not None:
        return (TreeReplayer if in_trees else DraftReplayer)(loaded.source)
    return (TreeRecorder if in_trees else DraftRecorder)() if options["record"] else None
