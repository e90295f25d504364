"""Decoding through stages that work at the same time, with a queue before each worker.

A stream's newest token waits before a stage; the stage takes all that wait, runs them as one batch,
and asks its ramp. Who is sure has the next token, which waits before the first stage at once; the
others wait before the next stage, where they are fused with whoever else has come that far (TETRIS,
section 3.3). The stages behind a ramp owe a token that left there its keys and values: they are
filled from the state that it left with, for all streams together, before a token of one that owes
runs there. Prompts go through in pieces, by turns with tokens.

A stage has one worker or more, each with a process and a queue of its own, and each with streams of
its own: their keys and values are there. It takes a stream's positions in order, so that what it
has done is a count. What it was asked is booked when it answers: of one that dies nothing has
happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backends.engine.decisions import DecisionHook
from backends.engine.streams import Output, Stream
from backends.own.exits.rule import SequenceRule
from backends.tetris.serving.counts import StageCounts
from backends.tetris.serving.jobs import StageDone
from backends.tetris.serving.processes import StageProcesses
from backends.tetris.serving.prompt_queues import Assigned, PromptQueues
from backends.tetris.serving.rebuilding import Rebuilding
from backends.tetris.serving.staged import StagedStream
from backends.tetris.workers.piped_stages import StageDiedError

MOST_DEATHS = 5
"""Of a worker in a row, none of its jobs done between."""


class StagePipeline:
    """Runs streams to their ends, as `backends.engine.decoder.Decoder` does.

    Args:
        processes: the workers.
        rule: who leaves where; exit number i is at the end of stage i.
        layers: of each stage.
        queues: before the workers.
        rows: of a piece in which a worker is rebuilt.
        decisions: sees each confidence, and may overrule it.
    """

    def __init__(
        self,
        processes: StageProcesses,
        rule: SequenceRule,
        layers: Sequence[int],
        queues: PromptQueues[Any],
        *,
        rows: int,
        decisions: DecisionHook | None = None,
    ) -> None:
        self._processes, self._rule, self._layers = processes, rule, layers
        self._queues, self._decisions = queues, decisions
        self._last = len(layers) - 1
        self._rebuilding = Rebuilding(processes, rows)
        self._counts = StageCounts(layers, [len(some) for some in queues.workers])
        self._at_work = queues.at_work
        self._late: list[tuple[int, Assigned, StageDone]] = []
        """By stage, answers that came while a worker was replaced."""
        self._deaths = [0] * len(queues.stage_of)

    def add(self, stream: Stream) -> None:
        """Queue a stream."""
        self._counts.begin()
        self._queues.add(stream)

    def reset(self) -> None:
        """Forget every stream, as soon as nobody works for any."""
        while self._at_work:
            for worker in self._processes.ready(self._at_work):
                self._answer(worker)
        self._late.clear()
        self._queues.clear()
        self._counts.clear()
        self._deaths = [0] * len(self._deaths)

    def step(self) -> list[Output]:
        """Give every idle worker what it can do, until a token is told; nothing where nothing is
        under way. Raises `RuntimeError` where workers keep dying."""
        outputs: list[Output] = []
        while not outputs:
            self._give()
            if not self._at_work and not self._late:
                break
            if not self._late:
                for worker in self._processes.ready(self._at_work, self._queues.patience_s()):
                    self._answer(worker)
            late, self._late = self._late, []
            for stage, assigned, done in late:
                outputs += self._taken(stage, assigned, done)
        return outputs

    def _give(self) -> None:
        """The last stages first: they have the oldest tokens."""
        for worker in reversed(range(len(self._deaths))):
            if worker not in self._at_work and (assigned := self._queues.take(worker)) is not None:
                self._processes.send(worker, assigned.job)

    def _answer(self, worker: int) -> None:
        """Hear what a worker has to say."""
        if worker not in self._at_work:
            return  # it was heard, or put back, when another one died
        try:
            self._hear(worker)
        except StageDiedError as death:
            self._recover(death)

    def _hear(self, worker: int) -> None:
        try:
            done = self._processes.receive(worker)
        except Exception as error:
            if not isinstance(error, StageDiedError):  # it has answered: nobody waits for it
                self._queues.put_back(worker)
            raise
        self._deaths[worker] = 0
        # at once: a worker that is rebuilt meanwhile, this one too, has to have these positions
        assigned = self._queues.done(worker)
        self._late.append((self._queues.stage_of[worker], assigned, done))

    def _taken(self, index: int, assigned: Assigned, done: StageDone) -> list[Output]:
        """What the answer of a stage's worker tells."""
        self._counts.done(index, assigned, done)
        if assigned.piece is None:
            return self._passed(index, assigned, done)
        if index < self._last:
            self._queues.go_on(index, assigned.piece, assigned.job.rooms[1])
            return []
        over = [stream for stream, _, end in assigned.piece if end == len(stream.prompt)]
        return [
            self._emit(self._queues.streams[stream.id], token, self._counts.take())
            for stream, token in zip(over, done.tokens, strict=True)
            if token is not None
        ]

    def _passed(self, index: int, assigned: Assigned, done: StageDone) -> list[Output]:
        """A batch has gone through a stage: who leaves has the next token."""
        outputs = []
        batch = len(assigned.inside)
        for row, one in enumerate(assigned.inside):
            one.stream.layers_run += self._layers[index]
            token = done.tokens[row] if done.tokens else None
            if done.tokens and index < self._last and self._decisions is not None:
                if one.overruled is None:
                    told = -1 if token is None else token
                    self._decisions.confidence(one.stream, index, told, done.sure[row])
                one.overruled = None
            if token is None:
                self._queues.wait_for(index + 1, one)
            else:
                one.left.append(index)
                outputs.append(self._commit(one, token, batch))
        return outputs

    def _commit(self, one: StagedStream, token: int, batch: int) -> Output:
        stream, start = one.stream, one.newest
        counts: dict[str, float] = {
            "step_tokens": 1,
            **self._rule.counts(int(stream.layers_run), batch),
            **self._counts.take(),
        }
        stream.layers_run = 0
        if self._decisions is not None:
            [token] = self._decisions.selected(stream, start, [token])
            self._decisions.verified(stream, start, [token], 0, batch)
        return self._emit(one, token, counts)

    def _emit(self, one: StagedStream, token: int, counts: dict[str, float]) -> Output:
        one.stream.tokens.append(token)
        self._end(one, token, len(one.stream.tokens))
        return Output(one.stream.id, (token,), one.stream.finished, counts)

    def _end(self, one: StagedStream, token: int, length: int) -> None:
        """A stream that has so many tokens for good, this one the last, goes on or is over."""
        stream = one.stream
        count = length - one.first
        if token in stream.stops or count == stream.last:
            stream.finished = "stop"
        elif count == stream.max_new_tokens:
            stream.finished = "length"
        if stream.finished is None:
            self._queues.wait_for(0, one)
        else:
            self._queues.leave(one)

    def _recover(self, death: StageDiedError) -> None:
        """Another process takes the worker's place, and gets its keys and values again; of others
        that die meanwhile likewise. Raises `RuntimeError` after `MOST_DEATHS` in a row."""
        dead = {death.index}
        for worker in sorted(self._at_work.keys() - dead):
            try:
                self._hear(worker)
            except StageDiedError as other:
                dead.add(other.index)
        for worker in dead:
            self._queues.put_back(worker)
        while dead:
            worker = min(dead)
            stage = self._queues.stage_of[worker]
            self._deaths[worker] += 1
            if (deaths := self._deaths[worker]) > MOST_DEATHS:
                raise RuntimeError(f"{death}; {deaths} died in a row") from death
            try:
                self._processes.restart(worker)
                self._counts.replaced(stage)
                self._rebuilding.rebuild(stage, self._queues.owned_by(worker))
            except StageDiedError as other:
                dead.add(other.index)
            else:
                dead.remove(worker)
