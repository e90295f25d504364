"""Prompt tokens and decode tokens in steps of their own: vLLM's scheduler for
``prompt_steps: separate``.

A step with prompt tokens runs at full depth, also for the sequences that decode in it. Here a step
either reads prompts or decodes, and while something decodes no two prompt steps follow one another:
a long line of prompts delays a decoding sequence by at most one step in two.

vLLM offers no hook for this, so three of its own means are used. A running request is passed over
while ``current_step < next_decode_eligible_step``; nothing new is admitted while the scheduler is
paused for new requests; and a step without tokens is allowed (the engine hands out nothing).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


class _SeparateSteps:
    """Goes before one of vLLM's schedulers, whose `schedule` it calls."""

    if TYPE_CHECKING:
        running: list[Request]
        current_step: int

    _read_prompts = False
    """Whether the last step was meant for prompts."""
    _refused: tuple[str, int] | None = None
    """The first waiting request and the free blocks when a prompt step came out empty."""

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """What the next step computes: prompt tokens only, or decode tokens only.

        A request that was preempted starts over: its prompt, and what it had generated, count as
        prompt tokens.
        """
        decoding = [request for request in self.running if not request.is_prefill_chunk]
        prompts = self._prompts_next(bool(decoding))
        passed_over = decoding if prompts else [r for r in self.running if r.is_prefill_chunk]
        for request in passed_over:
            request.next_decode_eligible_step = max(
                request.next_decode_eligible_step, self.current_step + 2
            )
        if prompts:
            output = self._schedule(throttle_prefills)
            empty = not output.total_num_scheduled_tokens
            self._refused = self._first_waiting() if empty else None
        else:
            with self._admitting_nobody():
                output = self._schedule(throttle_prefills)
        self._read_prompts = prompts
        return output

    def _schedule(self, throttle_prefills: bool) -> SchedulerOutput:
        return super().schedule(throttle_prefills)  # type: ignore[misc]

    def _prompts_next(self, decoding: bool) -> bool:
        """Whether the next step is one for prompts."""
        if not decoding:
            return True
        if self._read_prompts:
            return False
        return any(request.is_prefill_chunk for request in self.running) or self._may_admit()

    def _may_admit(self: Any) -> bool:
        """Whether the first waiting request could enter: there is a place for it, and if it found
        too few free blocks before, some have been freed."""
        first = self._first_waiting()
        taken = len(self.running) + self.num_waiting_for_streaming_input
        if first is None or taken >= self.max_num_active_reqs:
            return False
        if self._pause_state != PauseState.UNPAUSED or self._refused is None:
            return bool(self._pause_state == PauseState.UNPAUSED)
        name, free = self._refused
        return bool(first[0] != name or first[1] > free)

    def _first_waiting(self: Any) -> tuple[str, int] | None:
        """Its id, and how many blocks are free."""
        for queue in (self.kv_holding_waiting, self.waiting):
            if queue:
                free = self.kv_cache_manager.block_pool.get_num_free_blocks()
                return queue.peek_request().request_id, free
        return None

    @contextmanager
    def _admitting_nobody(self: Any) -> Iterator[None]:
        """Keep every waiting request out, also one whose prompt is all but one token cached."""
        before = self._pause_state
        if before == PauseState.UNPAUSED:
            self._pause_state = PauseState.PAUSED_NEW
        try:
            yield
        finally:
            self._pause_state = before


class SeparateScheduler(_SeparateSteps, Scheduler):  # type: ignore[misc]
    """For an engine that waits for a step before it schedules the next."""


class AsyncSeparateScheduler(_SeparateSteps, AsyncScheduler):  # type: ignore[misc]
    """For an engine that schedules a step while the one before still runs."""
