"""Drafts of vLLM's own methods, recorded for the harness, and replayed from a trace.

A replay pays for everything: the draft model drafts as many tokens as vLLM asks it for, or vLLM
searches the text, the model verifies them, and vLLM's rejection sampler judges them. How many a
search finds, and how many stand, is the trace's (`results.traces.drafted`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backends.checkpoints.draft_heads.files import EAGLE_LAYERS
from backends.checkpoints.draft_traces import SEARCHES
from results.traces.drafted import DraftedRow
from results.traces.rated import RatedRow

if TYPE_CHECKING:
    from torch import Tensor

FALLEN, OTHER = 5, 6
"""The token after the last draft that stood, and what it is where that draft's successor is the
former: which one decides nothing."""


class ReplayedVerification:
    """Stands where vLLM's model runner has its rejection sampler, and where it has a search of the
    text for drafts.

    Args:
        runner: `GPUModelRunner` or one derived from it, which does not schedule asynchronously:
            else it does not know yet how many tokens a request has.
    """

    def __init__(self, runner: Any) -> None:
        from vllm.v1.sample.rejection_sampler import PLACEHOLDER_TOKEN_ID

        # in vLLM a constant of Triton's
        self._nothing = int(getattr(PLACEHOLDER_TOKEN_ID, "value", PLACEHOLDER_TOKEN_ID))
        self._runner, self._judge = runner, runner.rejection_sampler
        self._rows: dict[str, DraftedRow | RatedRow] = {}
        runner.rejection_sampler = self
        if runner.speculative_config.method in SEARCHES:
            self.watch_search()

    def watch_search(self) -> None:
        """Stand in the place of the search, which may be another one than before."""
        drafter = self._runner.drafter
        self._search, drafter.propose = drafter.propose, self._propose

    def enter(self, name: str, row: DraftedRow | RatedRow) -> None:
        """What becomes of the drafts of the request of the engine's id `name`."""
        self._rows[name] = row

    def leave(self, name: str) -> None:
        """A request is over."""
        self._rows.pop(name, None)

    def clear(self) -> None:
        """All requests are over."""
        self._rows.clear()

    def __call__(self, metadata: Any, *others: Any) -> Any:
        """vLLM's `SamplerOutput` for a step with drafts, by the trace.

        Args:
            metadata: vLLM's `SpecDecodeMetadata`.
            others: the further arguments of `RejectionSampler.forward`.
        """
        judged = self._judge(metadata, *others)
        return replace(judged, sampled_token_ids=self._kept(metadata, judged.sampled_token_ids))

    def _kept(self, metadata: Any, judged: Tensor) -> Tensor:
        """[requests, most drafts + 1]: drafts as far as they stand, one token more, and nothing. A
        request without drafts, and one that is not known here, keeps its row."""
        batch, found = self._runner.input_batch, judged.clone()
        drafts = metadata.draft_token_ids.tolist()
        at = 0
        for place, count in enumerate(metadata.num_draft_tokens):
            own, at = drafts[at : at + count], at + count
            row = self._rows.get(batch.req_ids[place])
            if not count or row is None:
                continue
            standing = row.standing(self._position(place), count)
            last = OTHER if own[standing : standing + 1] == [FALLEN] else FALLEN
            kept = [*own[:standing], last]
            found[place] = self._nothing
            found[place, : len(kept)] = found.new_tensor(kept)
        return found

    def _propose(self, most: int, *others: Any, **named: Any) -> list[list[int]]:
        """The drafts of each request, by the trace. What the search lacks for that is filled up
        with the prompt's first tokens: which tokens they are decides nothing.

        Args:
            most: drafts of a request.
            others, named: the further arguments of `NgramProposer.propose` or
                `SuffixDecodingProposer.propose`. The list among them has each request's new tokens;
                none where its prompt is not read to the end.
        """
        batch = self._runner.input_batch
        sampled: list[list[int]] = next(one for one in others if isinstance(one, list))
        found: list[list[int]] = self._search(most, *others, **named)
        for place, new in enumerate(sampled):
            row = self._rows.get(batch.req_ids[place])
            if new and row is not None:
                _, made = row.chain(self._position(place), most)
                found[place] = [*found[place], *batch.token_ids_cpu[place, :most].tolist()][:made]
        return found

    def _position(self, place: int) -> int:
        """Of the first draft after the tokens that a request has."""
        batch = self._runner.input_batch
        return int(batch.num_tokens_no_spec[place] - batch.num_prompt_tokens[place]) - 1


def states_after(worker: Any) -> list[int]:
    """After which layers an EAGLE-3 head reads states: as its configuration says, else those that
    vLLM takes."""
    runner = worker.model_runner
    asked = getattr(runner, "_get_eagle3_aux_layers_from_config", None)  # not of every runner
    own = runner.vllm_config.speculative_config.draft_model_config.hf_config
    told = asked() if asked else getattr(own, EAGLE_LAYERS, None)
    return list(told or runner.get_model().get_eagle3_default_aux_hidden_state_layers())


def forget_answers(worker: Any) -> None:
    """A proposer that drafts from earlier answers begins with none: the next trial asks the same
    prompts."""
    runner = worker.model_runner
    runner.drafter = type(runner.drafter)(runner.vllm_config)
