"""Verification of trees of guesses: one pass over all of them, then the way that the text takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from backends.engine.decisions import DecisionHook
from backends.engine.drafters.trees.base import Guesses, TreeDrafter
from backends.engine.draws import Draws
from backends.engine.executors.base import Executor
from backends.engine.executors.trees import TreeRows
from backends.engine.passes import numbers
from backends.engine.streams import Stream

DRAWN = 128
"""Rows whose logits are written down at a time: those of 32 windows would be a gibibyte."""


class Verdict(NamedTuple):
    """What a pass over a stream says; the stream's `tokens` end in the drafts that it judges."""

    stream: Stream
    start: int
    """Position of the last token that was verified before."""
    chosen: Sequence[int]
    """What the model selects after it, and after each draft as far as that goes."""
    beside: int = 0
    """Guesses that were offered and are not among the drafts."""


class TreeVerification:
    """Verifies what a `TreeDrafter` offers.

    Args:
        executor: one with `trees` and without exits.
        drafter: makes the trees.
        decisions: may overrule which way is taken.

    Raises:
        ValueError: for an executor without trees.
    """

    def __init__(
        self, executor: Executor, drafter: TreeDrafter, decisions: DecisionHook | None = None
    ) -> None:
        if executor.trees is None:
            raise ValueError(f"a drafter of trees for {executor.kernels}, which runs none")
        self._trees, self._layers = executor.trees, executor.architecture.layers
        self._drafter, self._decisions = drafter, decisions

    def verify(self, streams: Sequence[Stream]) -> list[Verdict]:
        """The streams' tokens end in the guesses that lie on their ways, and K and V of these are
        in the cache. Empty, and nothing done, for a step without guesses."""
        grown = self._drafter.grow(streams)
        if not grown:
            return []
        pairs = list(zip(streams, grown, strict=True))
        trees = TreeRows.joined([(s.slot, len(s.tokens) - 1, g.tokens, g.back) for s, g in pairs])
        starts: list[int] = []
        wanted: list[int] = []
        sampled: list[int] = []
        end = 0
        for stream, guesses in pairs:
            judged, asked = range(guesses.judged), guesses.asked
            if stream.sampling.temperature == 0:
                asked = sorted({*judged, *asked})
            else:
                sampled += range(end, end + guesses.judged)
            wanted += [end + row for row in asked]
            starts.append(end)
            end += len(guesses.tokens)
        best = dict(zip(wanted, self._trees.run(trees, numbers(wanted)), strict=True))
        drawn = self._draw(streams, grown, trees, sampled)
        verdicts, kept = [], list[int]()
        for (stream, guesses), at in zip(pairs, starts, strict=True):
            takes = best if stream.sampling.temperature == 0 else drawn
            taken: Mapping[int, int] = {r: takes[at + r] for r in range(guesses.judged)}
            if self._decisions is not None:
                taken = self._decisions.walked(stream, guesses, taken)
            verdict, way = _walk(stream, guesses, taken)
            stream.layers_run += self._layers
            verdicts.append(verdict)
            kept += [at + row for row in way]
            self._drafter.told(stream, [best[at + row] for row in guesses.asked])
        self._trees.keep(numbers(kept))
        return verdicts

    def _draw(
        self,
        streams: Sequence[Stream],
        grown: Sequence[Guesses],
        trees: TreeRows,
        rows: Sequence[int],
    ) -> Mapping[int, int]:
        """The token after each of these rows, those that are judged of the streams that sample."""
        if not rows:
            return {}
        pairs = [pair for pair in zip(streams, grown, strict=True) if pair[0].sampling.temperature]
        sampling = [stream.sampling for stream, guesses in pairs for _ in range(guesses.judged)]
        tokens: list[int] = []
        for start in range(0, len(rows), DRAWN):
            part = slice(start, start + DRAWN)
            asked = numbers(rows[part])
            positions = trees.rows.positions[asked] + np.int32(1)
            tokens += Draws(sampling[part]).choose(self._trees.logits(asked), positions)[0]
        return dict(zip(rows, tokens, strict=True))


def _walk(stream: Stream, guesses: Guesses, takes: Mapping[int, int]) -> tuple[Verdict, list[int]]:
    """From the first row on, by what the model takes after each; the rows on the way. The guesses
    there join the stream's tokens, and one that fell stands for all that did."""
    children: dict[int, dict[int, int]] = {}
    for row in range(1, guesses.judged):
        children.setdefault(row - guesses.back[row], {})[guesses.tokens[row]] = row
    start, way, chosen = len(stream.tokens) - 1, [0], [takes[0]]
    while row := children.get(way[-1], {}).get(chosen[-1], 0):
        stream.tokens.append(chosen[-1])
        way.append(row)
        chosen.append(takes[row])
    stream.tokens += list(children.get(way[-1], ()))[:1]
    stream.done[-1] = start + len(way)
    beside = guesses.judged - 1 - (len(stream.tokens) - 1 - start)
    return Verdict(stream, start, chosen, beside), way
