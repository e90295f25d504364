"""Runs early exit on a CPU as if each compiled piece were a CUDA graph, and prints one JSON line.

vLLM compiles each segment of the model in pieces between attentions and wraps each piece in a CUDA
graph. Here the same compiler splits the same segments, and the wrapper stands in for a graph: it
answers in tensors of its own, counts inputs that lie elsewhere than at its capture (a graph would
read the old place), and destroys what other segments have left in the memory that graphs share.
With ``--whole-segments`` each segment is one such graph, its attention inside.
Usage: ``python early_exit_graphs_child.py MODEL_DIR [--whole-segments] [--without-handover]``.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends import open_backend
from backends.vllm.arguments import set_environment
from harness.core.nouns import Load, Model, Request
from harness.measure.load_loop import run_load

SCHEDULE = [2, 8, 5, 2]
LARGEST = 6
"""Rows of the largest graph."""
OPTIONS = {
    "measure": "schedule",
    "layers": SCHEDULE,
    "max_num_seqs": LARGEST,
    "max_model_len": 256,
    "kv_cache_gib": 0.125,
    "threads": 1,
}
SEEN: dict[str, Any] = {"captured": 0, "replayed": 0, "moved": 0, "steps": set()}
HERE: dict[str, Any] = {"graphs": False, "rows": 0, "segment": None}
"""What the model is doing."""
ALL: list[Graph] = []


class Graph:
    """Stands in for vLLM's `CUDAGraphWrapper` around one piece of a segment."""

    def __init__(self, piece: Callable[..., Any], last: bool) -> None:
        self._piece, self._last = piece, last
        self._segment: Any = None
        self._captured: dict[int, tuple[list[int], Any]] = {}
        ALL.append(self)

    def __call__(self, *arguments: Any) -> Any:
        import torch
        from torch.utils._pytree import tree_map

        if not HERE["graphs"]:
            return self._piece(*arguments)
        self._segment, rows = HERE["segment"], HERE["rows"]
        places = [x.data_ptr() for x in arguments if isinstance(x, torch.Tensor)]
        if rows not in self._captured:
            SEEN["captured"] += 1
            self._captured[rows] = places, tree_map(torch.clone, self._piece(*arguments))
            return self._captured[rows][1]
        captured, outputs = self._captured[rows]
        SEEN["replayed"] += 1
        SEEN["moved"] += captured != places
        for other in ALL:
            other.overwrite(self._segment)
        tree_map(lambda kept, new: kept.copy_(new), outputs, self._piece(*arguments))
        return outputs

    def overwrite(self, segment: Any) -> None:
        """Another segment's graphs may have this one's last outputs: their memory was let go."""
        if self._last and self._segment is not segment:
            for _, outputs in self._captured.values():
                for tensor in outputs if isinstance(outputs, (tuple, list)) else [outputs]:
                    tensor.fill_(float("nan"))


def main() -> None:
    """Eager mode, then segments as graphs; the same requests, which join and leave."""
    set_environment(1)
    directory = Path(sys.argv[1])
    eager = answers(directory, True)
    stand_in("--without-handover" not in sys.argv, "--whole-segments" in sys.argv)
    graphs = answers(directory, False)
    SEEN["steps"] = sorted(SEEN["steps"])
    print(json.dumps({"eager": eager, "graphs": graphs, "pieces": len(ALL), **SEEN}))


def answers(directory: Path, eager: bool) -> dict[str, list[list[int]]]:
    """Token ids of a schedule of exits, and of never leaving."""
    draw = random.Random(1)
    requests = [
        Request(
            f"r{n}", tuple(draw.randrange(3, 1000) for _ in range(length)), 6 + n, ignore_eos=True
        )
        for n, length in enumerate((1, 5, 40, 17, 60, 3, 9))
    ]
    model = Model(str(directory), dtype="float32")
    found = {}
    backend: Any = open_backend(
        "vllm-early-exit", directory, model, {**OPTIONS, "enforce_eager": eager}
    )
    for measure in ("schedule", "never"):
        chosen = {"layers": SCHEDULE} if measure == "schedule" else {}
        backend.configure({"measure": measure, **chosen})
        load = Load("closed", concurrency=4)
        found[measure] = [g.token_ids for g in run_load(backend, requests, load)]
        backend.reset()
    backend.close()
    return found


def stand_in(handover: bool, whole: bool) -> None:
    """Let the CPU compile in pieces as CUDA does, and put a `Graph` around each, or around each
    segment."""
    import torch
    from vllm.config import CompilationMode, CUDAGraphMode
    from vllm.forward_context import get_forward_context
    from vllm.platforms.cpu import CpuPlatform

    from backends.early_exit.plugin.handover import Handover

    ours: Any = importlib.import_module("backends.early_exit.plugin.model")
    compilation: Any = importlib.import_module("vllm.compilation.backends")
    platform: Any = CpuPlatform
    theirs = platform.check_and_update_config.__func__

    def in_pieces(cls: Any, config: Any) -> None:
        theirs(cls, config)
        config.compilation_config.mode = CompilationMode.VLLM_COMPILE
        config.compilation_config.backend = "eager"
        config.compilation_config.compile_sizes = []

    def make_handover(config: Any) -> Handover | None:
        sizes = LARGEST, config.model_config.get_hidden_size()
        return Handover(*sizes, torch.float32, torch.device("cpu")) if handover else None

    causal = ours.EarlyExitLlamaForCausalLM
    forward, run = causal.forward, ours.EarlyExitLlamaModel._run
    kept: dict[str, torch.Tensor] = {}

    def at_its_place(name: str, given: torch.Tensor) -> torch.Tensor:
        """On a GPU the runner's ids and positions stay where they are."""
        place = kept.setdefault(name, torch.zeros(LARGEST, dtype=given.dtype))
        return place[: len(given)].copy_(given)

    def noted_forward(self: Any, input_ids: Any, positions: Any, *others: Any, **named: Any) -> Any:
        context = get_forward_context()
        real = self.control.runner is not None and context.attn_metadata is not None
        HERE["rows"], HERE["graphs"] = len(positions), real and len(positions) <= LARGEST
        if HERE["graphs"]:
            SEEN["steps"].add(len(positions))
            context.cudagraph_runtime_mode = CUDAGraphMode.PIECEWISE
            input_ids = at_its_place("ids", input_ids)
            positions = at_its_place("positions", positions)
        return forward(self, input_ids, positions, *others, **named)

    def noted_run(self: Any, segment: Any, *others: Any) -> Any:
        HERE["segment"] = segment
        return run(self, segment, *others)

    platform.check_and_update_config = classmethod(in_pieces)
    if whole:
        ours.graphs_of = lambda segments, _: [Graph(one, True) for one in segments]
    else:
        wrap = "wrap_with_cudagraph_if_needed"
        setattr(compilation, wrap, lambda piece, a, b, first, last: Graph(piece, last))
    ours.make_handover = make_handover
    causal.forward, ours.EarlyExitLlamaModel._run = noted_forward, noted_run


if __name__ == "__main__":
    main()
