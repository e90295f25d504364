"""Opens vLLM with the demo model's exit heads in a process of its own and prints, as one JSON line,
when heads were folded.

Usage: ``python loaded_heads_child.py``. Prints ``opened``, what came in which order until the
engine stood, and ``configured``, what came when it was given other thresholds and other heads.
"""

from __future__ import annotations

import json
from typing import Any

from backends import open_backend
from backends.checkpoints import models
from backends.checkpoints.exit_heads import HeadFolder
from harness.core.nouns import Model

OPTIONS: dict[str, Any] = {
    "kv_cache_gib": 0.05, "max_model_len": 128, "threads": 1, "measure": "softmax",
    "heads": "mixed", "layers": [2, 4], "threshold": 0.9, "calibration": "none",
}  # fmt: skip


def main() -> None:
    """Note each fold and the sizing of the cache."""
    from vllm.v1.worker.cpu_worker import CPUWorker

    told: list[str] = []
    fold, size = HeadFolder.matrix, CPUWorker.determine_available_memory

    def folded(self: HeadFolder, layer: int, final_head: Any) -> Any:
        told.append(f"{self.path.name} {layer}")
        return fold(self, layer, final_head)

    def sized(self: Any, *arguments: Any) -> Any:
        told.append("cache")
        return size(self, *arguments)

    HeadFolder.matrix = folded  # type: ignore[method-assign]
    CPUWorker.determine_available_memory = sized
    directory = models.resolve(Model("demo"))
    backend: Any = open_backend("vllm-early-exit", directory, Model("demo"), OPTIONS)
    opened, told[:] = list(told), []
    for threshold in (0.8, 0.5):
        backend.configure({"threshold": threshold})
    backend.configure({"heads": "xsum"})
    backend.close()
    print(json.dumps({"opened": opened, "configured": told}))


if __name__ == "__main__":
    main()
