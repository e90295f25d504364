"""How far drafts of a thinned model stand, on its own answers, and what that would bring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from backends.engine.decoder import Decoder
from backends.engine.drafters.adaptive import DraftCosts
from backends.engine.drafters.sublayers import SublayerDrafts
from backends.engine.executors.base import Executor
from backends.engine.streams import Output, Stream
from backends.engine.sublayers.sets import Sublayers
from backends.training.exits.data import TrainPrompt


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What verifications found of the drafts before them; those that ended an answer judged not
    all of theirs and are left out."""

    verifications: int
    come: tuple[float, ...]
    """The share of verifications with at least 1, 2, ... drafts."""
    stand: tuple[float, ...]
    """The share in which the first 1, 2, ... of them stood."""
    rates: tuple[float, ...]
    """At each position, as far as any draft was judged there: the share that stood of the drafts
    before which all stood."""

    @classmethod
    def of(cls, outputs: Sequence[Output], most: int) -> Acceptance:
        """From what a decoder gave out, for up to `most` drafts."""
        seen = [output.counts for output in outputs if output.finished is None]
        seen = [counts for counts in seen if "drafted" in counts]

        def shares(name: str) -> tuple[float, ...]:
            return tuple(
                sum(counts[name] >= place for counts in seen) / max(len(seen), 1)
                for place in range(1, most + 1)
            )

        total: Counter[str] = Counter()
        for counts in seen:
            total.update(counts)
        judged = [place for place in range(1, most + 1) if total[f"judged_at_{place}"]]
        rates = (total[f"accepted_at_{place}"] / total[f"judged_at_{place}"] for place in judged)
        return cls(len(seen), shares("drafted"), shares("accepted"), tuple(rates))

    def best(self, costs: DraftCosts, positions: int) -> tuple[int, float]:
        """The number of drafts that brings most tokens per microsecond, one sequence at a time,
        and the speed-up over none that is expected of it.

        Args:
            costs: of drafting and verifying.
            positions: of the sequence.
        """
        us = costs.of(1, positions, self.come, self.stand)
        tokens = accumulate(self.stand, initial=1.0)
        speeds = [brought * us[0] / each for brought, each in zip(tokens, us, strict=True)]
        fastest = max(speeds)
        return speeds.index(fastest), fastest

    def told(self) -> dict[str, Any]:
        """For a report."""
        return {
            "verifications": self.verifications,
            "drafts_made": round(sum(self.come), 3),
            "drafts_that_stand": round(sum(self.stand), 3),
            "acceptance_by_position": [round(rate, 4) for rate in self.rates],
        }


def decode(
    executor: Executor,
    prompts: Sequence[TrainPrompt],
    stops: frozenset[int],
    left_out: Sublayers,
    drafts: int,
    threshold: float,
) -> Acceptance:
    """Greedy answers to the prompts, drafted without some sublayers.

    Args:
        executor: of the model, without exits.
        prompts: whose answers fit into a slot.
        stops: tokens that end an answer.
        left_out: what drafting leaves out.
        drafts: most of a verification.
        threshold: no draft follows one that was held less probable.
    """
    decoder = Decoder(executor, SublayerDrafts(executor, left_out, drafts, threshold))
    for number, prompt in enumerate(prompts):
        decoder.add(Stream(str(number), tuple(prompt.ids), prompt.limit, stops))
    outputs: list[Output] = []
    while more := decoder.step():
        outputs += more
    return Acceptance.of(outputs, drafts)
