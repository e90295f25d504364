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
from dataclasses import dataclass, field

import numpy as np

from backends.engine.executor import RING, Executor, Rows
from backends.engine.sampling import GREEDY, Sampling, select

PREFILL_TOKENS = 2048
"""Prompt tokens read before sequences under way go on; one prompt may be longer."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When to predict early. Without exits it says nothing."""

    gammas: tuple[float, ...] = ()
    """A prediction counts when its probability is above that of its exit."""
    max_drafts: int = 5
    """Most early predictions of a sequence that wait for verification."""
    verify: bool = True
    """False: early predictions stand as they are. Lossy; the paper's ablation."""


@dataclass(slots=True)
class Stream:
    """A request on its way through the engine."""

    id: str
    prompt: tuple[int, ...]
    """At least one token; prompt and answer together fit into a slot."""
    max_new_tokens: int
    stops: frozenset[int] = frozenset()
    sampling: Sampling = GREEDY
    tokens: list[int] = field(default_factory=list)
    """Prompt, verified tokens and drafts."""
    done: list[int] = field(default_factory=list)
    """Positions that each segment has processed."""
    exits: list[int] = field(default_factory=list)
    """The layer that each draft came from."""
    slot: int = -1
    counts: dict[str, float] = field(default_factory=dict)
    """Telemetry since the last output."""
    margins: dict[str, float] = field(default_factory=dict)

    def count(self, name: str, amount: float = 1) -> None:
        """Add to a telemetry count."""
        self.counts[name] = self.counts.get(name, 0) + amount


@dataclass(frozen=True, slots=True)
class Output:
    """Verified tokens of one sequence."""

    id: str
    tokens: tuple[int, ...]
    finished: str | None
    """None, "stop" or "length"."""
    counts: dict[str, float]


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
        self, executor: Executor, policy: Policy | None = None, *, margins: bool = False
    ) -> None:
        self._policy = policy or Policy()
        if len(self._policy.gammas) != len(executor.exits):
            raise ValueError(
                f"{len(self._policy.gammas)} thresholds for {len(executor.exits)} exits"
            )
        if not 0 <= self._policy.max_drafts < RING:
            raise ValueError(f"max_drafts {self._policy.max_drafts}: expected 0 to {RING - 1}")
        self._executor, self._margins = executor, margins
        bounds = (0, *executor.exits, executor.architecture.layers)
        self._depths = [b - a for a, b in itertools.pairwise(bounds)]
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
        greedy = [self._is_greedy(stream) for stream, _, _ in spans]
        sizes = [end - start for _, start, end in spans]
        wanted = np.flatnonzero(np.repeat(greedy, sizes)).astype(np.int32)
        found, _ = self._executor.advance(len(self._depths) - 1, _rows(spans), wanted)
        sampled = self._choose([span for span, g in zip(spans, greedy, strict=True) if not g])
        outputs, at = [], 0
        for (stream, start, end), is_greedy in zip(spans, greedy, strict=True):
            if is_greedy:
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
            stream.count("layers_run", self._depths[index])
        return spans

    def _try_exit(self, inside: list[Stream], index: int) -> list[Stream]:
        """Run segment `index`; return the streams that go on to the next."""
        spans = self._enter(inside, index)
        may = [self._may_draft(stream) for stream in inside]
        ends = np.cumsum([end - start for _, start, end in spans], dtype=np.int32)
        tokens, confidences = self._executor.advance(index, _rows(spans), ends[may] - np.int32(1))
        left, found = [], iter(zip(tokens, confidences, strict=True))
        for stream, allowed in zip(inside, may, strict=True):
            if not (allowed and self._predict(stream, index, *next(found))):
                left.append(stream)
        return left

    def _may_draft(self, stream: Stream) -> bool:
        """Room for one more draft, and for the token that its verification brings."""
        drafts = len(stream.tokens) - 1 - stream.done[-1]
        answered = len(stream.tokens) - len(stream.prompt)
        return drafts < self._policy.max_drafts and answered + 2 <= stream.max_new_tokens

    def _predict(self, stream: Stream, index: int, token: int, confidence: float) -> bool:
        """Whether the exit's prediction becomes the stream's next draft."""
        layer = self._executor.exits[index]
        stream.count(f"checks_layer_{layer}")
        # running on at a stop token costs as much as verifying it, and saves a special case
        if not confidence > self._policy.gammas[index] or token in stream.stops:
            return False
        stream.tokens.append(token)
        stream.exits.append(layer)
        stream.count("drafted")
        stream.count("early_predictions")
        stream.count(f"exits_layer_{layer}")
        return True

    def _verify(self, stream: Stream, start: int, chosen: Sequence[int]) -> Output:
        """Keep the drafts behind position `start` as far as they equal the `chosen` tokens, and
        the first chosen one that differs."""
        drafts = stream.tokens[start + 1 :]
        emitted: list[int] = []
        for place, token in enumerate(chosen):
            hit = place < len(drafts) and (token == drafts[place] or not self._policy.verify)
            emitted.append(drafts[place] if hit else token)
            if hit:
                stream.count("accepted")
                stream.count(f"accepted_layer_{stream.exits[place]}")
            answered = start + 1 + len(emitted) - len(stream.prompt)
            if not hit or emitted[-1] in stream.stops or answered == stream.max_new_tokens:
                break
        stream.count("steps")
        stream.count("step_tokens", len(emitted))
        stream.count("layers_total", len(emitted) * sum(self._depths))
        counts, stream.counts = stream.counts, {}
        return self._commit(stream, start, emitted, counts)

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


def _rows(spans: Sequence[Span]) -> Rows:
    slots: list[int] = []
    positions: list[int] = []
    tokens: list[int] = []
    for stream, start, end in spans:
        slots += [stream.slot] * (end - start)
        positions += range(start, end)
        tokens += stream.tokens[start:end]
    return Rows(*(np.array(column, np.int32) for column in (slots, positions, tokens)))
