"""Drafts without some sublayers, where the set is looked for while decoding.

SWIFT (Xia et al., 2024, arXiv 2410.06916): every so often some sets are tried on
the last tokens, by the share that a single pass of the thinned model predicts right ("matchness");
the search ends when that is high, or after a number of steps. Then a stream drafts on while it is
sure (the paper's confidence-aware inference), a chain here, no tree.

A trial of sets writes to the cache at verified positions, as it has to be fast; a last pass of all
layers over the same positions puts back what stood there, bit for bit, since a row's numbers do not
depend on the call that they are computed in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backends.engine.drafters.sublayers import SublayerDrafts
from backends.engine.draws import Draws
from backends.engine.executors.base import RING, Executor, StepRows
from backends.engine.streams import Stream
from backends.engine.sublayers.search import SetSearch
from backends.engine.sublayers.sets import NOTHING, Sublayers

WINDOW = RING
"""Generated tokens that sets are tried on: as many as one call takes of a stream."""
INTERVAL = 24
"""Rounds of drafting and verifying between two steps of the search, however many streams there are.
A step takes about two and a half passes over its window, a round one and what it drafts: so the
search takes less than a tenth of the time while it lasts."""
NEWCOMERS = 2
"""Sets that are tried in a step beside the best one."""
STEPS = 32
"""Most steps of the search."""
ENOUGH = 0.95
"""The share of right tokens at which it ends, over all tokens that the best set was tried on; at
least four windows."""
FEWEST_STEPS = 4


class SwiftDrafts:
    """A `Drafter` over the model's own executor. What it finds is forgotten at `reset`, so that a
    trial is the same whatever came before.

    Args:
        executor: holds the model, without exits.
        share: of the sublayers that drafting leaves out.
        max_drafts: most drafts of a stream at a time.
        threshold: no draft follows one that was held less probable than this.
        seed: of the search.
        interval: rounds between two steps of the search.
    """

    exits: tuple[int, ...] = ()

    def __init__(
        self,
        executor: Executor,
        share: float,
        max_drafts: int,
        threshold: float,
        *,
        seed: int = 0,
        interval: int = INTERVAL,
    ) -> None:
        self.max_drafts, self._interval = max_drafts, interval
        self._search = SetSearch(executor.architecture.layers, share, seed)
        # its calls are not those of verification, whose time may be watched
        self._whole = executor.skipping(NOTHING)
        self._drafts = SublayerDrafts(executor, self._search.best, max_drafts, threshold)
        self._layers = executor.architecture.layers
        self._rounds = self._steps = 0
        self._counts: dict[str, float] = {}

    @property
    def left_out(self) -> Sublayers:
        """The set that drafting leaves out now."""
        return self._drafts.left_out

    @property
    def search_passes(self) -> float:
        """Passes of all layers over a window that the search takes for each round: sets are tried,
        and what stood in the cache is put back."""
        if self._is_over():
            return 0.0
        tried = (1 + NEWCOMERS) * (1 - len(self.left_out) / (2 * self._layers))
        return (tried + 1) / self._interval

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """As `SublayerDrafts`, now and then after a step of the search, unless drafts are off."""
        if self.max_drafts and not self._is_over():
            self._rounds += 1
            stream = max(streams, key=_generated)
            if self._rounds >= self._interval and _generated(stream) >= WINDOW:
                self._step(stream)
        self._drafts.max_drafts = self.max_drafts
        return self._drafts.draft(streams)

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """Steps of the search since the last call, and at a stream's end the set that stands."""
        counts, self._counts = self._counts, {}
        if stream.finished is not None:
            left_out = self.left_out
            counts |= {f"skipped_attention_{layer}": 1 for layer in sorted(left_out.attention)}
            counts |= {f"skipped_mlp_{layer}": 1 for layer in sorted(left_out.mlp)}
        return counts

    def reset(self) -> None:
        """Forget every stream, and the set."""
        self._search.reset()
        self._drafts.leave_out(self._search.best)
        self._rounds = self._steps = 0
        self._counts.clear()

    def _is_over(self) -> bool:
        if self._steps >= STEPS:
            return True
        return self._steps >= FEWEST_STEPS and self._search.matchness >= ENOUGH

    def _step(self, stream: Stream) -> None:
        """Try the best set and newcomers on a stream's last verified tokens."""
        self._steps += 1
        self._rounds = 0
        end = stream.done[0]
        rows = StepRows.span(stream.slot, end - WINDOW, stream.tokens[end - WINDOW : end])
        sets = dict.fromkeys([self.left_out, *(self._search.next() for _ in range(NEWCOMERS))])
        self._search.tried({x: self._right(x, rows, stream) for x in sets}, WINDOW)
        self._whole.segment(0, rows)
        tried = sum(self._layers - len(left_out) / 2 for left_out in sets)
        stream.layers_run += tried + self._layers
        self._counts = {"set_steps": self._counts.get("set_steps", 0) + 1}
        if self._search.best != self.left_out:
            self._drafts.leave_out(self._search.best)

    def _right(self, left_out: Sublayers, rows: StepRows, stream: Stream) -> int:
        """How many of the tokens after the rows a pass without some sublayers predicts."""
        thinned = self._whole.skipping(left_out)
        start = int(rows.positions[0]) + 1
        actual = stream.tokens[start : start + len(rows)]
        if stream.sampling.temperature == 0:
            found, _ = thinned.advance(0, rows, np.arange(len(rows), dtype=np.int32))
        else:
            thinned.segment(0, rows)
            draws = Draws([stream.sampling] * len(rows))
            found, _ = draws.choose(thinned.logits(rows), rows.positions + np.int32(1))
        return sum(one == other for one, other in zip(found, actual, strict=True))


def _generated(stream: Stream) -> int:
    """Positions behind the prompt that all layers have processed, in calls of decoding."""
    return stream.done[0] - len(stream.prompt)
