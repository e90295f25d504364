"""Decoding of many sequences on one executor, in steps: admit, draft, verify, commit.

Without a drafter each step is a pass through all layers for one token: autoregressive decoding.
With one (`backends.engine.drafters`) the pass verifies all drafts of a stream at once, and emits
those that plain decoding would have selected too. Drafts are one chain for each stream, or a tree
(`backends.engine.tree_verification`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from backends.engine.decisions import DecisionHook
from backends.engine.drafters.base import Drafter
from backends.engine.drafters.counts import NO_DRAFTS, draft_counts
from backends.engine.drafters.trees.base import TreeDrafter
from backends.engine.draws import Draws
from backends.engine.early_exits import EarlyExits
from backends.engine.executors.base import RING, Executor
from backends.engine.model.architecture import EngineError
from backends.engine.passes import Span, depths, enter, enter_all, is_untouched, numbers, rows_of
from backends.engine.sampling import select
from backends.engine.streams import Output, Stream, kept
from backends.engine.tree_verification import TreeVerification, Verdict

if TYPE_CHECKING:
    from torch import Tensor

PREFILL_TOKENS = 512
"""Prompt tokens read before sequences under way go on: enough rows for their products to be bound
by arithmetic, and a few steps' time."""


class Decoder:
    """Runs streams to their ends. Greedy and seeded texts do not depend on the drafter.

    Args:
        executor: holds the model.
        drafter: guesses what is verified; without one every token takes a pass.
        leaving: lets tokens leave early, for good, in the place of a drafter. Lossy.
        verify: False lets drafts stand as they are. Lossy; the ablation of AdaDecode's paper.
        margins: record how far the best logit was above the second at each token (costs time).
        decisions: sees what is decided, and may overrule it (the drafter has the same).
        prefill_tokens: most prompt tokens of a step, a longer prompt is read over several; where
            the executor's pieces are larger, one of them.

    Raises:
        ValueError: for a drafter that does not fit the executor.
    """

    def __init__(
        self,
        executor: Executor,
        drafter: Drafter | TreeDrafter | None = None,
        *,
        leaving: EarlyExits | None = None,
        verify: bool = True,
        margins: bool = False,
        decisions: DecisionHook | None = None,
        prefill_tokens: int = PREFILL_TOKENS,
    ) -> None:
        exits = next((by.exits for by in (drafter, leaving) if by is not None), ())
        if exits != executor.exits:
            raise ValueError(f"a drafter at exits {exits} for an executor with {executor.exits}")
        if drafter is not None and not 0 <= drafter.max_drafts < RING:
            raise ValueError(f"max_drafts {drafter.max_drafts}: expected 0 to {RING - 1}")
        self._executor, self._drafter, self._leaving = executor, drafter, leaving
        self._trees: TreeVerification | None = None
        self._chains: Drafter | None = None
        if isinstance(drafter, TreeDrafter):
            if margins or not verify:
                raise ValueError("a drafter of trees: expected verification by the model alone")
            self._trees = TreeVerification(executor, drafter, decisions)
        else:
            self._chains = drafter
        self._trusts, self._margins, self._decisions = not verify, margins, decisions
        self._under_way = 0
        self._depths = depths(executor)
        self._prefill_tokens = prefill_tokens
        self._waiting: deque[Stream] = deque()
        self._half_read: Stream | None = None
        self._decode_first = False
        self._running: list[Stream] = []
        self._free = list(range(executor.slots))[::-1]

    def add(self, stream: Stream) -> None:
        """Queue a stream."""
        self._waiting.append(stream)

    def reset(self) -> None:
        """Forget every stream."""
        for stream in filter(None, (*self._running, self._half_read)):
            self._leave(stream)
        self._half_read = None
        self._running.clear()
        self._waiting.clear()
        for part in (self._drafter, self._leaving):
            if part is not None:
                part.reset()

    def step(self) -> list[Output]:
        """Read the next piece of the prompts, never two in a row while streams are under way, and
        unless that ended one go on until a token is verified. Raises `EngineError` for NaN."""
        outputs = [] if self._decode_first and self._running else self._read()
        self._decode_first = bool(outputs)
        while not outputs and self._running:
            outputs = [self._commit(verdict) for verdict in self._judge()]
        return outputs

    def _read(self) -> list[Output]:
        """Read prompts, without streams under way until one has ended; the last layer's token after
        each is its stream's first output."""
        while spans := self._next_piece():
            self._executor.read(rows_of(spans))
            ended = [(s, end - 1, end) for s, _, end in spans if end == len(s.prompt)]
            if ended:
                return self._begin(ended)
            if self._running:
                break
        return []

    def _next_piece(self) -> list[Span]:
        """Prompt tokens in order of arrival, as many as a step may read, booked as read."""
        spans: list[Span] = []
        left, piece = self._prefill_tokens, self._executor.piece
        while left > 0 and (self._half_read or (self._waiting and self._free)):
            stream = self._half_read = self._half_read or self._enter()
            start, end = stream.done[0], len(stream.prompt)
            if end - start > left:
                end = start + left // piece * piece
            if end == start:  # a whole piece is more than what is left
                if spans:
                    break
                end = min(start + piece, len(stream.prompt))
            spans.append((stream, start, end))
            stream.done[0] = end
            left -= end - start
            if end == len(stream.prompt):
                self._half_read = None
        return spans

    def _enter(self) -> Stream:
        """The first waiting stream, in a slot."""
        stream = self._waiting.popleft()
        stream.slot = self._free.pop()
        stream.tokens = list(stream.prompt)
        stream.done = [0] * len(self._depths)
        return stream

    def _begin(self, ends: Sequence[Span]) -> list[Output]:
        """Streams whose prompts are read are under way: their first tokens."""
        for stream, _, end in ends:
            stream.done = [end] * len(self._depths)
            self._running.append(stream)
        plain = [span for span in ends if self._is_greedy(span[0])]
        best = iter(self._executor.greedy(rows_of(plain)) if plain else ())
        others = iter(self._choose([span for span in ends if not self._is_greedy(span[0])]))
        outputs = []
        for stream, last, _ in ends:
            chosen = [next(best)] if self._is_greedy(stream) else next(others)
            outputs.append(self._emit(stream, last, chosen, {}))
        return outputs

    def _judge(self) -> list[Verdict]:
        """Draft, and verify what was drafted."""
        self._under_way = len(self._running)
        verdicts: list[Verdict] = []
        streams: Sequence[Stream] = self._running
        if self._leaving is not None:
            verdicts, streams = self._leaving.run(self._running)
        elif self._trees is not None:
            verdicts = self._trees.verify(self._running)
        elif self._chains is not None:
            streams = self._chains.draft(self._running)
        return verdicts or self._verify(streams)

    def _verify(self, streams: Sequence[Stream]) -> list[Verdict]:
        """Run the last segment over the unverified tokens (all segments where none has), and select
        what follows each."""
        if not streams:
            return []
        last = len(self._depths) - 1
        whole = last > 0 and is_untouched(streams[0])
        layers = sum(self._depths) if whole else self._depths[last]
        spans = enter_all(streams, layers) if whole else enter(streams, last, layers)
        wanted: list[int] = []
        at = 0
        for stream, start, end in spans:
            if self._is_greedy(stream):
                wanted += range(at, at + end - start)
            at += end - start
        run, rows, asked = self._executor, rows_of(spans), numbers(wanted)
        found, _ = run.whole(rows, asked) if whole else run.advance(last, rows, asked)
        sampled = self._choose([span for span in spans if not self._is_greedy(span[0])])
        verdicts: list[Verdict] = []
        at = 0
        for stream, start, end in spans:
            if self._is_greedy(stream):
                chosen, at = found[at : at + end - start], at + end - start
            else:
                chosen = sampled.pop(0)
            verdicts.append(Verdict(stream, start, chosen))
        return verdicts

    def _commit(self, verdict: Verdict) -> Output:
        """Keep a stream's drafts as far as they equal the chosen tokens, and the first chosen one
        that differs."""
        stream, start, chosen, beside = verdict
        drafts = stream.tokens[start + 1 :]
        if self._decisions is not None:
            chosen = self._decisions.selected(stream, start, chosen)
        left = stream.most - (start + 1 - len(stream.prompt))
        emitted, accepted = kept(drafts, chosen, stream.stops, left, trusts=self._trusts)
        counts: dict[str, float] = {
            "steps": 1,
            "step_tokens": len(emitted),
            "layers_run": stream.layers_run,
            "layers_total": len(emitted) * self._executor.architecture.layers,
        }
        if self._leaving is not None:
            counts |= self._leaving.rule.counts(int(stream.layers_run), self._under_way)
        stream.layers_run = 0
        if self._decisions is not None:
            taken = chosen[: len(emitted)]
            self._decisions.verified(stream, start, taken, accepted, self._under_way)
        output = self._emit(stream, start, emitted, counts)
        if self._drafter is not None:
            if drafts:
                ended = accepted == len(emitted)
                counts |= draft_counts(len(drafts), accepted, ended=ended, beside=beside)
            else:
                counts |= NO_DRAFTS
            counts |= self._drafter.verified(stream, accepted)
        return output

    def _emit(
        self, stream: Stream, start: int, emitted: Sequence[int], counts: dict[str, float]
    ) -> Output:
        """The tokens after position `start` are verified; what was predicted beyond is undone."""
        if emitted[-1] < 0:
            where = f"{self._executor.kernels}: request {stream.id}"
            raise EngineError(f"{where}: position {start}: the final head's logits are NaN")
        stream.tokens[start + 1 :] = emitted
        processed = len(stream.tokens) - 1
        stream.done = [min(done, processed) for done in stream.done]
        count = len(stream.tokens) - len(stream.prompt)
        if emitted[-1] in stream.stops or count == stream.last:
            stream.finished = "stop"
        elif count == stream.max_new_tokens:
            stream.finished = "length"
        if stream.finished is not None:
            self._running.remove(stream)
            self._leave(stream)
        if self._margins:
            counts |= stream.margins
            stream.margins = {}
        return Output(stream.id, tuple(emitted), stream.finished, counts)

    def _leave(self, stream: Stream) -> None:
        """The stream's slot is free, and the next one taken: its memory is there already."""
        self._free.append(stream.slot)
        self._executor.release(stream.slot, len(stream.tokens))

    def _is_greedy(self, stream: Stream) -> bool:
        """Whether the executor's own argmax is all that is needed."""
        return stream.sampling.temperature == 0 and not self._margins

    def _choose(self, spans: Sequence[Span]) -> list[list[int]]:
        """The token after each position of the spans, from the full logits."""
        if not spans:
            return []
        rows = rows_of(spans)
        logits = self._executor.logits(rows)
        if self._margins:
            chosen = iter(self._with_margins(logits.cpu(), spans))
        else:
            draws = Draws(s.sampling for s, start, end in spans for _ in range(start, end))
            chosen = iter(draws.choose(logits, rows.positions + np.int32(1))[0])
        return [[next(chosen) for _ in range(start, end)] for _, start, end in spans]

    def _with_margins(self, logits: Tensor, spans: Sequence[Span]) -> list[int]:
        """Also how far the best of each row is above the second."""
        tokens = []
        places = [(stream, p) for stream, start, end in spans for p in range(start + 1, end + 1)]
        for row, (stream, position) in zip(logits, places, strict=True):
            tokens.append(select(row, stream.sampling, position))
            best, second = row.topk(2).values.tolist()
            stream.margins[f"top2_margin@{position - len(stream.prompt)}"] = best - second
        return tokens
