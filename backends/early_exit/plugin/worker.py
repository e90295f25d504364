"""vLLM's worker, for graphs of whole segments."""

from __future__ import annotations

from typing import Any

from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.v1.worker.gpu_worker import Worker


class WholeSegmentsWorker(Worker):  # type: ignore[misc]
    """Takes away the graph that vLLM puts around the whole model, which could neither end early nor
    be counted: the model has one around each segment, or around what it counts."""

    def load_model(self, **arguments: Any) -> None:
        """See vLLM's."""
        super().load_model(**arguments)
        runner = self.model_runner
        if isinstance(runner.model, CUDAGraphWrapper):
            runner.model = runner.model.unwrap()
