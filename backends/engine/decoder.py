"""Decoding of many sequences on one executor: plain, and AdaDecode's adaptive layer parallelism.

AdaDecode (Wei et al., ICML 2025, Algorithm 1), in the form of contiguous frontiers: each segment of
layers has processed a prefix of the sequence, ``done[0] >= done[1] >= ...``, and what a deeper
segment has not seen yet is a contiguous range, whose hidden states wait in the boundary before it.
A confident exit head predicts the next token early; its deeper layers run later, together with
those of the tokens that follow, and the last segment verifies all of them at once.

Unlike Algorithm 1 as printed, every pending range is emptied once processed, not that of the last
layer alone, a stop token is never predicted early, and a sampled token is compared with the
prediction instead of being mixed into its probability, which is exact at every temperature.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from backends.engine.executors.base import RING, Executor, Int32, StepRows
from backends.engine.sampling import select
from backends.engine.streams import Output, PredictionPolicy, Stream

PREFILL_TOKENS = 2048
"""Prompt tokens read before sequences under way go on; one prompt may be longer."""


Span = tuple[Stream, int, int]
"""Positions from a first one up to, not including, a second of a stream."""


class Decoder:
    """Runs streams to their ends. Greedy and seeded texts do not depend on the policy.

    Args:
        executor: holds the model; its exits are the policy's.
        margins: record how far the best logit was above the second at each token (costs time).

    Raises:
        ValueError: for a policy that does not fit the executor.
    """

    def __init__(
        self, executor: Executor, policy: PredictionPolicy | None = None, *, margins: bool = False
    ) -> None:
        self._policy = policy or PredictionPolicy()
        if len(self._policy.gammas) != len(executor.exits):
            raise ValueError(
                f"{len(self._policy.gammas)} thresholds for {len(executor.exits)} exits"
            )
        if not 0 <= self._policy.max_drafts < RING:
            raise ValueError(f"max_drafts {self._policy.max_drafts}: expected 0 to {RING - 1}")
        self._executor, self._margins = executor, margins
        bounds = (0, *executor.exits, executor.architecture.layers)
        self._depths = [b - a for a, b in itertools.pairwise(bounds)]
        self._names = [
            tuple(f"{name}_layer_{layer}" for name in ("checks", "exits", "accepted"))
            for layer in executor.exits
        ]
        self._waiting: deque[Stream] = deque()
        self._running: list[Stream] = []
        self._free = list(range(executor.slots))[::-1]

    def add(self, stream: Stream) -> None:
        """Queue a stream."""
        self._waiting.append(stream)

    def reset(self) -> None:
        """Forget every stream."""
        self._free += [stream.slot for stream in self._running]
        self._running.clear()
        self._waiting.clear()

    def step(self) -> list[Output]:
        """Read waiting prompts that find a slot; without any, go on until a token is verified."""
        outputs = self._admit()
        while not outputs and self._running:
            outputs = self._advance()
        return outputs

    def _admit(self) -> list[Output]:
        outputs: list[Output] = []
        read = 0
        while self._waiting and self._free and read < PREFILL_TOKENS:
            stream = self._waiting.popleft()
            stream.slot = self._free.pop()
            length = len(stream.prompt)
            read += length
            self._executor.prefill(stream.slot, stream.prompt)
            stream.tokens = list(stream.prompt)
            stream.done = [length] * len(self._depths)
            self._running.append(stream)
            span = (stream, length - 1, length)
            if self._is_greedy(stream):
                chosen = self._executor.greedy(_rows([span]))
            else:
                (chosen,) = self._choose([span])
            outputs.append(self._commit(stream, length - 1, chosen, {}))
        return outputs

    def _advance(self) -> list[Output]:
        """Each stream by one token: an early prediction, or a pass through all layers."""
        inside = self._running
        for index in range(len(self._executor.exits)):
            inside = self._try_exit(inside, index)
            if not inside:
                return []
        spans = self._enter(inside, len(self._depths) - 1)
        wanted: list[int] = []
        at = 0
        for stream, start, end in spans:
            if self._is_greedy(stream):
                wanted += range(at, at + end - start)
            at += end - start
        found, _ = self._executor.advance(len(self._depths) - 1, _rows(spans), _numbers(wanted))
        if len(wanted) == at:
            sampled: list[list[int]] = []
        else:
            sampled = self._choose([span for span in spans if not self._is_greedy(span[0])])
        outputs, at = [], 0
        for stream, start, end in spans:
            if self._is_greedy(stream):
                chosen, at = found[at : at + end - start], at + end - start
            else:
                chosen = sampled.pop(0)
            outputs.append(self._verify(stream, start, chosen))
        return outputs

    def _enter(self, streams: Iterable[Stream], index: int) -> list[Span]:
        """What segment `index` has not processed of the streams, now booked as processed."""
        spans = []
        for stream in streams:
            start, end = stream.done[index], len(stream.tokens)
            spans.append((stream, start, end))
            stream.done[index] = end
            stream.layers_run += self._depths[index]
        return spans

    def _try_exit(self, inside: list[Stream], index: int) -> list[Stream]:
        """Run segment `index`; return the streams that go on to the next."""
        spans = self._enter(inside, index)
        wanted, asked, end = [], [], 0
        for stream, start, stop in spans:
            end += stop - start
            if self._may_draft(stream):
                asked.append(stream)
                wanted.append(end - 1)
        tokens, confidences = self._executor.advance(index, _rows(spans), _numbers(wanted))
        left = False
        for stream, token, confidence in zip(asked, tokens, confidences, strict=True):
            stream.checks.append(index)
            # running on at a stop token costs as much as verifying it, and saves a special case
            if confidence > self._policy.gammas[index] and token not in stream.stops:
                stream.tokens.append(token)
                stream.exits.append(index)
                left = True
        if not left:
            return inside
        return [stream for stream, _, stop in spans if len(stream.tokens) == stop]

    def _may_draft(self, stream: Stream) -> bool:
        """Room for one more draft, and for the token that its verification brings."""
        most = self._policy.max_batch
        if most is not None and len(self._running) > most:
            return False
        drafts = len(stream.tokens) - 1 - stream.done[-1]
        answered = len(stream.tokens) - len(stream.prompt)
        return drafts < self._policy.max_drafts and answered + 2 <= stream.max_new_tokens

    def _verify(self, stream: Stream, start: int, chosen: Sequence[int]) -> Output:
        """Keep the drafts behind position `start` as far as they equal the `chosen` tokens, and
        the first chosen one that differs."""
        drafts = stream.tokens[start + 1 :]
        left = stream.max_new_tokens - (start + 1 - len(stream.prompt))
        emitted: list[int] = []
        accepted = 0
        for place, token in enumerate(chosen):
            hit = place < len(drafts) and (token == drafts[place] or not self._policy.verify)
            emitted.append(drafts[place] if hit else token)
            accepted += hit
            if not hit or emitted[-1] in stream.stops or len(emitted) == left:
                break
        return self._commit(stream, start, emitted, self._counts(stream, accepted, len(emitted)))

    def _counts(self, stream: Stream, accepted: int, emitted: int) -> dict[str, float]:
        """The telemetry of a verification that accepted so many drafts and emitted so many
        tokens (see `results.metrics.work`); the stream's own counts begin anew."""
        exits, checks = stream.exits, stream.checks
        counts: dict[str, float] = {
            "steps": 1,
            "step_tokens": emitted,
            "layers_run": stream.layers_run,
            "layers_total": emitted * self._executor.architecture.layers,
        }
        if self._depths[1:]:
            counts |= {
                "drafted": len(exits),
                "early_predictions": len(exits),
                "accepted": accepted,
            }
        for index, (asked, taken, kept) in enumerate(self._names):
            if times := checks.count(index):
                counts[asked] = times
                counts[taken] = exits.count(index)
                counts[kept] = exits[:accepted].count(index)
        stream.layers_run = 0
        checks.clear()
        return counts

    def _commit(
        self, stream: Stream, start: int, emitted: Sequence[int], counts: dict[str, float]
    ) -> Output:
        """The tokens behind position `start` are verified; what was predicted beyond is undone."""
        stream.tokens[start + 1 :] = emitted
        stream.exits.clear()
        processed = len(stream.tokens) - 1
        stream.done = [min(done, processed) for done in stream.done]
        finished = None
        if emitted[-1] in stream.stops:
            finished = "stop"
        elif len(stream.tokens) - len(stream.prompt) == stream.max_new_tokens:
            finished = "length"
        if finished is not None:
            self._running.remove(stream)
            self._free.append(stream.slot)
        if self._margins:
            counts |= stream.margins
            stream.margins = {}
        return Output(stream.id, tuple(emitted), finished, counts)

    def _is_greedy(self, stream: Stream) -> bool:
        """Whether the executor's own argmax is all that is needed."""
        return stream.sampling.temperature == 0 and not self._margins

    def _choose(self, spans: Sequence[Span]) -> list[list[int]]:
        """The token behind each position of the spans, from the full logits."""
        if not spans:
            return []
        logits = iter(self._executor.logits(_rows(spans)))
        chosen = []
        for stream, start, end in spans:
            tokens = []
            for position in range(start + 1, end + 1):
                row = next(logits)
                tokens.append(select(row, stream.sampling, position))
                if self._margins:
                    best, second = row.topk(2).values.tolist()
                    place = position - len(stream.prompt)
                    stream.margins[f"top2_margin@{place}"] = best - second
            chosen.append(tokens)
        return chosen


def _rows(spans: Sequence[Span]) -> StepRows:
    if len(spans) == 1:
        stream, start, end = spans[0]
        return StepRows([stream.slot] * (end - start), range(start, end), stream.tokens[start:end])
    slots: list[int] = []
    positions: list[int] = []
    tokens: list[int] = []
    for stream, start, end in spans:
        slots += [stream.slot] * (end - start)
        positions += range(start, end)
        tokens += stream.tokens[start:end]
    return StepRows(slots, positions, tokens)


def _numbers(rows: Sequence[int]) -> Int32:
    return np.array(rows, np.int32)
