"""How long vLLM's model runs, as opposed to the engine around it.

The model's own forward pass and head are timed on a CPU, where a call returns when its work is
done. On a GPU it returns before, and waiting for the work would change what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class PassClock:
    """Time that a model has spent in its passes so far. `runs` says whether it is taken."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self.runs = False

    def attach(self, engine: Any) -> None:
        """Take the time of an `LLMEngine`'s model from now on, if it runs on this process's CPU."""
        from vllm.platforms import current_platform

        alone = engine.vllm_config.parallel_config.world_size == 1
        if current_platform.is_cpu() and alone:
            engine.collective_rpc(self._wrap)
            self.runs = True

    def _wrap(self, worker: Any) -> None:
        model = worker.model_runner.get_model()
        for name in ("forward", "compute_logits"):
            setattr(model, name, self._timed(getattr(model, name)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter_ns()
            found = function(*args, **kwargs)
            self.spent_ns += time.perf_counter_ns() - begin
            return found

        return timed
