"""What drafting and verifying take, by the number of sequences and drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

from backends.engine.costs.row_costs import (
    LEAST_US,
    RowCosts,
    pass_costs,
    prompt_us,
    reading_costs,
    row_costs,
    turn_us,
)
from backends.engine.drafters.adaptive import DraftCosts
from backends.engine.executors.base import Executor, StepRows
from backends.engine.sublayers.sets import Sublayers

LOOKUP_US = 10.0
"""Of looking up one sequence's drafts in its text: some calls of the interpreter."""

LOOKAHEAD_US, LOOKAHEAD_ROW_US = 20.0, 1.0
"""Of one sequence's tree, and of each of its rows: made, walked through and kept, and its window's
next iteration."""


class DraftPass(Protocol):
    """What a pass costs that drafts a token of each sequence."""

    def of(self, rows: float, positions: float) -> float:
        """Microseconds for so many rows, of sequences that have so many positions together."""


@dataclass(frozen=True, slots=True)
class DraftModelCosts:
    """Of a model that drafts: a pass of it for each token, of the sequences that draft so many."""

    verify: RowCosts
    draft: DraftPass
    turn_us: float = 0.0
    """Of a step that is to draft, beyond its passes (`row_costs.turn_us`)."""
    read_us: float = 0.0
    """See `DraftCosts.read_us`."""
    anew: RowCosts | None = None
    """Of positions that the last verification brought, where the first pass of a step computes all
    of them instead of the last one alone; without a head."""

    @classmethod
    def measure(cls, executor: Executor, drafting: Executor) -> DraftModelCosts:
        """Time the model and the one that drafts, and a step of both. The first slots of either
        are overwritten."""
        verify, draft = row_costs(executor), pass_costs(drafting)
        return cls(verify, draft, turn_us(executor, drafting, verify, draft))

    def with_reading(
        self, drafting: Executor, read: Callable[[StepRows], object], *, anew: bool = False
    ) -> DraftModelCosts:
        """Time too how prompts are read, and so what was decoded without drafts; `anew` those
        positions that a verification brought. The first slot is overwritten."""
        if not anew:
            return replace(self, read_us=prompt_us(drafting, read))
        found = reading_costs(drafting, read)
        return replace(self, read_us=found.us[-1] / found.rows[-1], anew=found)

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        """See `DraftCosts.of`."""
        later = accumulate((self._pass(sequences, positions, x) for x in tokens[:-1]), initial=0.0)
        brought = list(accumulate(stands, initial=1.0))[1:]
        first = (self._first(sequences, positions, each) for each in brought)
        # also where the first token comes to nothing, its pass was run
        drafted = (0.0, *(self.turn_us + sum(passes) for passes in zip(first, later, strict=True)))
        verified = _verified(self.verify, sequences, positions, tokens)
        return [sum(parts) for parts in zip(verified, drafted, strict=True)]

    def _first(self, sequences: int, positions: int, brought: float) -> float:
        """Of a step's first pass, after verifications that brought each sequence so many tokens."""
        if self.anew is None:
            return self.draft.of(sequences, positions)
        rows = self.anew.of(sequences * brought, self.anew.positions)
        return self.draft.of(1, positions) + rows - self.anew.us[0]

    def _pass(self, sequences: int, positions: int, share: float) -> float:
        """Of a pass for those that still draft: none where no sequence does, each by itself."""
        some = 1 - (1 - share) ** sequences
        if not some:
            return 0.0
        going = share / some
        return some * self.draft.of(max(1.0, sequences * going), positions * going)


@dataclass(frozen=True, slots=True)
class PartialPass:
    """Of a pass without some sublayers, whichever they are at the time; all of a kind are taken to
    cost the same."""

    whole: RowCosts
    no_attention: RowCosts
    no_mlp: RowCosts
    layers: int
    left_out: Callable[[], Sublayers]

    @classmethod
    def measure(cls, executor: Executor, left_out: Callable[[], Sublayers]) -> PartialPass:
        """Time passes with all sublayers and without those of either kind. The first slots of the
        executor are overwritten."""
        layers = executor.architecture.layers
        every = frozenset(range(layers))
        whole, no_attention, no_mlp = (
            pass_costs(executor.skipping(x))
            for x in (Sublayers(), Sublayers(attention=every), Sublayers(mlp=every))
        )
        return cls(whole, no_attention, no_mlp, layers, left_out)

    def of(self, rows: float, positions: float) -> float:
        """See `DraftPass.of`."""
        whole, gone = self.whole.of(rows, positions), self.left_out()
        kinds = ((self.no_attention, gone.attention), (self.no_mlp, gone.mlp))
        spared = (
            (whole - rest.of(rows, positions)) * len(layers) / self.layers for rest, layers in kinds
        )
        return max(whole - sum(spared), LEAST_US)


@dataclass(frozen=True, slots=True)
class SearchCosts:
    """Of drafts whose set of sublayers is looked for meanwhile."""

    drafting: DraftCosts
    verify: RowCosts
    passes: Callable[[], float]
    """Over `window` rows of one sequence, for each step that drafts, as things are."""
    window: int

    @property
    def read_us(self) -> float:
        """See `DraftCosts.read_us`."""
        return self.drafting.read_us

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        """See `DraftCosts.of`."""
        plain, *others = self.drafting.of(sequences, positions, tokens, stands)
        search_us = self.passes() * self.verify.of(self.window, positions / sequences)
        return [plain, *(us + search_us for us in others)]


@dataclass(frozen=True, slots=True)
class LookupCosts:
    """Of a search in the text."""

    verify: RowCosts
    read_us: float = 0.0

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        """See `DraftCosts.of`."""
        plain, *others = _verified(self.verify, sequences, positions, tokens)
        return [plain, *(us + LOOKUP_US * sequences for us in others)]


@dataclass(frozen=True, slots=True)
class FirstLayersCosts:
    """Of drafts from the model's first layers: each token goes through them once, as does the one
    that is verified without having been drafted from; the last layers take all at once."""

    first: RowCosts
    rest: RowCosts
    read_us: float = 0.0

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        """See `DraftCosts.of`."""
        once = self.first.of(sequences, positions)
        verified = _verified(self.rest, sequences, positions, tokens)
        return [us + (1 + place) * once for place, us in enumerate(verified)]


@dataclass(frozen=True, slots=True)
class LookAheadCosts:
    """Of guesses that the verifying pass makes itself: it has the rows of a tree."""

    verify: RowCosts
    tree: float
    """What a pass over a tree takes, over one with as many rows in a chain."""

    def of(self, sequences: int, positions: int, rows: float) -> tuple[float, float]:
        """See `TreeCosts.of`."""
        plain = self.verify.of(sequences, positions)
        trees = self.tree * self.verify.of(sequences * rows, positions)
        return plain, trees + (LOOKAHEAD_US + LOOKAHEAD_ROW_US * rows) * sequences


def _verified(
    costs: RowCosts, sequences: int, positions: int, tokens: Sequence[float]
) -> list[float]:
    """Of a pass over the last token and the first 0, 1, 2 ... drafts of each."""
    rows = accumulate(tokens, initial=1.0)
    return [costs.of(sequences * each, positions) for each in rows]
