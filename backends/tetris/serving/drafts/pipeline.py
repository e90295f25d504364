"""Decoding through stages with early predictions that the last stage verifies.

AdaDecode (Wei et al., ICML 2025, Algorithm 1) over the stages of a pipeline: a token that a stage
is sure of begins its successor there at once, while the stages behind run it too. The last one runs
all that has come to it in one pass and keeps drafts as far as they are what it selects itself, so
that the text is plain decoding's. Stages run ahead of one another: what one of them has under way
when a draft falls is run for nothing.
"""

from __future__ import annotations

import itertools

from backends.engine.drafters.counts import draft_counts
from backends.engine.streams import Output, kept
from backends.tetris.serving.jobs import StageDone
from backends.tetris.serving.pipeline import StagePipeline
from backends.tetris.serving.prompt_queues import Assigned
from backends.tetris.serving.staged import DraftedStream, RunSpan


class VerifyingPipeline(StagePipeline):
    """`StagePipeline` over `DraftQueues`. Drafts of who is told that its answer is over are dropped
    with it."""

    def _passed(self, index: int, assigned: Assigned, done: StageDone) -> list[Output]:
        tokens = iter(done.tokens)
        outputs: list[Output] = []
        for span in assigned.spans:
            span.one.stream.layers_run += self._layers[index]
            if index == self._last:
                told = itertools.islice(tokens, span.rows)
                outputs.append(self._verified(span, [token for token in told if token is not None]))
            elif span.asked:
                self._drafted(index, span, next(tokens))
        return outputs

    def _drafted(self, index: int, span: RunSpan, token: int | None) -> None:
        """A stage may have told what follows a stream's newest position."""
        one, stream = span.one, span.one.stream
        still = stream.finished is None and span.end == len(stream.tokens)
        # running on at a stop token costs as much as verifying it, and saves a special case
        if token is not None and still and token not in stream.stops:
            one.sources[len(stream.tokens)] = index
            stream.tokens.append(token)

    def _verified(self, span: RunSpan, chosen: list[int]) -> Output:
        """Keep drafts as far as they equal the chosen tokens, and the first that differs."""
        one, stream, start = span.one, span.one.stream, span.start
        beyond = stream.tokens[span.end + 1 :]
        del stream.tokens[span.end + 1 :]
        drafts = stream.tokens[start + 1 :]
        if self._decisions is not None:
            chosen = list(self._decisions.selected(stream, start, chosen))
        left = stream.most - (start + 1 - one.first)
        emitted, accepted = kept(drafts, chosen, stream.stops, left)
        ended = emitted[-1] in stream.stops or len(emitted) == left
        stands = accepted == len(chosen) and not ended
        judged = len(drafts) if stands else len(drafts) + len(beyond)
        counts: dict[str, float] = {
            "steps": 1,
            "step_tokens": len(emitted),
            "layers_run": stream.layers_run,
            "layers_total": len(emitted) * sum(self._layers),
            **draft_counts(judged, accepted, ended=accepted == len(emitted)),
            **self._by_exit(one, range(start + 1, start + 1 + judged), accepted),
            **self._counts.take(),
        }
        stream.layers_run = 0
        if self._decisions is not None:
            self._decisions.verified(stream, start, chosen[: len(emitted)], accepted, 0)
        if stands:
            stream.tokens += beyond
        else:
            stream.tokens[start + 1 :] = emitted
            one.cut_off(start + len(emitted))
        self._end(one, emitted[-1], start + 1 + len(emitted))
        return Output(stream.id, tuple(emitted), stream.finished, counts)

    def _by_exit(self, one: DraftedStream, settled: range, accepted: int) -> dict[str, float]:
        """The counts of early predictions, and of checks, exits and accepted ones by layer."""
        sources = [one.sources.pop(position) for position in settled]
        found: dict[str, float] = {"early_predictions": len(sources)}
        for index in {*one.checks, *sources}:
            layer = sum(self._layers[: index + 1])
            found[f"checks_layer_{layer}"] = one.checks[index]
            found[f"exits_layer_{layer}"] = sources.count(index)
            found[f"accepted_layer_{layer}"] = sources[:accepted].count(index)
        one.checks.clear()
        return found
