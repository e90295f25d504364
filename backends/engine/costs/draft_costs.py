"""What drafting and verifying take, by the number of sequences and drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from backends.engine.costs.row_costs import RowCosts

LOOKUP_US = 10.0
"""Of looking up one sequence's drafts in its text: some calls of the interpreter."""


@dataclass(frozen=True, slots=True)
class DraftModelCosts:
    """Of a draft model: a pass of it for each token, of the sequences that draft so many."""

    verify: RowCosts
    draft: RowCosts

    def of(self, sequences: int, positions: int, tokens: Sequence[float]) -> list[float]:
        """See `DraftCosts.of`."""
        going = (1.0, *tokens[:-1])
        passes = [self._pass(sequences, positions, share) for share in going]
        verified = _verified(self.verify, sequences, positions, tokens)
        drafted = accumulate(passes[: len(tokens)], initial=0.0)
        return [a + b for a, b in zip(verified, drafted, strict=True)]

    def _pass(self, sequences: int, positions: int, share: float) -> float:
        """Of a pass for those that still draft: none where no sequence does, each by itself."""
        some = 1 - (1 - share) ** sequences
        if not some:
            return 0.0
        going = share / some
        return some * self.draft.of(max(1.0, sequences * going), positions * going)


@dataclass(frozen=True, slots=True)
class LookupCosts:
    """Of a search in the text."""

    verify: RowCosts

    def of(self, sequences: int, positions: int, tokens: Sequence[float]) -> list[float]:
        """See `DraftCosts.of`."""
        plain, *others = _verified(self.verify, sequences, positions, tokens)
        return [plain, *(us + LOOKUP_US * sequences for us in others)]


@dataclass(frozen=True, slots=True)
class FirstLayersCosts:
    """Of drafts from the model's first layers: each token goes through them once, as does the one
    that is verified without having been drafted from; the last layers take all at once."""

    first: RowCosts
    rest: RowCosts

    def of(self, sequences: int, positions: int, tokens: Sequence[float]) -> list[float]:
        """See `DraftCosts.of`."""
        once = self.first.of(sequences, positions)
        verified = _verified(self.rest, sequences, positions, tokens)
        return [us + (1 + place) * once for place, us in enumerate(verified)]


def _verified(
    costs: RowCosts, sequences: int, positions: int, tokens: Sequence[float]
) -> list[float]:
    """Of a pass over the last token and the first 0, 1, 2 ... drafts of each."""
    rows = accumulate(tokens, initial=1.0)
    return [costs.of(sequences * each, positions) for each in rows]
